"""A ticket: one submitted command, and the thread or coroutine that waits for its reply."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..core import commands as c
from ..store.common.interrupts import wake

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
