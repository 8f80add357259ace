"""An executor: a process that imports the user's code and runs it.

It reads jobs from the socket that it inherits, runs functions in threads and coroutines on an event loop, and
sends the answers back. It holds no lease and commits nothing: if it crashes, its supervisor knows which jobs
it had. It exits with its supervisor.
"""

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core import commands as c
from ...core.errors import BadInput, HoldfastError, NotFound
from ...core.job import Code
from ...engine import joblog
from ...queue.addresses import shown_url
from ...queue.aio import AsyncClaimedJob, AsyncQueue
from ...queue.answers import trimmed
from ...queue.base import BaseQueue
from ...queue.connect import connect
from ...queue.hooks import Hooks
from ...queue.loop_thread import Wait, wait_on
from ...queue.queue import ClaimedJob
from ...queue.running import JobLogFilter, as_error, run, run_async
from ...queue.stacks import handler_stack, thread_stack
from ...queue.task import Task
from ...store.common.clock import monotonic_s, system_clock
from ..files import project_files
from ..logs import configure
from ..loop_watch import LoopWatch, loop_blocker
from ..messages import (
    HEAD,
    Begin,
    CancelJob,
    CommandReply,
    ExecutorMessage,
    Hello,
    JobEnded,
    JobStack,
    JobStarted,
    Ping,
    Pong,
    QueueInfo,
    RunJobs,
    ShowStack,
    Stop,
    SupervisorMessage,
    decode_supervisor_message,
)
from ..options import HANDLERS_NAME, SERVED_STORE
from ..shared_files import StartLocks, write_when_asked
from .job_buffer import BufferedJob, JobBuffer, StoredTask, make_returned
from .session import Sender, SupervisedSession, exit_broken, exit_orphaned
from .stored_handlers import HandlerContexts

log = logging.getLogger("holdfast")


class RunningJob(ClaimedJob):
    """A job that runs in this executor. The supervisor has its lease and its record."""

    # The position of its queue, and its number; see `RunJobs`.
    queue_index = number = 0
    brings_record = False


class AsyncRunningJob(AsyncClaimedJob):
    """A job of an `AsyncQueue` that runs in this executor."""

    # The position of its queue, and its number; see `RunJobs`.
    queue_index = number = 0
    brings_record = False


ExecutorJob = RunningJob | AsyncRunningJob


