"""Tickets: submitted commands, and the threads and coroutines that wait for their replies.

A `Submitter` makes tickets of commands and waits for them; `Done` has the replies of a transaction.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..core import commands as c
from ..core.errors import HoldfastError
from ..core.job import Job
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import wake
from ..store.contract import NewJobs

if TYPE_CHECKING:
    import asyncio


# A waiting thread checks for its reply this often: Ctrl-C just before the wait does not wake it, and the
# thread that should wake it may itself be interrupted.
RECHECK_S = 0.5

# One lock for all tickets, held for a few instructions when one is answered or abandoned.
lock = threading.Lock()
# So that no other thread has it during a fork: the child would wait for it forever.
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Ticket:
    """A command, the deadline of its wait, and its reply."""

    __slots__ = (
        "abandoned",
        "answered",
        "command",
        "deadline_s",
        "future",
        "loop",
        "reply",
        "signal",
        "taken",
    )

    def __init__(self, command: c.Command, *, deadline_s: float = 0.0) -> None:
        self.command, self.deadline_s = command, deadline_s
        self.reply: Any = None
        # `taken`: a commit with this command is running, or was made.
        self.answered = self.abandoned = self.taken = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        # A lock that `wake` releases: the cheapest thing for a thread to wait for.
        self.signal = threading.Lock()
        self.signal.acquire()

    def for_loop(self, loop: "asyncio.AbstractEventLoop") -> "asyncio.Future[Any]":
        """Make a future, so that a coroutine waits for the reply instead of a thread."""
        self.loop, self.future = loop, loop.create_future()
        return self.future

    def wait(self) -> None:
        """Wait in this thread until `wake` is called, at most half a second."""
        self.signal.acquire(timeout=RECHECK_S)

    def wait_for_reply(self) -> Any:
        """Wait for the reply in this thread, and return it."""
        while not self.answered:
            self.wait()
        return self.reply

    def wake(self) -> None:
        """Wake the waiting thread: the reply has come, or the thread should commit."""
        wake(self.signal)

    def answer(self, reply: Any) -> bool:
        """Set the reply; False if the caller is gone."""
        with lock:
            if self.abandoned:
                return False
            self.reply, self.answered = reply, True
        if self.loop is None:
            self.wake()
        return True

    def abandon(self) -> bool:
        """Mark that the caller is gone; False if the reply has come, which the caller must then handle."""
        with lock:
            self.abandoned = not self.answered
            return self.abandoned


class CallbackTicket(Ticket):
    """A ticket without a waiting caller: a callback gets it on an event loop when it is answered."""

    __slots__ = ("on_reply",)
    # The same for all of these: no caller waits, or can go away.
    deadline_s, abandoned, future = 0.0, False, None

    def __init__(
        self,
        command: c.Command,
        loop: "asyncio.AbstractEventLoop",
        on_reply: Callable[["CallbackTicket"], None],
    ) -> None:
        # Does not call super: no thread waits, so it needs no lock.
        self.command, self.loop, self.on_reply = command, loop, on_reply
        self.answered = self.taken = False

    def answer(self, reply: Any) -> bool:
        """Set the reply."""
        self.reply, self.answered = reply, True
        return True


def deliver(tickets: Iterable[Ticket], give_up: Callable[[Ticket], None]) -> None:
    """Pass replies to coroutines, with one wake-up for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        if ticket.loop is not None:
            loops.setdefault(ticket.loop, []).append(ticket)
    for loop, theirs in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, theirs, give_up)
        except RuntimeError:
            # The loop was closed, and its callers are gone.
            for ticket in theirs:
                give_up(ticket)


def _resolve(tickets: list[Ticket], give_up: Callable[[Ticket], None]) -> None:
    for ticket in tickets:
        if isinstance(ticket, CallbackTicket):
            try:
                ticket.on_reply(ticket)
            except Exception as error:
                # The other tickets are those of other clients.
                assert ticket.loop is not None
                ticket.loop.call_exception_handler({"message": "a reply was not taken", "exception": error})
            continue
        assert ticket.future is not None
        if ticket.future.done():
            give_up(ticket)
        elif isinstance(ticket.reply, BaseException):
            ticket.future.set_exception(ticket.reply)
        else:
            ticket.future.set_result(ticket.reply)


