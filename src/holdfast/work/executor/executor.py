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

from msgspec.structs import replace

from ...core import commands as c
from ...core.errors import BadInput, HoldfastError, NotFound
from ...queue.aio import AsyncClaimedJob, AsyncQueue
from ...queue.answers import trimmed
from ...queue.base import BaseQueue
from ...queue.claimed import Holding
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
    Left,
    Ran,
    Returned,
    Revoke,
    Run,
    Stop,
    Told,
    read_down,
)
from .desk import Desk, Item
from .line import SupervisedLine
from .mouth import Mouth, orphaned

PR_SET_PDEATHSIG = 1


class Running:
    """A job that runs here, and the number of its queue."""

    def __init__(self, at: int, job: Holding) -> None:
        self.at, self.job = at, job

    @property
    def key(self) -> tuple[int, int]:
        """How the supervisor calls it."""
        return self.at, self.job.id


class Executor:
    """One process's threads, its loop, and the wire to its supervisor."""

    def __init__(self, wire: socket.socket, names: Sequence[str], threads: int) -> None:
        self._wire, self._names, self._threads = wire, names, threads
        self._mouth = Mouth(wire)
        self._desk = Desk(self._batch_of)
        self._running: dict[tuple[int, int], Running] = {}
        self._loop = asyncio.new_event_loop()
        # Jobs that wait for the loop.
        self._arrived: deque[Item] = deque()
        self._coroutines: set[asyncio.Task[None]] = set()

    def _task(self, at: int, name: str) -> Task[..., Any] | None:
        return self._queues[at].tasks.get(name)

    def _batch_of(self, at: int, name: str) -> int:
        task = self._task(at, name)
        return task.handling.batch if task is not None else 0

    def run(self) -> None:
        """Say hello, then do what is asked until the supervisor says stop or goes."""
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        try:
            self._queues = [find_queue(name) for name in self._names]
        except Exception as error:
            self._mouth.send(_failed(error))
            return
        configure_executor()
        self._lines = [
            SupervisedLine(queue._make_store, self._mouth.send, at=at)
            for at, queue in enumerate(self._queues)
        ]
        for queue, line in zip(self._queues, self._lines, strict=True):
            queue._line = line  # type: ignore[assignment]
        known = tuple(_found(queue) for queue in self._queues)
        self._mouth.send(Hello(pid=os.getpid(), queues=known, files=project_files()))
        workers = [threading.Thread(target=self._work, name=f"job-{n}") for n in range(self._threads)]
        for worker in workers:
            worker.start()
        self._listen()
        self._desk.close()
        for worker in workers:
            worker.join()
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()

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
            number, by_s = message.number, message.begin_by_s
            self._take([Item(message.at, claimed, number, by_s) for claimed in message.jobs])
        elif isinstance(message, Told):
            self._lines[message.at].told(message)
        elif isinstance(message, Cancelled):
            if running := self._running.get((message.at, message.job.id)):
                running.job._lease.seen(message.job)
        elif isinstance(message, Revoke):
            waiting = [*self._desk.clear(), *self._arrived_now()]
            self._mouth.send(Returned(jobs=tuple((item.key, item.number) for item in waiting)))

    def _take(self, items: list[Item]) -> None:
        tasks = [self._task(item.at, item.claimed.job.task) for item in items]
        threaded = [item for item, task in zip(items, tasks, strict=True) if not _needs_no_thread(task)]
        if threaded:
            self._desk.put(threaded)
        if len(threaded) < len(items):
            self._arrived.extend(
                item for item, task in zip(items, tasks, strict=True) if _needs_no_thread(task)
            )
            self._loop.call_soon_threadsafe(self._begin)

    # Functions, and batches, in threads

    def _work(self) -> None:
        while taken := self._desk.take(wait=False) or self._wait():
            jobs = self._start(taken)
            if not jobs:
                continue
            try:
                task = self._queues[jobs[0].at]._known(jobs[0].job.task)
                outcomes = run(task, [running.job for running in jobs], self._wait_for)
            except BaseException as error:
                # Such as sys.exit in a handler: whatever it raised, the job must be answered.
                outcomes = [as_error(error)] * len(jobs)
            for running, outcome in zip(jobs, outcomes, strict=True):
                self._answer(running, outcome)

    def _wait(self) -> list[Item]:
        self._mouth.flush()
        return self._desk.take(wait=True)

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
        for running in self._start(self._arrived_now()):
            task = self._loop.create_task(self._run(running))
            self._coroutines.add(task)
            task.add_done_callback(self._coroutines.discard)

    async def _run(self, running: Running) -> None:
        try:
            outcome = await run_async(self._queues[running.at]._known(running.job.task), running.job)
        except BaseException as error:
            outcome = as_error(error)
        self._answer(running, outcome)
        # With the answers of all others that end in this turn of the loop.
        self._loop.call_soon(self._mouth.flush)

    async def _ended(self) -> None:
        """All coroutines have ended."""
        while others := self._coroutines - {asyncio.current_task()}:
            await asyncio.wait(others)
        self._mouth.flush()

    # Both

    def _start(self, items: list[Item]) -> list[Running]:
        """Tell the supervisor that jobs begin; those that still may.

        Looked at after it was told: a thread may be held up between the two, and the supervisor takes what
        has not begun in time for its own again.
        """
        jobs = [self._started(item) for item in items]
        self._mouth.flush()
        now_s = monotonic_s()
        late = [item for item in items if item.begin_by_s < now_s]
        if late:
            keys = {item.key for item in late}
            for key in keys:
                self._running.pop(key, None)
            self._mouth.send(Returned(jobs=tuple((item.key, item.number) for item in late)))
            jobs = [running for running in jobs if running.key not in keys]
        return jobs

    def _started(self, item: Item) -> Running:
        queue = self._queues[item.at]
        kind: Any = AsyncClaimedJob if isinstance(queue, AsyncQueue) else ClaimedJob
        running = Running(item.at, kind(queue, item.claimed, lease_ms=1, renew=False))
        running.job._lease.start()
        self._running[running.key] = running
        self._mouth.note(Began(job_id=item.claimed.job.id, number=item.number, at=item.at))
        return running

    def _answer(self, running: Running, outcome: Any) -> None:
        job = running.job
        self._running.pop(running.key, None)
        try:
            ask = job._conclude(outcome)
        except HoldfastError:
            # Lost this very moment.
            ask = None
        if ask is None:
            self._mouth.note(Left(hold=job._lease.hold, at=running.at))
            return
        assert isinstance(ask.asked, c.Answer)
        # The supervisor has the record, as last heard of.
        self._mouth.note(Ran(answer=replace(ask.asked, held=None), at=running.at))


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
