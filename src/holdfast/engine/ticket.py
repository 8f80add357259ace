"""A ticket: one command on its way, and the thread or coroutine that waits for its reply."""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..core import commands as c

if TYPE_CHECKING:
    import asyncio

# A Ctrl-C in the very moment before a thread falls asleep does not wake it, and a thread that was to wake it
# may itself be interrupted: it looks by itself after this long.
LOOK_S = 0.5

# One lock for all tickets: it is held for a few instructions, when one is answered or given up.
lock = threading.Lock()


def wake(signal: threading.Lock) -> None:
    """Wake the thread that sleeps by acquiring a lock, or have it not fall asleep."""
    try:
        signal.release()
    except RuntimeError:
        pass


class Ticket:
    """A command, until when its caller waits for something to happen, and its reply."""

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
        # `taken`: a commit that has it is under way, or was made.
        self.answered = self.abandoned = self.taken = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        # A lock that `wake` releases: the cheapest thing that a thread can wait for.
        self.signal = threading.Lock()
        self.signal.acquire()

    def for_loop(self, loop: "asyncio.AbstractEventLoop") -> "asyncio.Future[Any]":
        """Let a coroutine wait for it instead of a thread."""
        self.loop, self.future = loop, loop.create_future()
        return self.future

    def wait(self) -> None:
        """Wait in this thread until the ticket is woken, or a moment has passed."""
        self.signal.acquire(timeout=LOOK_S)

    def take(self) -> Any:
        """Wait for the reply in this thread."""
        while not self.answered:
            self.wait()
        return self.reply

    def wake(self) -> None:
        """Wake the thread that waits: it is answered, or it is this thread's turn to commit."""
        wake(self.signal)

    def answer(self, reply: Any) -> bool:
        """Set the reply; False when nobody waits for it any more."""
        with lock:
            if self.abandoned:
                return False
            self.reply, self.answered = reply, True
        if self.loop is None:
            self.wake()
        return True

    def abandon(self) -> bool:
        """The caller goes away; False when the reply is already there, and so the caller's to deal with."""
        with lock:
            self.abandoned = not self.answered
            return self.abandoned


class CallbackTicket(Ticket):
    """A ticket that nobody waits for: a function gets it back on a loop once it is answered."""

    __slots__ = ("heard",)
    # Of all of these alike: nobody waits, or can give up.
    deadline_s, abandoned, future = 0.0, False, None

    def __init__(
        self, command: c.Command, loop: "asyncio.AbstractEventLoop", heard: Callable[["CallbackTicket"], None]
    ) -> None:
        # Without the lock of one that may be waited for.
        self.command, self.loop, self.heard = command, loop, heard
        self.answered = self.taken = False

    def answer(self, reply: Any) -> bool:
        """Set the reply."""
        self.reply, self.answered = reply, True
        return True


def deliver(tickets: Iterable[Ticket], give_up: Callable[[Ticket], None]) -> None:
    """Tell coroutines of their replies: one wake-up for each event loop, however many replies."""
    loops: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        if ticket.loop is not None:
            loops.setdefault(ticket.loop, []).append(ticket)
    for loop, theirs in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, theirs, give_up)
        except RuntimeError:
            # The loop was closed: nobody is left to hear it.
            for ticket in theirs:
                give_up(ticket)


def _resolve(tickets: list[Ticket], give_up: Callable[[Ticket], None]) -> None:
    for ticket in tickets:
        if isinstance(ticket, CallbackTicket):
            ticket.heard(ticket)
            continue
        assert ticket.future is not None
        if ticket.future.done():
            give_up(ticket)
        elif isinstance(ticket.reply, BaseException):
            ticket.future.set_exception(ticket.reply)
        else:
            ticket.future.set_result(ticket.reply)
