"""More lanes of commits, where a store lets several be under way at once.

    callers ──▶ inbox ──▶ the committer's own thread ──▶ a commit
       │                          ▲ what came of it
       └──▶ beside ──▶ lane 2, 3 … ──▶ commits of their own, while that one is at work

A lane takes only what nobody's order depends on, adds and claims: whoever asks for one waits for the reply
before he asks for the next, so nothing of his is overtaken. All else, and claims that have to wait, stay
with the committer. A lane is used only while the committer is busy, and takes all that has come by then, so
that batches stay large.
"""

import queue
import threading
from collections.abc import Callable
from time import sleep

from ..core import commands as c
from ..core.bounds import BATCH_BYTES, BATCH_JOBS
from .ticket import Ticket

# How long a lane lets others arrive before it takes what there is.
GATHERING_S = 0.000_2


def is_free(command: c.Command) -> bool:
    """Whether it matters to nobody what is committed before it.

    Claims in another's name are the port's, whose clients may send several ahead: these take effect in order.
    """
    if type(command) is c.Claim:
        return not command.owner
    return type(command) is c.Add and command.hold is None


def load_of(command: c.Command) -> tuple[int, int]:
    """How many jobs or items a command brings, and how many bytes."""
    if isinstance(command, c.Add):
        return command.count, command.size
    if isinstance(command, c.Append):
        return len(command.items), sum(len(one.data) for one in command.items)
    return 0, 0


class SideLanes:
    """The lanes beside a committer's own. `commit` is called from their threads."""

    def __init__(self, number: int, commit: Callable[[list[Ticket]], None]) -> None:
        self._number, self._commit = number, commit
        self._beside: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        self._wanted = threading.Event()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self._number > 0

    def put(self, ticket: Ticket) -> None:
        """Have a lane take it, or the committer, whoever is free first. Not after `close`."""
        self._beside.put(ticket)
        with self._lock:
            if not self._idle and len(self._threads) < self._number:
                thread = threading.Thread(target=self._loop, name="holdfast-lane", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._wanted.set()

    @property
    def waiting(self) -> bool:
        """Whether there is anything that nobody has taken."""
        return not self._beside.empty()

    def take(self) -> list[Ticket]:
        """What waits, up to one transaction's worth."""
        tickets: list[Ticket] = []
        jobs = size = 0
        try:
            while len(tickets) + jobs < BATCH_JOBS and size < BATCH_BYTES:
                tickets.append(self._beside.get_nowait())
                count, weight = load_of(tickets[-1].command)
                jobs, size = jobs + count, size + weight
        except queue.Empty:
            pass
        return tickets

    def close(self) -> None:
        """Have what was taken done, and end the threads."""
        self._closed = True
        self._wanted.set()
        for thread in self._threads:
            thread.join()

    def _loop(self) -> None:
        while not self._closed:
            self._rest(1)
            self._wanted.wait()
            self._rest(-1)
            if self._closed:
                return
            self._wanted.clear()
            if not self._beside.empty():
                sleep(GATHERING_S)
            while tickets := self.take():
                self._commit(tickets)

    def _rest(self, change: int) -> None:
        with self._lock:
            self._idle += change
