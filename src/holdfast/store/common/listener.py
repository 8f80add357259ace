"""How a process waits for the commits of others: by messages on a connection of its own, and by polling.

A message is a hint: a process that misses one polls something that every commit changes (`PollTimes`). A lost
connection also wakes it up, so that it finds out whether the server is up.

It polls soon after a notification, then less and less:

    notification ──5 s──▶ poll ──5 s──▶ poll ──10 s──▶ poll ──20 s──▶ poll ──30 s──▶ poll ──30 s──▶ …

A notification may be lost, and some changes send none, such as a claim and the end of its lease. Where there
are notifications other processes are active, so a poll follows soon. Without any there is little to find, and
every poll costs a round trip.
"""

import os
import secrets
import threading
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from .clock import monotonic_s
from .waker import Waker, wait_readable

# The factor by which each interval is longer than the one before.
SLOWER = 2


class PollTimes:
    """When one waiting process polls; the first poll is due at once."""

    def __init__(self, soon_s: float, seldom_s: float) -> None:
        self._soon_s, self._seldom_s = soon_s, seldom_s
        self._pause_s, self._at_s = soon_s, 0.0

    @property
    def left_s(self) -> float:
        """The time until the next poll is due."""
        return max(self._at_s - monotonic_s(), 0.0)

    def poll_now(self) -> None:
        """Make the next poll due at once: notifications may have been missed."""
        self._pause_s, self._at_s = self._soon_s, 0.0

    def poll_soon(self) -> None:
        """Make a poll due soon after a notification; one that is due earlier is not postponed."""
        self._pause_s = self._soon_s
        self._at_s = min(self._at_s, monotonic_s() + self._soon_s)

    def polled(self) -> None:
        """Set the time of the next poll, after one was made."""
        self._at_s = monotonic_s() + self._pause_s
        self._pause_s = min(self._pause_s * SLOWER, self._seldom_s)


# How often a waiting process polls: the first and the last interval after a message, and while the server is
# down.
SOON_S, SELDOM_S, AWAY_S = 5.0, 30.0, 1.0
# How often it polls if it cannot receive messages. A poll that finds a change costs a transaction.
POLL_S = 0.25
# The end of a message that is only about completions or log appends.
END = b"."

AnyConnection = TypeVar("AnyConnection")
# Until the first poll.
_NOTHING: Any = object()


class Listener(ABC, Generic[AnyConnection]):
    """Wakes up the `wait` of one store."""

    # The exceptions of a server that is away.
    faults: tuple[type[Exception], ...]

    def __init__(self) -> None:
        # The message of this store's own commits, by which it recognises them.
        self.name = secrets.token_hex(8).encode()
        self._pid = os.getpid()
        self._connection: AnyConnection | None = None
        # What the last poll found, and when to poll next.
        self._seen = _NOTHING
        self._polls = PollTimes(SOON_S, SELDOM_S)
        self._waker = Waker()
        self._waiting = threading.Lock()
        self._closed = False

    @abstractmethod
    def _connect(self) -> AnyConnection:
        """Open a connection that receives messages."""

    @abstractmethod
    def _socket(self, connection: AnyConnection) -> Any:
        """What to wait for; None if it receives no messages."""

    @abstractmethod
    def _messages(self, connection: AnyConnection) -> list[bytes]:
        """The messages that have arrived."""

    @abstractmethod
    def _poll(self, connection: AnyConnection) -> Any:
        """A value that every commit changes."""

    @abstractmethod
    def _disconnect(self, connection: AnyConnection, *, inherited: bool) -> None:
        """Let go of a connection; `inherited`: it belongs to the parent of this forked process."""

    def begin(self, seen: Any) -> None:
        """Wake up for every commit after the one that has made this value."""
        self._seen = seen

    def wait(self, timeout_s: float, *, ends: bool) -> bool:
        """Sleep until notified or interrupted; False after the time-out, or if it was only interrupted.

        `ends`: whether it also wakes up on completions and log appends.
        """
        until_s = monotonic_s() + timeout_s
        if not self._waiting.acquire(timeout=max(timeout_s, 0.0)):
            return False
        try:
            while (woken := self._sleep(max(until_s - monotonic_s(), 0.0), ends)) is None:
                if monotonic_s() >= until_s:
                    return False
            return woken
        finally:
            self._waiting.release()

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._waker.wake()

    def close(self) -> None:
        """Stop listening, after the last `wait` has returned."""
        self._closed = True
        self.interrupt()
        with self._waiting:
            self._forget()
            self._waker.close()

    def _sleep(self, left_s: float, ends: bool) -> bool | None:
        """Sleep until the next poll at most; return what `wait` should return, None if it goes on."""
        if self._pid != os.getpid():
            self._forget()
            self._pid = os.getpid()
            self._waker.forget()
        waker = self._waker
        if self._closed:
            return False
        is_interrupted = waker.is_set
        if is_interrupted and self._connection is None:
            # To connect may take long.
            waker.clear()
            return True
        try:
            if self._connection is None:
                # Messages from before were missed, so poll at once.
                self._connection = self._connect()
                self._polls.poll_now()
            connection = self._connection
            socket = self._socket(connection)
            sources = [source for source in (waker, socket) if source is not None]
            ready = wait_readable(sources, 0.0 if is_interrupted else min(left_s, self._polls.left_s))
            if is_interrupted or waker in ready:
                is_interrupted = True
                waker.clear()
            # After an interrupt too: many in a row must not delay a message, or a poll.
            woken = self._has_message(connection, ends) if socket in ready else False
            if woken or self._has_changed(connection, ends):
                return True
        except self.faults:
            # `wait` returns, once: the next call has the same error, and a caller to raise it to.
            if self._connection is not None:
                self._forget()
                return True
            is_interrupted = bool(wait_readable([waker], min(left_s, AWAY_S)))
            if is_interrupted:
                waker.clear()
        return False if is_interrupted else None

    def _has_message(self, connection: AnyConnection, ends: bool) -> bool:
        """Whether another store has sent a message that wakes up this one."""
        others = [sent for sent in self._messages(connection) if sent.removesuffix(END) != self.name]
        if others:
            self._polls.poll_soon()
        return any(ends or not sent.endswith(END) for sent in others)

    def _has_changed(self, connection: AnyConnection, ends: bool) -> bool:
        """Whether anything was committed since the last poll, if a poll is due."""
        if self._polls.left_s:
            return False
        self._polls.polled()
        before, self._seen = self._seen, self._poll(connection)
        # A message that came with the reply is no longer in the socket, so it is not reported as readable.
        has_message = self._has_message(connection, ends)
        return has_message or (before is not _NOTHING and bool(before != self._seen))

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._disconnect(connection, inherited=self._pid != os.getpid())
