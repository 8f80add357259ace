"""An executor: a process that imports what users wrote, and runs it.

    python -m holdfast.work.executor.executor FD THREADS MODULE:QUEUE …

It reads jobs from the socket that it inherits, runs functions in threads and coroutines on a loop, and
sends their answers back. It holds no lease and commits nothing: whatever happens to it, its supervisor
knows what it had. It ends with its supervisor.
"""

import asyncio
import ctypes
import importlib
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

from ...core.errors import BadInput, HoldfastError, NotFound
from ...queue.aio import AsyncClaimedJob, AsyncQueue
from ...queue.answers import trimmed
from ...queue.base import BaseQueue
from ...queue.queue import ClaimedJob
from ...queue.running import as_error, run, run_async
from ...queue.task import Task
from ...store.common.clock import monotonic_s
from ..files import project_files
from ..logs import configure_executor
from ..messages import (
    HEAD,
    Began,
    Cancelled,
    DownMessage,
    Found,
    Hello,
    Ran,
    Returned,
    Revoke,
    Run,
    Stop,
    Told,
    UpMessage,
    read_down,
)
from .desk import Desk, HandOver, Item, returned
from .sender import Sender, orphaned
from .session import SupervisedSession

PR_SET_PDEATHSIG = 1


class RunningJob(ClaimedJob):
    """A job that runs here. `at` is the number of its queue; the supervisor has its lease and its record."""

    at = 0
    brings_record = False


class AsyncRunningJob(AsyncClaimedJob):
    """The same of an `AsyncQueue`."""

    at = 0
    brings_record = False


ExecutorJob = RunningJob | AsyncRunningJob


