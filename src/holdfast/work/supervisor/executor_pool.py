"""The executor processes of a supervisor: started, restarted, given jobs, drained and stopped."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from ...core.errors import AppError
from ...core.job import Job
from ...core.units import counted
from ...store.common.clock import monotonic_s
from ..capacity import Capacity, ExecutionMode, TaskDurations, total_capacity
from ..loop_watch import BLOCKED_S
from ..messages import (
    CommandRequest,
    ExecutorMessage,
    FrameReader,
    Hello,
    JobEnded,
    JobsReturned,
    JobStack,
    JobStarted,
    Message,
    Pong,
    RequestSize,
    Stop,
    begin_of,
    encode_frame,
)
from ..options import WorkerOptions
from .executor_handle import ExecutorEvents, ExecutorHandle, HeldJob, Key, deliver_jobs, exit_text
from .executor_process import take_process

# The delay before starting an executor again that failed to start; it doubles up to a minute.
RESTART_S = 0.5
MAX_RESTART_S = 60.0
# How long an executor without jobs may take to exit before it is killed.
EXIT_WAIT_S = 5.0
# The same for one that has failed to start, or that is stopped with the worker.
STOP_WAIT_S = 1.0


READ_BYTES = 1 << 16
# Signals from outside, of the kernel's out-of-memory killer too. Others are crashes of the application.
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StartResult(NamedTuple):
    """An executor, None if it could not be started, and its `Hello`."""

    executor: ExecutorHandle | None
    hello: Hello
    # Whether a signal from outside has ended it before it was ready.
    was_killed: bool = False


class ExecutorProtocol(asyncio.Protocol):
    """Receives `hello` (None if the executor ended before it), then messages until the socket closes."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[Hello | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._early: list[ExecutorMessage] = []
        self._on_messages: Callable[[Sequence[ExecutorMessage]], None] = self._early.extend
        self._on_closed: Callable[[], None] | None = None
        self._is_closed = False

    def listen(
        self, on_messages: Callable[[Sequence[ExecutorMessage]], None], on_closed: Callable[[], None]
    ) -> None:
        """Set the callbacks for messages and for the end; those that came before are passed on now."""
        self._on_messages, self._on_closed = on_messages, on_closed
        if self._early:
            on_messages(self._early)
        if self._is_closed:
            on_closed()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Decode bytes, and pass on the messages that are complete."""
        messages = self._frames.feed(data)
        if messages and not self.hello.done():
            first = messages.pop(0)
            self.hello.set_result(first if isinstance(first, Hello) else None)
        if messages:
            self._on_messages(messages)

    def _read_rest(self) -> None:
        """Read what the executor sent before it ended: a failed send closes the transport before that."""
        assert self.transport is not None
        fd = self.transport.get_extra_info("socket").fileno()
        try:
            while data := os.read(fd, READ_BYTES):
                self.data_received(data)
        except OSError:
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        """The executor has ended."""
        self._is_closed = True
        try:
            self._read_rest()
        finally:
            # Also after a frame that cannot be decoded.
            if not self.hello.done():
                self.hello.set_result(None)
            if self._on_closed is not None:
                self._on_closed()


class ExecutorPool:
    """All executors of a supervisor."""

    def __init__(
        self,
        options: WorkerOptions,
        log: Callable[[str], None],
        on_events: Callable[[ExecutorHandle, ExecutorEvents], None],
        on_request: Callable[[ExecutorHandle, CommandRequest], None],
        on_lost: Callable[[ExecutorHandle], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._options, self._log = options, log
        self._on_events, self._on_request, self._on_lost, self._on_ready = (
            on_events,
            on_request,
            on_lost,
            on_ready,
        )
        self._executors: list[ExecutorHandle] = []
        self.durations = TaskDurations()
        self._running: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._stopping = False
        # How many are starting, and the processes that import the user's code just now.
        self.starting = 0
        self._importing: set[subprocess.Popen[bytes]] = set()
        # No more executors are started.
        self.closing = False
        # Why the last start of an executor failed; "" if it succeeded.
        self.error = ""
        # Called with the `Hello` of each new executor, and with jobs that an executor has returned.
        self.on_hello: Callable[[Hello], None] = lambda _hello: None
        self.on_returned: Callable[[list[HeldJob], ExecutorHandle | None], None] = lambda _jobs, _executor: (
            None
        )

    async def start(self, count: int) -> Hello:
        """Start executors; returns the `Hello` of the first one. Raises `AppError` if one fails by itself."""
        hellos = await asyncio.gather(*(self._start_with_retries(is_first=True) for _ in range(count)))
        for hello in hellos:
            if hello.error:
                raise AppError(" ".join(self._options.executor_names), hello.error, trace=hello.trace)
        return hellos[0]

    async def _start_one(self, *, is_isolated: bool = False) -> StartResult:
        """Start an executor."""
        try:
            started = take_process()
        except OSError as error:
            return StartResult(None, self._set_error(Hello(pid=0, error=f"no process: {error.strerror}")))
        process = started.process
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(ExecutorProtocol, sock=started.socket)
        assert protocol.transport is not None
        _close_when_ended(process, protocol.transport)
        protocol.transport.write(encode_frame(begin_of(self._options)))
        self._importing.add(process)
        hello = await protocol.hello
        self._importing.discard(process)
        if hello is None or hello.error:
            protocol.transport.close()
            # A thread that the module has started may keep it from exiting.
            await _wait_or_kill(process)
            started.close()
            text = f"its process ended {exit_text(process.returncode)} before it was ready"
            was_killed = hello is None and -process.returncode in KILLS
            hello = self._set_error(hello or Hello(pid=process.pid, error=text))
            return StartResult(None, hello, was_killed=was_killed)
        threads = max(self._options.threads, self._options.slots_for_handlers)
        executor = ExecutorHandle(process, threads, self.durations, started.locks)
        executor.attach(protocol.transport, started.dump, loop_thread=hello.loop_thread)
        self.error = ""
        self.on_hello(hello)
        executor.is_isolated = is_isolated
        self._executors.append(executor)
        protocol.listen(
            lambda messages: self._on_messages(executor, messages), lambda: self._on_closed(executor)
        )
        self._on_ready()
        return StartResult(executor, hello)

    def _set_error(self, hello: Hello) -> Hello:
        self.error = hello.error
        self.on_hello(hello)
        return hello

    def _on_messages(self, executor: ExecutorHandle, messages: Sequence[ExecutorMessage]) -> None:
        job_messages = [one for one in messages if type(one) is JobEnded or type(one) is JobStarted]
        if len(job_messages) < len(messages):
            # Before the ends of jobs: a handler sends its commands before its job ends.
            for message in messages:
                if isinstance(message, JobsReturned):
                    self.on_returned(executor.drop_returned(message.jobs), executor)
                elif isinstance(message, CommandRequest):
                    self._on_request(executor, message)
                elif isinstance(message, Pong):
                    executor.on_pong(message)
                elif isinstance(message, JobStack) and executor.stacks is not None:
                    executor.stacks.on_answer(message)
                elif isinstance(message, RequestSize):
                    self.durations.request_sizes[message.tenant, message.task] = message.size
        if job_messages:
            self._on_events(executor, executor.apply_messages(job_messages))
        self._changed.set()
        executor.throttle_reads()

    def _on_closed(self, executor: ExecutorHandle) -> None:
        for task in executor.waits:
            # Else a job might be claimed later for a handler that is gone.
            task.cancel()
        self.track(asyncio.create_task(self._remove(executor)))

    async def _remove(self, executor: ExecutorHandle) -> None:
        # Not killed at once: its own exit code is in the errors of its jobs.
        await _wait_or_kill(executor.process)
        self._executors.remove(executor)
        self._changed.set()
        if not self._stopping:
            if not executor.is_draining:
                process, jobs = executor.process, counted(len(executor.jobs), "job")
                self._log(f"executor {process.pid} ended {exit_text(process.returncode)}, with {jobs}")
            self._on_lost(executor)
        executor.close()
        if not (self._stopping or executor.is_draining or executor.is_isolated or executor.is_being_replaced):
            await self._start_replacement()

    async def _start_replacement(self) -> None:
        self.starting += 1
        try:
            await self._start_with_retries()
        finally:
            self.starting -= 1

    async def _start_with_retries(self, *, is_first: bool = False) -> Hello:
        """Start an executor, again while that fails; of the first ones, again only if it was killed.

        Returns the last `Hello`.
        """
        wait_s, logged, hello = RESTART_S, "", Hello(pid=0, error="the worker stops")
        while not self.closing:
            executor, hello, was_killed = await self._start_one()
            if executor is not None or (is_first and not was_killed):
                break
            if hello.error != logged and not self.closing:
                self._log(f"no executor could be started: {hello.error}")
                logged = hello.error
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, MAX_RESTART_S)
        return hello

    def start_more(self) -> None:
        """Start one more executor, retrying until that succeeds."""
        self.track(asyncio.create_task(self._start_replacement()))

    def replace(self, executor: ExecutorHandle, *, grace_s: float) -> None:
        """Drain an executor and start another; kill it when its jobs have ended, or after a grace period."""
        if not (executor.is_draining or executor.is_isolated or executor.is_being_replaced):
            self.start_more()
        executor.is_draining = True
        self.take_back(executor)
        self.track(asyncio.create_task(self._kill_after_grace(executor, grace_s)))
        self.notify_change()

    async def _kill_after_grace(self, executor: ExecutorHandle, grace_s: float) -> None:
        await self.wait_until(lambda: not executor.jobs, grace_s)
        executor.kill()

    def recycle(self, executor: ExecutorHandle) -> None:
        """Start another executor, and when that is ready drain this one."""
        if not (executor.is_being_replaced or executor.is_draining or executor.is_isolated):
            executor.is_being_replaced = True
            self.track(asyncio.create_task(self._recycle_now(executor)))

    async def _recycle_now(self, executor: ExecutorHandle) -> None:
        await self._start_replacement()
        if not self.closing:
            await self.drain(executor)

    async def drain(self, executor: ExecutorHandle) -> None:
        """Give an executor no more jobs, and stop it when its jobs have ended."""
        executor.is_draining = True
        await self.wait_until(lambda: not executor.jobs or executor not in self._executors)
        executor.send(Stop())
        await self.wait_until(lambda: executor not in self._executors, EXIT_WAIT_S)
        executor.kill()

    async def reload(self) -> bool:
        """Replace all executors by new ones; False, with nothing changed, if a new one fails to start."""
        old = [
            one
            for one in self._executors
            if not (one.is_draining or one.is_isolated or one.is_being_replaced)
        ]
        if not old:
            # Others are being started, with the new code.
            return True
        first, *others = old
        first.is_being_replaced = True
        if (await self._start_one()).executor is None:
            first.is_being_replaced = False
            if first not in self._executors:
                # It has ended meanwhile, and was not replaced.
                self.start_more()
            return False
        self.track(asyncio.create_task(self.drain(first)))
        for executor in others:
            self.recycle(executor)
        return True

    async def wait_until(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until a condition holds, checking it after each message and each end of an executor."""
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    await self.wait_for_change()
        except TimeoutError:
            pass

    async def wait_for_change(self) -> None:
        """Wait for the next message or end of an executor."""
        self._changed.clear()
        await self._changed.wait()

    def notify_change(self) -> None:
        """Wake up `wait_until` to check its condition again."""
        self._changed.set()

    def capacity(self, mode: ExecutionMode) -> Capacity:
        """How many jobs of an execution mode may be claimed now."""
        return total_capacity(self.durations, (executor.capacity(mode) for executor in self._executors))

    def slow_slots(self, mode: ExecutionMode) -> dict[str, float]:
        """How many slots of an execution mode each tenant has with jobs that are not short."""
        now_s, found = monotonic_s(), dict[str, float]()
        for held in self.held():
            job, ran_s = held.job, now_s - held.started_s if held.started_s else 0.0
            if held.mode == mode and self.durations.is_slow(job.task, ran_s):
                slots = self.durations.slots_of(job.tenant, job.task)
                found[job.tenant] = found.get(job.tenant, 0.0) + slots
        return found

    def occupants(self, mode: ExecutionMode) -> list[HeldJob]:
        """The jobs that have all slots of a mode, if each has been running for a while; the oldest first."""
        found = [one.occupants(mode) for one in self._executors if one.can_take_jobs]
        running = sorted((held for some in found for held in some), key=lambda held: held.started_s)
        is_long = running and running[-1].started_s < monotonic_s() - BLOCKED_S
        return running if is_long and all(found) else []

    def is_full(self) -> bool:
        """Whether jobs are held here, and no executor can take more."""
        return bool(self.held()) and all(executor.is_full() for executor in self._executors)

    @property
    def executors(self) -> list[ExecutorHandle]:
        """The executors that are ready."""
        return list(self._executors)

    def held(self) -> list[HeldJob]:
        """All jobs of all executors."""
        return [held for executor in self._executors for held in executor.jobs.values()]

    def running(self, least_s: float) -> list[HeldJob]:
        """The jobs that have been running for at least so long."""
        since_s = monotonic_s() - least_s
        return [held for held in self.held() if held.started_s and held.started_s <= since_s]

    def dispatch(self, jobs: Sequence[HeldJob]) -> list[HeldJob]:
        """Deliver jobs to the executors; returns them if no executor can take jobs, as all have ended."""
        return deliver_jobs(jobs, [one for one in self._executors if one.can_take_jobs])

    def redispatch(self, jobs: Sequence[HeldJob], *, excluding: ExecutorHandle | None) -> list[HeldJob]:
        """Deliver jobs that one executor has returned to others with capacity; returns the rest."""
        others = [one for one in self._executors if one.can_take_jobs and one is not excluding]
        return deliver_jobs(jobs, others, only_fitting=True)

    async def start_isolated(self) -> ExecutorHandle | None:
        """Start an executor for suspects; None, with an entry in the log, if that failed."""
        started = await self._start_one(is_isolated=True)
        if started.executor is None and not self.closing:
            self._log(f"no executor for suspects could be started: {started.hello.error}")
        return started.executor

    def has_executor(self, executor: ExecutorHandle) -> bool:
        """Whether an executor still runs."""
        return executor in self._executors

    def stop_executor(self, executor: ExecutorHandle) -> None:
        """Have an executor exit when its jobs have ended."""
        executor.is_draining = True
        # A thread that a handler has started may keep it from exiting.
        self.track(asyncio.create_task(self.drain(executor)))

    def update_record(self, job: Job, queue_index: int) -> None:
        """Replace the record of a job, in the executor that has it."""
        for executor in self._executors:
            executor.update_record((queue_index, job.id), job)

    def has_claim(self, key: Key, claim: int) -> bool:
        """Whether an executor has a job under this claim."""
        return any((held := m.jobs.get(key)) and held.job.claim == claim for m in self._executors)

    def send(self, key: Key, message: Message) -> None:
        """Send a message to the executor that has a job."""
        for executor in self._executors:
            if key in executor.jobs:
                executor.send(message)

    def take_back(self, executor: ExecutorHandle, jobs: Sequence[HeldJob] | None = None) -> None:
        """Take those of these jobs, or of all, that have not started from an executor; see `on_returned`."""
        taken, started = executor.take_unstarted(list(executor.jobs.values()) if jobs is None else jobs)
        self._on_events(executor, ExecutorEvents({}, [held for held in started if held.job.timeout_ms]))
        if taken:
            self.on_returned(taken, executor)
        self._changed.set()

    def take_back_all(self) -> None:
        """Take the jobs that have not started from all executors."""
        for executor in self._executors:
            self.take_back(executor)

    def track(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to an asyncio task until it is done."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def kill(self) -> None:
        """Kill all executors, and start no more; the jobs of these are not suspects."""
        self.closing = True
        for executor in self._executors:
            executor.is_draining = True
            executor.kill()
        for process in self._importing:
            process.kill()

    async def stop(self) -> None:
        """Stop all executors, and wait until they have exited."""
        self._stopping = self.closing = True
        for process in self._importing:
            process.kill()
        for executor in self._executors:
            executor.send(Stop())
        for executor in list(self._executors):
            await _wait_or_kill(executor.process)
        for task in self._running:
            task.cancel()


async def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has exited, and kill it if that takes long."""
    try:
        await asyncio.to_thread(process.wait, STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)


def _close_when_ended(process: subprocess.Popen[bytes], transport: asyncio.Transport) -> None:
    """Close the connection to an executor when its process ends, also if a child of it has the socket."""
    loop = asyncio.get_running_loop()
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        # Not on Linux: the end of the socket tells.
        return

    def on_ended() -> None:
        loop.remove_reader(ended)
        os.close(ended)
        transport.abort()

    loop.add_reader(ended, on_ended)