class Executor:
    """The threads and the event loop of this process, and the socket to its supervisor."""

    def __init__(self, sock: socket.socket, locks: StartLocks, begin: Begin) -> None:
        self._socket, self._locks, self._begin = sock, locks, begin
        # The jobs of functions and batches, and those of stored handlers. Each has threads of its own.
        self._buffer, self._handler_buffer = JobBuffer(), JobBuffer()
        self._running: dict[tuple[int, int], ExecutorJob] = {}
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._run_loop, name="loop", daemon=True)
        self._sender = Sender(sock, self._loop)
        # The jobs that run on the event loop, or wait there to start.
        self._coroutines: dict[asyncio.Task[None], BufferedJob] = {}
        # The task of the last job that has started on the loop.
        self._last_task: Task[..., Any] | StoredTask | None = None
        self._loop_watch = LoopWatch(self._loop)
        # The contexts of stored handlers, if there are any.
        self._contexts: HandlerContexts | None = None

    def run(self) -> None:
        """Send `Hello`, then run jobs until the supervisor sends `Stop` or ends."""
        self._loop_thread.start()
        began_ms = system_clock()
        self._queues: list[BaseQueue] = []
        try:
            self._queues = [find_queue(name, self._begin.stores) for name in self._begin.names]
            self._open_contexts()
            for queue in self._queues:
                self._run_hooks(queue, Hooks.start)
        except Exception as error:
            self._stop_hooks()
            self._sender.send([_failure(error, began_ms)])
            return
        # `dictConfig` disables existing loggers by default, and with them the log of failed jobs.
        joblog.LOG.disabled = False
        configure(self._begin.log, JobLogFilter())
        self._job_classes = [_job_class(queue) for queue in self._queues]
        self._sessions = [
            SupervisedSession(queue._make_store, self._sender.send, queue_index=queue_index)
            for queue_index, queue in enumerate(self._queues)
        ]
        for queue, session in zip(self._queues, self._sessions, strict=True):
            queue._session = session  # type: ignore[assignment]
        known = tuple(self._describe(queue_index) for queue_index in range(len(self._queues)))
        loop_thread, files = self._loop_thread.ident or 0, project_files(began_ms)
        hello = Hello(pid=os.getpid(), loop_thread=loop_thread, queues=known, files=files)
        self._sender.send([hello])
        workers = self._make_threads(self._buffer, self._begin.threads, "job")
        workers += self._make_threads(self._handler_buffer, self._begin.handler_slots, "handler")
        for worker in workers:
            worker.start()
        self._read_messages()
        self._buffer.close()
        self._handler_buffer.close()
        for worker in workers:
            worker.join()
        asyncio.run_coroutine_threadsafe(self._wait_for_coroutines(), self._loop).result()
        if self._contexts is not None:
            self._contexts.close()
        self._stop_hooks()

    def _run_hooks(self, queue: BaseQueue, run: Callable[[Hooks, Wait], None]) -> None:
        """Run hooks while no supervisor answers: what they ask of the queue goes to the store."""
        if queue.hooks is not None:
            try:
                run(queue.hooks, self._run_awaitable)
            except (SystemExit, KeyboardInterrupt) as error:
                # It would end this process without a word about the hook.
                raise RuntimeError(f"a hook raised {error!r}") from error
        session, queue._session = queue._session, None
        if session is not None:
            session.close()

    def _stop_hooks(self) -> None:
        for queue in reversed(self._queues):
            queue._session = None
            try:
                self._run_hooks(queue, Hooks.stop)
            except Exception as error:
                log.error("%s: a hook of on_stop failed", shown_url(queue.url), exc_info=trimmed(error))

    def _open_contexts(self) -> None:
        for queue_index, name in enumerate(self._begin.names):
            if name.startswith(HANDLERS_NAME):
                if self._contexts is None:
                    self._contexts = HandlerContexts(self._begin, self._start_jobs, self._make_message)
                self._contexts.open(self._queues[queue_index], queue_index)

    def _describe(self, queue_index: int) -> QueueInfo:
        stored = self._contexts.describe(queue_index) if self._contexts else None
        return stored or _describe_queue(self._queues[queue_index])

    def _make_threads(self, buffer: JobBuffer, count: int, name: str) -> list[threading.Thread]:
        return [
            threading.Thread(target=self._run_or_exit, args=(buffer,), name=f"{name}-{n}")
            for n in range(count)
        ]

    def _run_loop(self) -> None:
        """Run the event loop, again after `sys.exit` in a task of asyncio, or a handler's `loop.stop()`."""
        while True:
            try:
                self._loop.run_forever()
            except BaseException:
                # The coroutine that waits for the task gets the same.
                continue

    def _read_messages(self) -> None:
        with self._socket.makefile("rb") as stream, suppress(ConnectionError):
            while head := stream.read(HEAD.size):
                message = decode_supervisor_message(stream.read(HEAD.unpack(head)[0]))
                if isinstance(message, Stop):
                    return
                self._on_message(message)
        exit_orphaned()

    def _on_message(self, message: SupervisorMessage) -> None:
        if isinstance(message, RunJobs):
            self._on_run_jobs(message)
        elif isinstance(message, CommandReply):
            self._sessions[message.queue_index].on_reply(message)
        elif isinstance(message, CancelJob):
            if job := self._running.get((message.queue_index, message.job.id)):
                job._lease.check_record(message.job)
                if self._contexts is not None:
                    self._contexts.cancel((message.queue_index, message.job.id))
        elif isinstance(message, ShowStack):
            self._sender.send([JobStack(number=message.number, stack=self._find_stack(message))])
        elif isinstance(message, Ping):
            dropped = self._contexts.drop_taken(self._locks.is_taken) if self._contexts else []
            self._sender.send([self._make_pong(), *([make_returned(dropped)] if dropped else [])])

    def _on_run_jobs(self, message: RunJobs) -> None:
        queue_index, numbered = message.queue_index, enumerate(message.jobs, message.first_number)
        if self._contexts and (stored := self._contexts.stored.get(queue_index)):
            self._handler_buffer.put(
                [BufferedJob(one, queue_index, n, stored.task_of(one.job)) for n, one in numbered]
            )
            return
        known = self._queues[queue_index].tasks
        tasks = {name: known.get(name) for name in {one.job.task for one in message.jobs}}
        items = [BufferedJob(one, queue_index, n, tasks[one.job.task]) for n, one in numbered]
        on_loop = {name for name, task in tasks.items() if _needs_no_thread(task)}
        if not on_loop:
            self._buffer.put(items)
            return
        self._buffer.put([item for item in items if item.claimed.job.task not in on_loop])
        self._loop.call_soon_threadsafe(
            self._start_coroutines, [item for item in items if item.claimed.job.task in on_loop]
        )

    # Functions and batches, in threads

    def _run_or_exit(self, buffer: JobBuffer) -> None:
        try:
            self._run_thread(buffer)
        except BaseException:
            exit_broken()

    def _run_thread(self, buffer: JobBuffer) -> None:
        # Messages of this thread that are sent together with the start of its next job.
        unsent: list[ExecutorMessage] = []
        while taken := buffer.take(wait=False) or self._wait_for_jobs(buffer, unsent):
            if isinstance(task := taken[0].task, StoredTask):
                assert self._contexts is not None
                # Before its handler is looked up, which may wait for the store.
                self._send_all(unsent)
                self._contexts.run(taken, unsent)
                continue
            if jobs := self._start_jobs(taken, unsent):
                outcomes = self._run_jobs(task, jobs)
                for job, outcome in zip(jobs, outcomes, strict=True):
                    unsent.append(self._make_ended(job, outcome))

    def _wait_for_jobs(self, buffer: JobBuffer, unsent: list[ExecutorMessage]) -> list[BufferedJob]:
        self._send_all(unsent)
        return buffer.take(wait=True)

    def _send_all(self, unsent: list[ExecutorMessage]) -> None:
        if unsent:
            self._sender.send(unsent)
            unsent.clear()

    def _run_jobs(self, task: Task[..., Any] | None, jobs: list[ExecutorJob]) -> list[Any]:
        try:
            return run(task or self._find_task(jobs[0]), jobs, self._run_awaitable)
        except BaseException as error:
            # Such as SystemExit of a handler: the job must be answered all the same.
            return [as_error(error)] * len(jobs)

    def _find_task(self, job: ExecutorJob) -> Task[..., Any]:
        return self._queues[job.queue_index]._find_task(job.task)

    def _run_awaitable(self, result: Any) -> Any:
        return wait_on(self._loop, result)

    # Coroutines, on the event loop

    def _start_coroutines(self, items: list[BufferedJob]) -> None:
        for item in items:
            task = self._loop.create_task(self._run(item))
            self._coroutines[task] = item
            task.add_done_callback(self._coroutines.pop)

    async def _run(self, item: BufferedJob) -> None:
        job = None
        try:
            if (job := self._start_on_loop(item)) is None:
                return
            outcome = await run_async(self._find_task(job), job)
        except BaseException as error:
            if job is None:
                exit_broken()
            outcome = as_error(error)
        self._sender.put_on_loop(self._make_ended(job, outcome))

    def _start_on_loop(self, item: BufferedJob) -> ExecutorJob | None:
        """Lock a job, in the first step of its coroutine: one that starts before it may block the loop."""
        if not self._locks.try_lock(item.number):
            self._sender.put_on_loop(make_returned([item]))
            return None
        if item.task is not self._last_task:
            # It may hold the interpreter lock, and no thread could send the answers of jobs that have ended.
            self._sender.flush()
            self._last_task = item.task
        return self._make_job(item)

    def _make_pong(self) -> Pong:
        """Whether the loop has run since the last `Ping`; if not, which handler blocks it."""
        if not (blocked_s := self._loop_watch.blocked_s()):
            return Pong()
        task = asyncio.current_task(self._loop)
        item = self._coroutines.get(task) if task is not None else None
        blocker = loop_blocker(task, None if item is None else item.claimed.job)
        return Pong(blocked_s=blocked_s, blocker=blocker, stack=thread_stack(self._loop_thread.ident or 0))

    def _find_stack(self, asked: ShowStack) -> str:
        """Where the handler of a job is."""
        job = self._running.get((asked.queue_index, asked.job_id))
        if job is None or job.number != asked.number or not job.thread:
            return ""
        running = (task for task, item in self._coroutines.copy().items() if item.number == asked.number)
        return handler_stack(job.thread, self._loop_thread.ident or 0, next(running, None))

    async def _wait_for_coroutines(self) -> None:
        while self._coroutines:
            await asyncio.wait(list(self._coroutines))
        self._sender.flush()

    # Both

    def _start_jobs(self, items: Sequence[BufferedJob], unsent: list[ExecutorMessage]) -> list[ExecutorJob]:
        """Lock jobs, and send the unsent messages; returns those that may start."""
        jobs: list[ExecutorJob] = []
        for item in items:
            if self._locks.try_lock(item.number):
                jobs.append(job := self._make_job(item))
                # At once if the supervisor may have to end it: its handler may hold the interpreter lock.
                if job.record.timeout_ms and (start := self._sender.take_start(item.number)):
                    unsent.append(start)
            else:
                unsent.append(make_returned([item]))
        if jobs:
            self._send_all(unsent)
        return jobs

    def _make_job(self, item: BufferedJob) -> ExecutorJob:
        queue_index = item.queue_index
        job: ExecutorJob = self._job_classes[queue_index](
            self._queues[queue_index], item.claimed, 1, renew=False
        )
        job.queue_index, job.number = queue_index, item.number
        job._lease.started_s = now_s = monotonic_s()
        self._running[item.key] = job
        self._sender.put_start(
            JobStarted(
                job_id=job.id,
                number=item.number,
                started_s=now_s,
                thread=threading.get_ident(),
                queue_index=queue_index,
            )
        )
        return job

    def _make_ended(self, job: ExecutorJob, outcome: Any) -> JobEnded:
        """The message about a job that has ended, with its answer."""
        try:
            ask = job._conclude(outcome)
        except HoldfastError:
            # The claim was lost just now.
            ask = None
        except Exception as error:
            # Such as one of an exception or a result whose own methods raise.
            ask = job._answer(Code.ERROR, error=f"its end could not be told: {type(error).__name__}")
        answer: Any = None if ask is None else ask.asked
        return self._make_message(job, answer, monotonic_s() - job.started_s)

    def _make_message(self, job: ExecutorJob, answer: c.Answer | None, duration_s: float) -> JobEnded:
        record = job.record
        self._sender.take_start(job.number)
        self._running.pop((job.queue_index, record.id), None)
        return JobEnded(
            job_id=record.id,
            claim=record.claim,
            duration_s=duration_s,
            answer=answer,
            queue_index=job.queue_index,
        )


