"""How processes that share a store wake each other: PUBLISH and SUBSCRIBE, and a look now and then beneath.

Who waits has a connection of its own that listens. It is a hint: whoever misses it looks by itself whether
anybody has committed since, by a number that each commit counts up. A line that is lost is news too: whoever
waits should find out whether the server is there.
"""

import os
import secrets
import select
import threading
from typing import Any

from ..common.clock import monotonic_s
from ..common.keepalive import keep_lively
from ..common.nudge import Nudge
from ..common.polling import Looks
from .connection import Link
from .errors import FAULTS
from .keys import Keys

# How often one who waits looks by itself, soon after news and in the end seldom (`Looks`), and how long it
# sleeps while the server is away.
SOON_S, SELDOM_S, AWAY_S = 5.0, 30.0, 1.0
# What a word ends in that says only that something has ended, or a log has moved.
END = b"."


class Wake:
    """One store's ear."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link, self._keys = link, keys
        # By which we know our own word when we hear it.
        self.name = secrets.token_hex(8).encode()
        self._ear: Any = None
        self._pid = os.getpid()
        # The last commit that was known of, and when to look for another.
        self._tick: bytes | None = None
        self._looks = Looks(SOON_S, SELDOM_S)
        self._nudge = Nudge()
        # The connection that we speak by, and whose process opened it.
        self._mouth: Any = None
        self._mouth_pid = 0
        self._telling = threading.Lock()
        self._waiting = threading.Lock()
        self._closed = False
        # Whether to wake for ends alone.
        self.heeds_ends = True

    def wait(self, timeout_s: float) -> bool:
        """Sleep until told, interrupted or out of time; True unless it is the last."""
        until_s = monotonic_s() + timeout_s
        if not self._waiting.acquire(timeout=max(timeout_s, 0.0)):
            return False
        try:
            while not (woken := self._heard(max(until_s - monotonic_s(), 0.0))) and monotonic_s() < until_s:
                pass
            return woken
        finally:
            self._waiting.release()

    def word(self, *, ends: bool) -> bytes:
        """What wakes the others; `ends`: only those that heed ends."""
        return self.name + END if ends else self.name

    def tell(self, *, ends: bool = False) -> None:
        """Wake the others. Nobody waits for the reply, which is read the next time."""
        with self._telling:
            mouth = self._mouth
            if mouth is None or self._mouth_pid != os.getpid():
                mouth = self._link.server().connection_pool.get_connection()
                self._mouth, self._mouth_pid = mouth, os.getpid()
            else:
                try:
                    mouth.read_response()
                except FAULTS:
                    mouth.disconnect()
            mouth.send_command(b"PUBLISH", self._keys.channel, self.word(ends=ends))

    def hush(self) -> None:
        """The server may be another: speak to the new one the next time."""
        with self._telling:
            mouth, self._mouth = self._mouth, None
            if mouth is not None and self._mouth_pid == os.getpid():
                mouth.disconnect()

    def opened(self, tick: bytes | None) -> None:
        """From here on whatever anybody commits is news."""
        self._tick = tick

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._nudge.give()

    def close(self) -> None:
        """Stop listening, once nobody waits any more."""
        self._closed = True
        self.hush()
        self.interrupt()
        with self._waiting:
            self._forget()
            self._nudge.close()

    def _heard(self, left_s: float) -> bool:
        """Sleep for as long as one look lasts; whether there was anything."""
        self._notice_fork()
        nudge = self._nudge
        if nudge.is_given or self._closed:
            nudge.take()
            return True
        try:
            if self._ear is None:
                # What was said before we listened is missed: then look at once.
                self._listen()
                return self._changed()
            ear = self._ear.connection._sock
            ready, _, _ = select.select([nudge, ear], [], [], min(left_s, self._looks.left_s))
            if nudge in ready:
                nudge.take()
                return True
            return self._told() if ready else self._changed()
        except (*FAULTS, ValueError, AttributeError):
            # Whoever looks meets the same, and has somebody to tell: so it is told, once.
            if self._ear is not None:
                self._forget()
                return True
            return bool(select.select([nudge], [], [], min(left_s, AWAY_S))[0])

    def _told(self) -> bool:
        """Whether anybody else has said anything that is heeded."""
        told = []
        while (heard := self._ear.get_message(ignore_subscribe_messages=True, timeout=0)) is not None:
            told.append(heard["data"])
        others = [word for word in told if word.removesuffix(END) != self.name]
        if others:
            self._looks.soon()
        return any(self.heeds_ends or not word.endswith(END) for word in others)

    def _changed(self) -> bool:
        """Whether anybody has committed since the last look, if it is time for one."""
        if self._looks.left_s:
            return False
        self._looks.looked()
        before, self._tick = self._tick, self._link.call(b"GET", self._keys.tick)
        return before != self._tick

    def _listen(self) -> None:
        ear = self._link.server().pubsub()
        ear.subscribe(self._keys.channel)
        # The first thing that is heard is that we listen.
        ear.get_message(timeout=AWAY_S)
        keep_lively(ear.connection._sock.fileno())
        self._ear = ear
        self._looks.now()

    def _forget(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None and self._pid == os.getpid():
            ear.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # What is open is the parent's.
            self._pid, self._parents, self._ear = os.getpid(), self._ear, None
            self._nudge.forget()
