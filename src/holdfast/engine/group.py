"""Group commit without a committing thread: the first caller commits for all that arrive meanwhile.

    first caller     no commit is running ─▶ commits its command and all that wait ─▶ answers them
    the others       wait, each for its reply or for its turn to commit
    the next of them is woken when the commit is done, and takes what has arrived by then

A thread that may be interrupted by an exception at any step (the main thread by Ctrl-C, a handler's by its
soft limit) commits only its own command, so that no other caller is affected. An interrupted commit may or
may not have been made, as in any database driver.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..core import commands as c
from ..core.bounds import BATCH_BYTES, BATCH_JOBS
from ..store.common.interrupts import ServiceThread, wake
from .ticket import Ticket

# How many answers may wait in a `CommitThread`: if the process is killed, their jobs run again.
MOST_WAITING = 1_000


def count_of(command: c.Command) -> int:
    """The number of jobs or items of a command."""
    if isinstance(command, c.Add):
        return command.count
    if isinstance(command, c.AnswerAll):
        return len(command.answers) + sum([count_of(one) for one in command.answers if one.suspend])
    if isinstance(command, c.Answer):
        return len(command.suspend.jobs) if command.suspend else 0
    return len(command.items) if isinstance(command, c.Append) else 0


def bytes_of(command: c.Command) -> int:
    """About how many bytes the data, items and results of a command have."""
    if isinstance(command, c.Add):
        return command.size
    if isinstance(command, c.Append):
        return sum([len(one.data) for one in command.items])
    if isinstance(command, c.Update | c.SendSignal):
        return len(command.data or "")
    if isinstance(command, c.Step):
        return len(command.result)
    answers = command.answers if isinstance(command, c.AnswerAll) else (command,)
    bodies = [body for one in answers if isinstance(one, c.Answer) for body in (one.result, one.data) if body]
    return sum(map(len, bodies)) + sum(
        len(new.data)
        for one in answers
        if isinstance(one, c.Answer) and one.suspend
        for new in one.suspend.jobs
    )


def take(waiting: deque[Ticket]) -> list[Ticket]:
    """Remove and return the first tickets, up to the size of a transaction; abandoned claims are dropped."""
    tickets: list[Ticket] = []
    jobs = size = 0
    while waiting:
        ticket = waiting[0]
        jobs, size = jobs + 1 + count_of(ticket.command), size + bytes_of(ticket.command)
        if tickets and (jobs > BATCH_JOBS or size > BATCH_BYTES):
            break
        waiting.popleft()
        if not (ticket.abandoned and isinstance(ticket.command, c.Claim)):
            ticket.taken = True
            tickets.append(ticket)
    return tickets


class Group:
    """A queue of tickets that are committed together. `commit` commits and answers tickets."""

    def __init__(self, commit: Callable[[Sequence[Ticket]], None]) -> None:
        self._commit = commit
        self.waiting: deque[Ticket] = deque()
        # Held by the committing thread.
        self.turn = threading.Lock()

    def commit(self, ticket: Ticket) -> None:
        """Commit a ticket, in this thread or another; it is answered when this returns."""
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
        """Commit these and the waiting tickets in this thread."""
        with self.turn:
            self._commit([*tickets, *take(self.waiting)])
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first waiting caller, to commit."""
        try:
            self.waiting[0].wake()
        except IndexError:
            pass


class CommitThread:
    """A thread that commits the tickets of callers that do not wait in a thread.

    One is for the answers of workers, while the waiter's thread commits their claims. Both wait for a server
    most of the time: one after the other they would keep the worker waiting for both. If it falls behind,
    `has_room` is False: then answers are for the waiter, which claims only after them.
    """

    def __init__(self, group: Group, name: str) -> None:
        self._group = group
        self._inbox: deque[Ticket] = deque()
        # How many answers, jobs or items are in it.
        self._waiting = 0
        self._closed = False
        # The lock that the thread waits for.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._thread = ServiceThread(self._loop, name)
        self._lock = threading.Lock()

    def put(self, tickets: Sequence[Ticket]) -> bool:
        """Submit tickets; False if it is closed."""
        with self._lock:
            if self._closed:
                return False
            self._inbox.extend(tickets)
            self._waiting += sum([count_of(ticket.command) for ticket in tickets])
            self._thread.start()
        wake(self._signal)
        return True

    @property
    def has_room(self) -> bool:
        """Whether few answers wait for the commit that is in progress."""
        return self._waiting < MOST_WAITING

    def close(self) -> None:
        """Commit what is pending, and end the thread."""
        with self._lock:
            self._closed = True
            if not self._thread.is_started:
                return
        wake(self._signal)
        self._thread.join()

    def _loop(self) -> None:
        while not self._closed or self._inbox:
            if not self._inbox:
                self._signal.acquire()
            with self._lock:
                tickets = take(self._inbox)
                self._waiting -= sum([count_of(ticket.command) for ticket in tickets])
            self._group.commit_all(tickets)