class Submitter:
    """Turns commands into tickets and waits for their replies; subclasses take the tickets."""

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        raise NotImplementedError

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Submit several commands; one that cannot be submitted is answered with the error."""
        for ticket in tickets:
            try:
                self.submit(ticket)
            except HoldfastError as error:
                ticket.answer(error)
                deliver([ticket], self.give_back)

    def give_back(self, ticket: Ticket) -> None:
        """Release the jobs that were claimed for a caller that is gone."""
        if isinstance(ticket.command, c.Claim) and isinstance(ticket.reply, list):
            self.release(claimed.job for claimed in ticket.reply)

    def release(self, jobs: Iterable[Job], *, was_sent: bool = False) -> None:
        """Release claimed jobs that a caller did not get, without waiting for the commit.

        If they were sent, it may have got them: those that must not run twice stay with it until their lease
        ends. `close` commits what was released before it; after `close`, leases expire.
        """
        back = [job for job in jobs if not (was_sent and job.max_losses == 1)]
        if back:
            self.submit_all([Ticket(c.Release(hold=c.hold_of(job))) for job in back])

    def on_abandoned(self, ticket: Ticket) -> None:
        """Called when the caller of a ticket that is not answered is gone."""

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; raises its error."""
        reply = self.ask_ticket(Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0))
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def ask_ticket(self, ticket: Ticket) -> Any:
        """Submit a ticket and wait for its reply in this thread; return it, also if it is an error."""
        try:
            self.submit(ticket)
            return ticket.wait_for_reply()
        except BaseException:
            self._leave(ticket)
            raise

    def reply_of(self, ticket: Ticket) -> Any:
        """Wait for the reply of a submitted ticket in this thread; return it, also if it is an error."""
        try:
            return ticket.wait_for_reply()
        except BaseException:
            self._leave(ticket)
            raise

    def _leave(self, ticket: Ticket) -> None:
        """Interrupted: release what was claimed for this caller now, not when its lease expires."""
        if ticket.abandon():
            self.on_abandoned(ticket)
        else:
            self.give_back(ticket)

    async def ask_async(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this event loop; raises its error."""
        # Imported here because asyncio is slow to import, and many programs do not need it.
        import asyncio

        ticket = Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0)
        future = ticket.for_loop(asyncio.get_running_loop())
        self.submit(ticket)
        try:
            return await future
        except asyncio.CancelledError:
            # If it was answered already, `deliver` finds the future cancelled and releases its jobs; or it
            # has set the future's result just now, which no caller will read.
            if ticket.abandon():
                self.on_abandoned(ticket)
            elif future.done() and not future.cancelled():
                self.give_back(ticket)
            raise


class Done(msgspec.Struct, kw_only=True, eq=False):
    """The replies of a transaction, and what must be done after its commit."""

    replies: list[Any] = []
    # A job became claimable or has ended: wake up waiting claims.
    woke: bool = False
    ended: set[int] = set()
    # The progress of a consumer, or a log, has changed.
    news: bool = False
    # Defaults of tasks have changed.
    published: bool = False
    # When a job or upkeep is next due; known only after claims and upkeep.
    next_ms: int | None = None
    # What the engine caches after the commit.
    next_upkeep_ms: int | None = None
    upkept_ms: int | None = None
    retention_ms: int | None = None
    now_ms: int = 0
    # Jobs that were added, to be logged.
    added: Sequence[NewJobs] = ()
    # Jobs that were lost or have expired, before and after, to be logged.
    unreported: list[tuple[Job, Job]] = []

    def reset(self) -> None:
        """Forget everything: the transaction is run again."""
        new = Done()
        for name in self.__struct_fields__:
            setattr(self, name, getattr(new, name))
