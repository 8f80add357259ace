"""How processes that share a schema wake each other: LISTEN and NOTIFY, and a look now and then beneath.

Who waits has a connection of its own that listens. Telling is one small statement. It is a hint: whoever
misses it, or cannot listen behind a pooler, looks by itself whether any transaction has begun since. A line
that is lost is news too: whoever waits should find out whether the server is there.

Telling happens beside the commits; nobody's reply waits for it:

    commit ─▶ reply          a transaction that tells by itself would hold a lock of the whole server until
       └──▶ teller ─▶ NOTIFY     its commit is on the disk, and all who tell would commit one after the other

Many in a row become one, and the last of them is told before the store is closed.
"""

import os
import secrets
import select
import threading
from typing import Any

import psycopg

from ...core.errors import Conflict, HoldfastError
from ..common.clock import monotonic_s
from ..common.keepalive import keep_lively
from ..common.nudge import Nudge
from ..common.polling import Looks
from .connection import OwnLink
from .errors import faults
from .pool import Pool
from .statements import channel
from .url import Address

# How often one who waits looks by itself: soon after news and in the end seldom where it listens (`Looks`);
# where it cannot; and while the server is away. Each look that finds a busy server costs a transaction, and
# an idle worker should be hardly noticed.
SOON_S, SELDOM_S, LOOKING_S, AWAY_S = 5.0, 30.0, 0.25, 1.0

# Changes whenever a transaction that writes begins, in whichever database: cheap, and enough for a hint.
_NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"

# What a word ends in that says only that something has ended, or a log has moved.
END = "."
# Nothing of it is to be kept: neither who tells waits for the disk, nor those who tell after him.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
# Who was told a moment ago is at it: so long nobody is told again, for each that wanted it since the last
# time, and at most. Who adds now and then is heard at once, who does nothing else a hundred times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.01


class Wake:
    """One store's ear."""

    def __init__(self, address: Address, pool: Pool) -> None:
        self._address, self._pool = address, pool
        # By which we know our own word when we hear it.
        self.name = secrets.token_hex(8)
        self._pid = os.getpid()
        self._link: OwnLink | None = None
        self._listens = False
        # The newest transaction at the last look, and when to look next.
        self._newest, self._looks = "", Looks(SOON_S, SELDOM_S)
        self._nudge = Nudge()
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

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._nudge.give()

    def close(self) -> None:
        """Stop listening, once nobody waits any more."""
        self._closed = True
        self.interrupt()
        with self._waiting:
            if self._pid == os.getpid():
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
            if (link := self._link) is None or not link.is_open:
                # What was said before we listened is missed: then look at once.
                return self._listen()
            watched: list[Any] = [nudge, link.connection] if self._listens else [nudge]
            ready, _, _ = select.select(watched, [], [], min(left_s, self._looks.left_s))
            if nudge in ready:
                nudge.take()
                return True
            return self._told(link) if ready else self._changed(link)
        except psycopg.Error:
            # Whoever looks meets the same, and has somebody to tell: so it is told, once.
            if self._link is not None:
                self._forget()
                return True
            return bool(select.select([nudge], [], [], min(left_s, AWAY_S))[0])

    def _told(self, link: OwnLink) -> bool:
        """Whether anybody else has said anything that is heeded."""
        wire = link.connection.pgconn
        wire.consume_input()
        told = []
        while (heard := wire.notifies()) is not None:
            told.append(heard.extra.decode())
        others = [word for word in told if word.removesuffix(END) != self.name]
        if others:
            self._looks.soon()
        return any(self.heeds_ends or not word.endswith(END) for word in others)

    def _changed(self, link: OwnLink) -> bool:
        """Whether anybody has written since the last look, if it is time for one."""
        if self._looks.left_s:
            return False
        self._looks.looked()
        before, self._newest = self._newest, link.value(_NEWEST)
        return before not in ("", self._newest)

    def _listen(self) -> bool:
        link = self._pool.connect()
        self._listens = self._address.notify and not self._pool.pooled
        if self._listens:
            link.script(f'LISTEN "{channel(self._address.schema)}"')
        self._looks = Looks(SOON_S, SELDOM_S) if self._listens else Looks(LOOKING_S, LOOKING_S)
        keep_lively(link.connection.fileno())
        self._link = link
        return self._changed(link)

    def opened(self, link: OwnLink) -> None:
        """From here on whatever anybody commits is news."""
        self._newest = link.value(_NEWEST)

    def _forget(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # What is open is the parent's. Left where it is, see `pool.py`.
            self._pid, self._parents, self._link = os.getpid(), self._link, None
            self._nudge.forget()


class Teller:
    """One store's voice."""

    def __init__(self, address: Address, pool: Pool, name: str) -> None:
        self._address, self._pool = address, pool
        # By which its own listener knows it.
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wanted = threading.Event()
        # How often since the last time, about; and whether any of it may be something to claim.
        self._times = 0
        self._brings = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, *, ends: bool = False) -> None:
        """Have others told soon; `ends`: only those that heed ends."""
        if self._pid != os.getpid():
            # A fork's child has no thread.
            self._begin()
        self._times += 1
        if not ends:
            self._brings.set()
        if self._wanted.is_set() or self._closed.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed.is_set():
                    self._thread = threading.Thread(target=self._loop, name="holdfast-teller", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Tell what is left to tell, and end."""
        with self._lock:
            self._closed.set()
        if self._pid == os.getpid() and self._thread is not None:
            left = self._wanted.is_set()
            self._wanted.set()
            self._thread.join()
            if left:
                self._say()

    def _loop(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            times, self._times = self._times, 0
            self._say()
            self._closed.wait(min(PAUSE_S * times, LONGEST_PAUSE_S))

    def _say(self) -> None:
        try:
            word = self._name + END
            if self._brings.is_set():
                # Not otherwise: what comes just now would be taken away untold.
                self._brings.clear()
                word = self._name
            with faults(self._address), self._pool.link() as link:
                link.value(_NOTIFY, (channel(self._address.schema), word))
        except (HoldfastError, Conflict):
            # A hint that is lost; they look by themselves.
            pass