def _failure(error: Exception, began_ms: int) -> Hello:
    """The `Hello` of an executor that cannot start, with the reason."""
    files = project_files(began_ms, error)
    text = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    is_theirs = trimmed(error).__traceback__ is not None or isinstance(error, SyntaxError)
    trace = "".join(traceback.format_exception(error)) if is_theirs else ""
    return Hello(pid=os.getpid(), error=text, trace=trace, files=files)


def _describe_queue(queue: BaseQueue) -> QueueInfo:
    tasks = queue.tasks
    return QueueInfo(
        url=queue.url,
        tenant=queue.tenant,
        tasks=tuple(tasks),
        coroutines=tuple(name for name, task in tasks.items() if _needs_no_thread(task)),
        batches={name: task.handling.batch for name, task in tasks.items() if task.handling.batch},
        defaults={name: task.defaults for name, task in tasks.items()},
        declared=tuple(queue.declared.values()),
    )


def _job_class(queue: BaseQueue) -> Any:
    return AsyncRunningJob if isinstance(queue, AsyncQueue) else RunningJob


def _needs_no_thread(task: Task[..., Any] | None) -> bool:
    return task is not None and task.handling.is_coroutine and not task.handling.batch


def find_queue(name: str, stores: Sequence[str] = ()) -> BaseQueue:
    """Import and return the queue named by `module:queue`; that of stored handlers has no module."""
    module_name, _, attribute = name.partition(":")
    if module_name == HANDLERS_NAME:
        return connect(stores[int(attribute)])
    if sys.path[0] != str(Path.cwd()):
        sys.path.insert(0, str(Path.cwd()))
    found = importlib.import_module(module_name)
    for part in (attribute or "queue").split("."):
        if not hasattr(found, part):
            raise NotFound(part, f"in {module_name}")
        found = getattr(found, part)
    if not isinstance(found, BaseQueue):
        raise BadInput(name, type(found).__name__, needed="a queue made by holdfast.connect")
    return found


