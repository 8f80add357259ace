"""An executor: a process that imports the user's code and runs it.

    python -m holdfast.work.executor.executor FD THREADS MODULE:QUEUE …

It reads jobs from the socket that it inherits, runs functions in threads and coroutines on an event loop, and
sends the answers back. It holds no lease and commits nothing: if it crashes, its supervisor knows which jobs
it had. It exits with its supervisor.
"""

import asyncio
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core import commands as c
from ...core.errors import BadInput, HoldfastError, NotFound
from ...core.job import Code
from ...queue.aio import AsyncClaimedJob, AsyncQueue
from ...queue.answers import trimmed
from ...queue.base import BaseQueue
from ...queue.connect import connect
from ...queue.queue import ClaimedJob
from ...queue.running import as_error, guarded, run, run_async
from ...queue.task import Task
from ...store.common.clock import monotonic_s, system_clock
from ..files import project_files
from ..logs import configure_executor
from ..messages import (
    HEAD,
    CancelJob,
    CommandReply,
    ExecutorMessage,
    Hello,
    JobEnded,
    JobsReturned,
    JobStarted,
    QueueInfo,
    Revoke,
    RunJobs,
    Stop,
    SupervisorMessage,
    decode_supervisor_message,
)
from .handler_contexts import HandlerContexts
from .job_buffer import BufferedJob, Delivery, JobBuffer, delivery_keys
from .sender import Sender, exit_broken, exit_orphaned
from .session import SupervisedSession
from .stored_handlers import HANDLERS_NAME, STORES_VARIABLE, StoredTask

PR_SET_PDEATHSIG = 1


class RunningJob(ClaimedJob):
    """A job that runs in this executor. The supervisor has its lease and its record."""

    queue_index = 0
    brings_record = False


class AsyncRunningJob(AsyncClaimedJob):
    """A job of an `AsyncQueue` that runs in this executor."""

    queue_index = 0
    brings_record = False


ExecutorJob = RunningJob | AsyncRunningJob


