"""A ticket: one command on its way, and whoever waits for its reply, a thread or a coroutine."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ..core import commands as c

# A Ctrl-C in the very moment before a thread falls asleep does not wake it: it looks up by itself.
HEARING_S = 0.5


class Ticket:
    """A command, until when its caller waits for something to happen, and its reply."""

    __slots__ = (
        "_lock",
        "_signal",
        "abandoned",
        "answered",
        "command",
        "deadline_s",
        "future",
        "loop",
        "reply",
    )

    def __init__(self, command: c.Command, *, deadline_s: float = 0.0) -> None:
        self.command = command
        self.deadline_s = deadline_s
        self.reply: Any = None
        self.answered = False
        self.abandoned = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        self._lock = threading.Lock()
        # A lock that the answer releases: the cheapest thing that a thread can wait for.
        self._signal = threading.Lock()
        self._signal.acquire()

    def for_loop(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        """Let a coroutine wait for it instead of a thread."""
        self.loop, self.future = loop, loop.create_future()
        return self.future

    def take(self) -> Any:
        """Wait for the reply in this thread."""
        while not self._signal.acquire(timeout=HEARING_S):
            pass
        return self.reply

    def answer(self, reply: Any) -> bool:
        """Set the reply; False when nobody waits for it any more."""
        with self._lock:
            if self.abandoned:
                return False
            self.reply, self.answered = reply, True
        self._signal.release()
        return True

    def abandon(self) -> bool:
        """The caller goes away; False when the reply is already there, and so his to deal with."""
        with self._lock:
            self.abandoned = not self.answered
            return self.abandoned


class Word(Ticket):
    """A ticket that nobody waits for: a function hears of its reply on a loop, of thousands at once."""

    __slots__ = ("heard",)
    # Of all of these alike: nobody waits, or can give up.
    deadline_s, abandoned, future = 0.0, False, None

    def __init__(
        self, command: c.Command, loop: asyncio.AbstractEventLoop, heard: Callable[["Word"], None]
    ) -> None:
        # Without the locks of one that may be waited for, or given up.
        self.command, self.loop, self.heard = command, loop, heard
        self.answered = False

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
        if isinstance(ticket, Word):
            ticket.heard(ticket)
            continue
        assert ticket.future is not None
        if ticket.future.done():
            give_up(ticket)
        elif isinstance(ticket.reply, BaseException):
            ticket.future.set_exception(ticket.reply)
        else:
            ticket.future.set_result(ticket.reply)
