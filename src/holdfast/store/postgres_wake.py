"""How processes that share a schema wake each other: LISTEN and NOTIFY, and a look now and then beneath.

Who waits has a connection of its own that listens. Telling is one small statement. It is a hint: whoever
misses it, or cannot listen behind a pooler, looks by itself whether any transaction has begun since. A line
that is lost is news too: whoever waits should find out whether the server is there.
"""

import os
import secrets
import select
import threading
from typing import Any

import psycopg

from .clock import monotonic_s
from .lively import keep_lively
from .looks import Looks
from .nudge import Nudge
from .postgres_link import OwnLink
from .postgres_pool import Pool
from .postgres_sql import channel
from .postgres_tell import END
from .postgres_url import Address

# How often one who waits looks by itself: soon after news and in the end seldom where it listens (`Looks`);
# where it cannot; and while the server is away. Each look that finds a busy server costs a transaction, and
# an idle worker should be hardly noticed.
SOON_S, SELDOM_S, LOOKING_S, AWAY_S = 5.0, 30.0, 0.25, 1.0

# Changes whenever a transaction that writes begins, in whichever database: cheap, and enough for a hint.
_NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


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
            # What is open is the parent's. Left where it is, see `postgres_pool`.
            self._pid, self._parents, self._link = os.getpid(), self._link, None
            self._nudge.forget()