class Executor:
    """The threads and the event loop of this process, and the socket to its supervisor."""

    def __init__(self, sock: socket.socket, names: Sequence[str], threads: int) -> None:
        self._socket, self._names, self._threads = sock, names, threads
        self._sender = Sender(sock)
        self._buffer = JobBuffer()
        self._running: dict[tuple[int, int], ExecutorJob] = {}
        self._loop = asyncio.new_event_loop()
        # Jobs that wait for the event loop, and messages about those that have ended on it.
        self._arrived: deque[BufferedJob] = deque()
        self._ended: list[ExecutorMessage] = []
        self._coroutines: set[asyncio.Task[None]] = set()
        self._contexts = HandlerContexts(self._announce_start, self._make_message, self._return_jobs)

    def run(self) -> None:
        """Send `Hello`, then run jobs until the supervisor sends `Stop` or ends."""
        threading.Thread(target=self._run_loop, name="loop", daemon=True).start()
        began_ms = system_clock()
        try:
            self._queues = [find_queue(name) for name in self._names]
            for queue_index, name in enumerate(self._names):
                if name.startswith(HANDLERS_NAME):
                    self._contexts.open(self._queues[queue_index], queue_index)
        except Exception as error:
            self._sender.send([_failure(error, began_ms)])
            return
        configure_executor()
        self._job_classes = [_job_class(queue) for queue in self._queues]
        self._sessions = [
            SupervisedSession(queue._make_store, self._sender.send, queue_index=queue_index)
            for queue_index, queue in enumerate(self._queues)
        ]
        for queue, session in zip(self._queues, self._sessions, strict=True):
            queue._session = session  # type: ignore[assignment]
        known = tuple(
            self._contexts.describe(queue_index) or _describe_queue(queue)
            for queue_index, queue in enumerate(self._queues)
        )
        self._sender.send([Hello(pid=os.getpid(), queues=known, files=project_files(began_ms))])
        workers = [threading.Thread(target=self._run_or_exit, name=f"job-{n}") for n in range(self._threads)]
        for worker in workers:
            worker.start()
        self._read_messages()
        self._buffer.close()
        for worker in workers:
            worker.join()
        asyncio.run_coroutine_threadsafe(self._wait_for_coroutines(), self._loop).result()
        self._contexts.close()

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
                self._contexts.cancel((message.queue_index, message.job.id))
        elif isinstance(message, Revoke):
            self._return_jobs(
                [*self._buffer.clear(), *self._take_arrived(), *self._contexts.take_unstarted()]
            )

    def _return_jobs(self, items: list[BufferedJob]) -> None:
        self._sender.send([JobsReturned(jobs=delivery_keys(items))])

    def _on_run_jobs(self, message: RunJobs) -> None:
        if stored := self._contexts.stored.get(message.queue_index):
            delivery = Delivery(message.queue_index, message.delivery, message.start_by_s)
            self._buffer.put([(one, delivery, stored.task_of(one.job)) for one in message.jobs])
            return
        known = self._queues[message.queue_index].tasks
        delivery = Delivery(message.queue_index, message.delivery, message.start_by_s)
        tasks = {name: known.get(name) for name in {one.job.task for one in message.jobs}}
        on_loop = {name for name, task in tasks.items() if _needs_no_thread(task)}
        items: list[BufferedJob] = [(one, delivery, tasks[one.job.task]) for one in message.jobs]
        if not on_loop:
            self._buffer.put(items)
            return
        self._buffer.put([item for item in items if item[0].job.task not in on_loop])
        self._arrived.extend([item for item in items if item[0].job.task in on_loop])
        self._loop.call_soon_threadsafe(self._start_coroutines)

    # Functions and batches, in threads

    def _run_or_exit(self) -> None:
        try:
            self._run_thread()
        except BaseException:
            exit_broken()

    def _run_thread(self) -> None:
        # Messages of this thread that are sent together with the start of its next job.
        unsent: list[ExecutorMessage] = []
        while taken := self._buffer.take(wait=False) or self._wait_for_jobs(unsent):
            if isinstance(task := taken[0][2], StoredTask):
                self._contexts.run(taken, unsent)
                continue
            jobs = self._announce_start(taken, unsent)
            unsent = []
            if jobs:
                outcomes = self._run_jobs(task, jobs)
                for job, outcome in zip(jobs, outcomes, strict=True):
                    unsent.append(self._make_ended(job, outcome))

    def _wait_for_jobs(self, unsent: list[ExecutorMessage]) -> list[BufferedJob]:
        if unsent:
            self._sender.send(unsent)
            unsent.clear()
        return self._buffer.take(wait=True)

    def _run_jobs(self, task: Task[..., Any] | None, jobs: list[ExecutorJob]) -> list[Any]:
        try:
            return run(task or self._find_task(jobs[0]), jobs, self._run_awaitable)
        except BaseException as error:
            # Such as SystemExit of a handler: the job must be answered all the same.
            return [as_error(error)] * len(jobs)

    def _find_task(self, job: ExecutorJob) -> Task[..., Any]:
        return self._queues[job.queue_index]._find_task(job.task)

    def _run_awaitable(self, result: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(guarded(result), self._loop).result()

    # Coroutines, on the event loop

    def _take_arrived(self) -> list[BufferedJob]:
        """Remove and return the jobs that wait for the event loop. Safe in any thread: each is taken once."""
        items = []
        try:
            while True:
                items.append(self._arrived.popleft())
        except IndexError:
            return items

    def _start_coroutines(self) -> None:
        for job in self._announce_start(self._take_arrived(), []):
            task = self._loop.create_task(self._run(job))
            self._coroutines.add(task)
            task.add_done_callback(self._coroutines.discard)

    async def _run(self, job: ExecutorJob) -> None:
        try:
            outcome = await run_async(self._find_task(job), job)
        except BaseException as error:
            outcome = as_error(error)
        if not self._ended:
            # One message for all jobs that end in this iteration of the event loop.
            self._loop.call_soon(self._send_ended)
        self._ended.append(self._make_ended(job, outcome))

    def _send_ended(self) -> None:
        ended, self._ended = self._ended, []
        try:
            self._sender.send(ended)
        except BaseException:
            exit_broken()

    async def _wait_for_coroutines(self) -> None:
        while others := self._coroutines - {asyncio.current_task()}:
            await asyncio.wait(others)
        if self._ended:
            self._send_ended()

    # Both

    def _announce_start(self, items: list[BufferedJob], unsent: list[ExecutorMessage]) -> list[ExecutorJob]:
        """Send that jobs start, after the unsent messages; returns the jobs that may still start.

        The clock is read after sending: this thread may be suspended in between, and the supervisor takes
        back jobs that have not started in time.
        """
        jobs: list[ExecutorJob] = []
        for claimed, delivery, _ in items:
            queue, job_id = self._queues[delivery.queue_index], claimed.job.id
            job = self._job_classes[delivery.queue_index](queue, claimed, 1, renew=False)
            job.queue_index = delivery.queue_index
            self._running[delivery.queue_index, job_id] = job
            jobs.append(job)
            unsent.append(
                JobStarted(job_id=job_id, delivery=delivery.number, queue_index=delivery.queue_index)
            )
        if unsent:
            self._sender.send(unsent)
        now_s, is_late = monotonic_s(), False
        for job, (_, delivery, _) in zip(jobs, items, strict=True):
            job._lease.started_s = now_s
            is_late = is_late or delivery.start_by_s < now_s
        return self._return_late(items, jobs, now_s) if is_late else jobs

    def _return_late(
        self, items: list[BufferedJob], jobs: list[ExecutorJob], now_s: float
    ) -> list[ExecutorJob]:
        late = [item for item in items if item[1].start_by_s < now_s]
        keys = delivery_keys(late)
        for key, _ in keys:
            self._running.pop(key, None)
        self._sender.send([JobsReturned(jobs=keys)])
        return [job for job, item in zip(jobs, items, strict=True) if item[1].start_by_s >= now_s]

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
    )


def _job_class(queue: BaseQueue) -> Any:
    return AsyncRunningJob if isinstance(queue, AsyncQueue) else RunningJob


def _needs_no_thread(task: Task[..., Any] | None) -> bool:
    return task is not None and task.handling.is_coroutine and not task.handling.batch


def find_queue(name: str) -> BaseQueue:
    """Import and return the queue named by `module:queue`; that of stored handlers has no module."""
    module_name, _, attribute = name.partition(":")
    if module_name == HANDLERS_NAME:
        return connect(json.loads(os.environ[STORES_VARIABLE])[int(attribute)])
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


def die_with_parent() -> None:
    """Have the kernel kill this process when its supervisor ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run an executor on the socket that was inherited."""
    die_with_parent()
    # The supervisor handles signals, and sends `Stop`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    fd, threads, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    # Only this process has the socket: the supervisor learns of its death by the end of it.
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    os.register_at_fork(after_in_child=lambda: _let_go(sock))
    Executor(sock, names, threads).run()


def _ignore(_number: int, _frame: object) -> None:
    """A handler of SIGTERM. Unlike SIG_IGN, programs that a handler starts do not inherit it."""


def _let_go(sock: socket.socket) -> None:
    """Make a process that a handler has forked one of its own, which SIGTERM ends."""
    if sock.fileno() >= 0:
        os.close(sock.detach())
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    main()