def main() -> None:
    """Run an executor on the descriptors that it has inherited; see `EXECUTOR_PROGRAM`."""
    # The supervisor handles signals, and sends `Stop`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    fd, locks_fd, dump_fd = map(int, sys.argv[2:5])
    # Only this process has the socket: the supervisor learns of its death by the end of it.
    os.set_inheritable(fd, False)
    os.set_inheritable(locks_fd, False)
    os.set_inheritable(dump_fd, False)
    write_when_asked(dump_fd)
    sock = socket.socket(fileno=fd)
    os.register_at_fork(after_in_child=lambda: _let_go(sock))
    # The worker has its options now. It may have started this process before.
    begin = _read_begin(sock)
    os.environ.pop(SERVED_STORE, None)
    if begin.reload:
        # Bytecode compiled within a second of a change would be taken for current.
        os.environ["PYTHONDONTWRITEBYTECODE"], sys.dont_write_bytecode = "1", True
    Executor(sock, StartLocks(locks_fd), begin).run()


def _read_begin(sock: socket.socket) -> Begin:
    """Wait until the supervisor has parsed its options. It sends no other message before `Hello`."""
    with sock.makefile("rb") as stream:
        if not (head := stream.read(HEAD.size)):
            exit_orphaned()
        begin = decode_supervisor_message(stream.read(HEAD.unpack(head)[0]))
    assert isinstance(begin, Begin)
    return begin


def _ignore(_number: int, _frame: object) -> None:
    """A handler of SIGTERM. Unlike SIG_IGN, programs that a handler starts do not inherit it."""


def _let_go(sock: socket.socket) -> None:
    """Make a process that a handler has forked one of its own, which SIGTERM ends."""
    if sock.fileno() >= 0:
        os.close(sock.detach())
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
