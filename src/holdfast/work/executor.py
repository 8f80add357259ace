"""An executor: a process that imports what users wrote, and runs it.

    python -m holdfast.work.executor FD THREADS MODULE:QUEUE …

It reads jobs from the socket that it inherits, runs functions in threads and coroutines on a loop, and
sends their answers back. It holds no lease and commits nothing: whatever happens to it, its supervisor
knows what it had. It ends with its supervisor.
"""

import asyncio
import ctypes
import importlib
import inspect
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core import commands as c
from ..core.errors import BadInput
from ..queue.base import BaseQueue
from ..queue.queue import ClaimedJob
from .files import project_files
from .line import SupervisedLine
from .messages import (
    HEAD,
    Began,
    Cancelled,
    Found,
    Hello,
    Message,
    Ran,
    Returned,
    Revoke,
    Run,
    Stop,
    Told,
    frame,
    read_down,
)

PR_SET_PDEATHSIG = 1


class Executor:
    """One process's threads, and the wire to its supervisor."""

    def __init__(self, wire: socket.socket, names: Sequence[str], threads: int) -> None:
        self._wire = wire
        self._names = names
        self._threads = threads
        # Each with the number of the queue that it came from.
        self._jobs: queue.SimpleQueue[tuple[int, c.Claimed] | None] = queue.SimpleQueue()
        self._send_lock = threading.Lock()
        self._running: dict[tuple[int, int], ClaimedJob] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        """Say hello, then do what is asked until the supervisor says stop or goes."""
        try:
            self._queues = [find_queue(name) for name in self._names]
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.send(Hello(pid=os.getpid(), error=text, files=project_files(error)))
            return
        self._lines = [
            SupervisedLine(queue._make_store, self.send, at=at) for at, queue in enumerate(self._queues)
        ]
        for found, line in zip(self._queues, self._lines, strict=True):
            found._line = line  # type: ignore[assignment]
        known = tuple(Found(url=q.url, tenant=q.tenant, tasks=tuple(q.tasks)) for q in self._queues)
        self.send(Hello(pid=os.getpid(), queues=known, files=project_files()))
        workers = [threading.Thread(target=self._work, name=f"job-{n}") for n in range(self._threads)]
        for worker in workers:
            worker.start()
        self._listen()
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            worker.join()

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
                        self._jobs.put((message.at, claimed))
                elif isinstance(message, Told):
                    self._lines[message.at].told(message)
                elif isinstance(message, Cancelled):
                    if running := self._running.get((message.at, message.job.id)):
                        running._lease.renewed(message.job)
                elif isinstance(message, Revoke):
                    self.send(Returned(keys=tuple(self._unstarted())))
                elif isinstance(message, Stop):
                    return
        # The supervisor is gone, and with it the leases of whatever still runs here.
        os._exit(1)

    def _unstarted(self) -> Iterator[tuple[int, int]]:
        """Take what no thread has taken."""
        while True:
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                yield item[0], item[1].job.id

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            at, claimed = item
            self.send(Began(job_id=claimed.job.id, at=at))
            self.send(Ran(answer=self._answer(claimed, at), at=at))

    def _answer(self, claimed: c.Claimed, at: int) -> c.Answer:
        job = ClaimedJob(self._queues[at], claimed, lease_ms=1, renew=False)  # type: ignore[arg-type]
        self._running[at, job.id] = job
        try:
            result = self._call(job)
            error = result if isinstance(result, Exception) else None
        except Exception as raised:
            result, error = None, raised
        finally:
            self._running.pop((at, job.id), None)
        try:
            command = job._done(None if error else result, error, None).command
        except BadInput as unfit:
            # A result that cannot be written is the handler's error.
            command = job._done(None, unfit, None).command
        assert isinstance(command, c.Answer)
        return command

    def _call(self, job: ClaimedJob) -> Any:
        result = job._queue._known(job.task).run(job)
        if inspect.iscoroutine(result):
            return asyncio.run_coroutine_threadsafe(result, self._event_loop()).result()
        return result

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._send_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
            return self._loop


def find_queue(name: str) -> BaseQueue:
    """The queue that `module:queue` names."""
    module_name, _, attribute = name.partition(":")
    if sys.path[0] != str(Path.cwd()):
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
    fd, threads, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    Executor(socket.socket(fileno=fd), names, threads).run()


if __name__ == "__main__":
    main()
