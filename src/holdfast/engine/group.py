"""Group commit without a thread of its own: the first caller commits for all that come meanwhile.

    first caller     finds no commit under way ─▶ commits its command and all that wait ─▶ answers them
    the others       wait, each for its reply or for its turn to commit
    the next of them is woken when the commit is done, and takes what has come by then

A thread that an exception may strike at any step (the main thread by Ctrl-C, a handler's by its soft limit)
commits its own command only, so that an interrupt is nobody else's affair. What it interrupts may have been
committed, or not, as in any database driver.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..core import commands as c
from ..core.bounds import BATCH_BYTES, BATCH_JOBS
from .ticket import Ticket

# The threads in which an exception may be raised at any step: the main thread first.
_struck: list[int | None] = [threading.main_thread().ident]


def _note_main() -> None:
    _struck[:] = [threading.main_thread().ident]


os.register_at_fork(after_in_child=_note_main)


def may_be_interrupted() -> bool:
    """Whether an exception may be raised in this thread at any step."""
    return threading.get_ident() in _struck


@contextmanager
def interruptible() -> Iterator[None]:
    """Mark this thread as one in which an exception may be raised at any step."""
    thread = threading.get_ident()
    outermost = thread not in _struck
    try:
        if outermost:
            _struck.append(thread)
        yield
    finally:
        if outermost:
            _struck.remove(thread)


def load_of(command: c.Command) -> tuple[int, int]:
    """How many jobs or items a command brings, and how many bytes."""
    if isinstance(command, c.Add):
        return command.count, command.size
    if isinstance(command, c.AnswerAll):
        return len(command.answers), 0
    if isinstance(command, c.Append):
        return len(command.items), sum(len(one.data) for one in command.items)
    return 0, 0


def take(waiting: deque[Ticket]) -> list[Ticket]:
    """The first tickets of a queue, up to one transaction's worth, but for those whose callers went away."""
    tickets: list[Ticket] = []
    jobs = size = 0
    while waiting and len(tickets) + jobs < BATCH_JOBS and size < BATCH_BYTES:
        ticket = waiting.popleft()
        if not (ticket.abandoned and isinstance(ticket.command, c.Claim)):
            ticket.taken = True
            tickets.append(ticket)
            count, weight = load_of(ticket.command)
            jobs, size = jobs + count, size + weight
    return tickets


class Group:
    """Those whose commands are committed together. `commit` answers the tickets that it is given."""

    def __init__(self, commit: Callable[[Sequence[Ticket]], None]) -> None:
        self._commit = commit
        self.waiting: deque[Ticket] = deque()
        # Held by the thread that commits.
        self.turn = threading.Lock()

    def commit(self, ticket: Ticket) -> None:
        """Have a ticket committed, by this thread or by another; it is answered when this returns."""
        self.waiting.append(ticket)
        while not ticket.answered:
            if ticket.taken or not self.turn.acquire(blocking=False):
                ticket.wait()
                continue
            try:
                if not ticket.taken:
                    self._commit(take(self.waiting))
            finally:
                self.turn.release()
            self.wake_next()

    def commit_all(self, tickets: Sequence[Ticket]) -> None:
        """Commit these, with those that wait, in this thread."""
        with self.turn:
            self._commit([*tickets, *take(self.waiting)])
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first of those that wait: nobody commits any more."""
        try:
            self.waiting[0].wake()
        except IndexError:
            pass
