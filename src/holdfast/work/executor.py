"""An executor: a process that imports what users wrote, and runs it.

    python -m holdfast.work.executor FD MODULE:QUEUE …

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
from pathlib import Path
from typing import Any

from ..core import commands as c
from ..core.errors import BadInput, HoldfastError
from ..queue.aio import AsyncClaimedJob, AsyncQueue
from ..queue.base import BaseQueue
from ..queue.claimed import Holding
from ..queue.queue import ClaimedJob
from ..queue.running import as_error, run, run_async
from ..queue.task import Task
from .desk import Desk
from .line import SupervisedLine
from .messages import HEAD, Began, Cancelled, Hello, Left, Message, Ran, Run, Stop, Told, frame, read_down

PR_SET_PDEATHSIG = 1


class Executor:
    """One process's threads, its loop, and the wire to its supervisor."""

    def __init__(self, wire: socket.socket, name: str, threads: int) -> None:
        self._wire = wire
        self._name = name
        self._threads = threads
        self._desk = Desk(self._batch_of)
        self._send_lock = threading.Lock()
        self._running: dict[int, Holding] = {}
        self._loop = asyncio.new_event_loop()
        self._coroutines: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()

    def _batch_of(self, task: str) -> int:
        known = self._queue.tasks.get(task)
        return known.handling.batch if known is not None else 0

    def run(self) -> None:
        """Say hello, then do what is asked until the supervisor says stop or goes."""
        try:
            self._queue = find_queue(self._name)
        except Exception as error:
            self.send(Hello(pid=os.getpid(), error=f"{type(error).__name__}: {error}"))
            return
        self._line = SupervisedLine(self._queue._make_store, self.send)
        self._queue._line = self._line  # type: ignore[assignment]
        self.send(self._hello())
        workers = [threading.Thread(target=self._work, name=f"job-{n}") for n in range(self._threads)]
        for worker in workers:
            worker.start()
        self._listen()
        self._desk.close()
        for worker in workers:
            worker.join()
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()

    def _hello(self) -> Hello:
        tasks = self._queue.tasks
        return Hello(
            pid=os.getpid(),
            url=self._queue.url,
            tenant=self._queue.tenant,
            tasks=tuple(tasks),
            coroutines=tuple(name for name, task in tasks.items() if _needs_no_thread(task)),
            batches={name: task.handling.batch for name, task in tasks.items() if task.handling.batch},
        )

    def send(self, message: Message) -> None:
        """Say something to the supervisor."""
        data = frame(message)
        with self._send_lock:
            self._wire.sendall(data)

    def _listen(self) -> None:
        with self._wire.makefile("rb") as stream:
            while head := stream.read(HEAD.size):
                message = read_down(stream.read(HEAD.unpack(head)[0]))
                if isinstance(message, Run):
                    for claimed in message.jobs:
                        self._take(claimed)
                elif isinstance(message, Told):
                    self._line.told(message)
                elif isinstance(message, Cancelled):
                    if running := self._running.get(message.job.id):
                        running._lease.seen(message.job)
                elif isinstance(message, Stop):
                    return
        # The supervisor is gone, and with it the leases of whatever still runs here.
        os._exit(1)

    def _take(self, claimed: c.Claimed) -> None:
        if _needs_no_thread(self._queue.tasks.get(claimed.job.task)):
            self._loop.call_soon_threadsafe(self._begin, claimed)
        else:
            self._desk.put(claimed)

    # Functions, and batches, in threads

    def _work(self) -> None:
        while taken := self._desk.take():
            jobs = [self._started(claimed) for claimed in taken]
            try:
                outcomes = run(self._queue._known(jobs[0].task), jobs, self._wait_for)
            except BaseException as error:
                # Such as sys.exit in a handler: whatever it raised, the job must be answered.
                outcomes = [as_error(error)] * len(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                self._answer(job, outcome)

    def _wait_for(self, result: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(result, self._loop).result()

    # Coroutines on the loop

    def _begin(self, claimed: c.Claimed) -> None:
        task = self._loop.create_task(self._run(self._started(claimed)))
        self._coroutines.add(task)
        task.add_done_callback(self._coroutines.discard)

    async def _run(self, job: Holding) -> None:
        try:
            outcome = await run_async(self._queue._known(job.task), job)
        except BaseException as error:
            outcome = as_error(error)
        self._answer(job, outcome)

    async def _ended(self) -> None:
        """All coroutines have ended."""
        while others := self._coroutines - {asyncio.current_task()}:
            await asyncio.wait(others)

    # Both

    def _started(self, claimed: c.Claimed) -> Holding:
        kind: Any = AsyncClaimedJob if isinstance(self._queue, AsyncQueue) else ClaimedJob
        job: Holding = kind(self._queue, claimed, lease_ms=1, renew=False)
        self._running[job.id] = job
        self.send(Began(job_id=job.id))
        return job

    def _answer(self, job: Holding, outcome: Any) -> None:
        self._running.pop(job.id, None)
        error = outcome if isinstance(outcome, Exception) else None
        try:
            try:
                ask = job._done(None if error else outcome, error, None)
            except BadInput as unfit:
                # A result that cannot be written is the handler's error.
                ask = job._done(None, unfit, None)
        except HoldfastError:
            # The handler has answered, or lost, the job by itself.
            self.send(Left(job_id=job.id))
            return
        assert isinstance(ask.command, c.Answer)
        self.send(Ran(answer=ask.command))


def _needs_no_thread(task: Task[..., Any] | None) -> bool:
    return task is not None and task.handling.is_coroutine and not task.handling.batch


def find_queue(name: str) -> BaseQueue:
    """The queue that `module:queue` names."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    found = importlib.import_module(module_name)
    for part in (attribute or "queue").split("."):
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
    fd, threads, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    Executor(socket.socket(fileno=fd), name, threads).run()


if __name__ == "__main__":
    main()