class Executor:
    """One process's threads, its loop, and the wire to its supervisor."""

    def __init__(self, wire: socket.socket, names: Sequence[str], threads: int) -> None:
        self._wire, self._names, self._threads = wire, names, threads
        self._sender = Sender(wire)
        self._desk = Desk()
        self._running: dict[tuple[int, int], ExecutorJob] = {}
        self._loop = asyncio.new_event_loop()
        # Jobs that wait for the loop, and what is to be told of those that have ended on it.
        self._arrived: deque[Item] = deque()
        self._ended: list[UpMessage] = []
        self._coroutines: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Say hello, then do what is asked until the supervisor says stop or goes."""
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        try:
            self._queues = [find_queue(name) for name in self._names]
        except Exception as error:
            self._sender.send([_failed(error)])
            return
        configure_executor()
        self._kinds = [_kind(queue) for queue in self._queues]
        self._sessions = [
            SupervisedSession(queue._make_store, self._sender.send, at=at)
            for at, queue in enumerate(self._queues)
        ]
        for queue, session in zip(self._queues, self._sessions, strict=True):
            queue._session = session  # type: ignore[assignment]
        known = tuple(_found(queue) for queue in self._queues)
        self._sender.send([Hello(pid=os.getpid(), queues=known, files=project_files())])
        workers = [threading.Thread(target=self._work, name=f"job-{n}") for n in range(self._threads)]
        for worker in workers:
            worker.start()
        self._listen()
        self._desk.close()
        for worker in workers:
            worker.join()
        asyncio.run_coroutine_threadsafe(self._wait_for_coroutines(), self._loop).result()

    def _listen(self) -> None:
        with self._wire.makefile("rb") as stream, suppress(ConnectionError):
            while head := stream.read(HEAD.size):
                message = read_down(stream.read(HEAD.unpack(head)[0]))
                if isinstance(message, Stop):
                    return
                self._hear(message)
        orphaned()

    def _hear(self, message: DownMessage) -> None:
        if isinstance(message, Run):
            self._take(message)
        elif isinstance(message, Told):
            self._sessions[message.at].on_reply(message)
        elif isinstance(message, Cancelled):
            if job := self._running.get((message.at, message.job.id)):
                job._lease.check_record(message.job)
        elif isinstance(message, Revoke):
            waiting = [*self._desk.clear(), *self._arrived_now()]
            self._sender.send([Returned(jobs=returned(waiting))])

    def _take(self, message: Run) -> None:
        known = self._queues[message.at].tasks
        given = HandOver(message.at, message.number, message.begin_by_s)
        tasks = {name: known.get(name) for name in {one.job.task for one in message.jobs}}
        apart = {name for name, task in tasks.items() if _needs_no_thread(task)}
        items: list[Item] = [(one, given, tasks[one.job.task]) for one in message.jobs]
        if not apart:
            self._desk.put(items)
            return
        self._desk.put([item for item in items if item[0].job.task not in apart])
        self._arrived.extend([item for item in items if item[0].job.task in apart])
        self._loop.call_soon_threadsafe(self._begin)

    # Functions, and batches, in threads

    def _work(self) -> None:
        # What this thread has yet to say: it goes together with the start of its next job.
        unsent: list[UpMessage] = []
        while taken := self._desk.take(wait=False) or self._wait(unsent):
            jobs = self._start(taken, unsent)
            unsent = []
            if jobs:
                outcomes = self._outcomes(taken[0][2], jobs)
                for job, outcome in zip(jobs, outcomes, strict=True):
                    unsent.append(self._end(job, outcome))

    def _wait(self, unsent: list[UpMessage]) -> list[Item]:
        if unsent:
            self._sender.send(unsent)
            unsent.clear()
        return self._desk.take(wait=True)

    def _outcomes(self, task: Task[..., Any] | None, jobs: list[ExecutorJob]) -> list[Any]:
        try:
            return run(task or self._known(jobs[0]), jobs, self._wait_for)
        except BaseException as error:
            # Such as sys.exit in a handler: whatever it raised, the job must be answered.
            return [as_error(error)] * len(jobs)

    def _known(self, job: ExecutorJob) -> Task[..., Any]:
        return self._queues[job.at]._known(job.task)

    def _wait_for(self, result: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(result, self._loop).result()

    # Coroutines on the loop

    def _arrived_now(self) -> list[Item]:
        """Take the jobs that wait for the loop; any thread may ask, and each job is taken once."""
        items = []
        try:
            while True:
                items.append(self._arrived.popleft())
        except IndexError:
            return items

    def _begin(self) -> None:
        for job in self._start(self._arrived_now(), []):
            task = self._loop.create_task(self._run(job))
            self._coroutines.add(task)
            task.add_done_callback(self._coroutines.discard)

    async def _run(self, job: ExecutorJob) -> None:
        try:
            outcome = await run_async(self._known(job), job)
        except BaseException as error:
            outcome = as_error(error)
        if not self._ended:
            # With the answers of all others that end in this turn of the loop.
            self._loop.call_soon(self._send_ended)
        self._ended.append(self._end(job, outcome))

    def _send_ended(self) -> None:
        ended, self._ended = self._ended, []
        self._sender.send(ended)

    async def _wait_for_coroutines(self) -> None:
        while others := self._coroutines - {asyncio.current_task()}:
            await asyncio.wait(others)
        if self._ended:
            self._send_ended()

    # Both

    def _start(self, items: list[Item], unsent: list[UpMessage]) -> list[ExecutorJob]:
        """Tell the supervisor that jobs begin, after what is unsent; those that still may.

        The clock is read after it was told: a thread may be held up between the two, and the supervisor takes
        what has not begun in time for its own again.
        """
        jobs: list[ExecutorJob] = []
        for claimed, given, _ in items:
            queue, job_id = self._queues[given.at], claimed.job.id
            job = self._kinds[given.at](queue, claimed, 1, renew=False)
            job.at = given.at
            self._running[given.at, job_id] = job
            jobs.append(job)
            unsent.append(Began(job_id=job_id, number=given.number, at=given.at))
        if unsent:
            self._sender.send(unsent)
        now_s, is_late = monotonic_s(), False
        for job, (_, given, _) in zip(jobs, items, strict=True):
            job._lease.begun_s = now_s
            is_late = is_late or given.begin_by_s < now_s
        return self._give_back_late(items, jobs, now_s) if is_late else jobs

    def _give_back_late(self, items: list[Item], jobs: list[ExecutorJob], now_s: float) -> list[ExecutorJob]:
        late = [item for item in items if item[1].begin_by_s < now_s]
        names = returned(late)
        for key, _ in names:
            self._running.pop(key, None)
        self._sender.send([Returned(jobs=names)])
        return [job for job, item in zip(jobs, items, strict=True) if item[1].begin_by_s >= now_s]

    def _end(self, job: ExecutorJob, outcome: Any) -> Ran:
        """What the supervisor is told of a job that is done."""
        record = job.record
        self._running.pop((job.at, record.id), None)
        try:
            ask = job._conclude(outcome)
        except HoldfastError:
            # Lost this very moment.
            ask = None
        took_s = monotonic_s() - job.begun_s
        answer: Any = None if ask is None else ask.asked
        return Ran(job_id=record.id, claim=record.claim, took_s=took_s, answer=answer, at=job.at)


def _failed(error: Exception) -> Hello:
    """Why this executor cannot be."""
    files = project_files(error)
    text = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error)) if trimmed(error).__traceback__ else ""
    return Hello(pid=os.getpid(), error=text, trace=trace, files=files)


def _found(queue: BaseQueue) -> Found:
    tasks = queue.tasks
    return Found(
        url=queue.url,
        tenant=queue.tenant,
        tasks=tuple(tasks),
        coroutines=tuple(name for name, task in tasks.items() if _needs_no_thread(task)),
        batches={name: task.handling.batch for name, task in tasks.items() if task.handling.batch},
        defaults={name: task.defaults for name, task in tasks.items()},
    )


def _kind(queue: BaseQueue) -> Any:
    return AsyncRunningJob if isinstance(queue, AsyncQueue) else RunningJob


def _needs_no_thread(task: Task[..., Any] | None) -> bool:
    return task is not None and task.handling.is_coroutine and not task.handling.batch


def find_queue(name: str) -> BaseQueue:
    """The queue that `module:queue` names."""
    module_name, _, attribute = name.partition(":")
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
    """Have the kernel end this process when its supervisor ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run an executor on the socket that was inherited."""
    die_with_parent()
    # Signals are for the supervisor, which tells us.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    fd, threads, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    Executor(socket.socket(fileno=fd), names, threads).run()


if __name__ == "__main__":
    main()
