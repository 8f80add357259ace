"""Connections to PostgreSQL: made when needed, kept for the next, left behind by a fork.

A connection must not live through a fork: parent and child would speak into one socket. The child leaves
what it finds where it is, without a word to the server, and makes its own.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ...core.errors import Closed, Unavailable
from ..common.clock import monotonic_s
from .connection import OwnLink
from .url import Address

# Every table has its index for every question; statistics of a queue, full now and empty in a second, would
# only lead astray, and planning take longer than most statements. A lock that is not had in a second makes
# the batch be done again.
_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "jit")
SETTINGS = {
    **dict.fromkeys(_PLANS, "off"),
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "1s",
    # Of a call that is a transaction by itself; the others say so where they begin.
    "default_transaction_isolation": "read committed",
}
# Superusers only; for others PostgreSQL looks for circles after a second.
_SOON = {"deadlock_timeout": "50ms"}
_WHO = "SELECT pg_backend_pid(), current_setting('is_superuser') = 'on'"

# What a forked child found: kept, because the end of such a connection would be told to the server.
_left_behind: list[object] = []


class Pool:
    """At most so many connections; who finds none free waits for one."""

    def __init__(self, address: Address, prepare: Callable[[OwnLink], None], patience_s: float) -> None:
        self._address, self._prepare, self._patience_s = address, prepare, patience_s
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._free: list[OwnLink] = []
        self._used = 0
        self._returned = threading.Condition()
        self._ready = False
        self._readying = threading.Lock()
        # Whether others stand between us and our session: then it is nobody's, and nothing is left in it.
        self.pooled = not self._address.prepare
        # What each transaction begins with.
        self.settings = script_of(SETTINGS, local=True) if self.pooled else ""

    @contextmanager
    def link(self) -> Iterator[OwnLink]:
        """A connection for a while, in no transaction; one that is left in any other state is closed."""
        link = self._take()
        try:
            yield link
        finally:
            self._give(link)

    def connect(self) -> OwnLink:
        """A connection that is nobody else's, for as long as its owner likes."""
        connection = psycopg.connect(
            **self._address.parameters,
            autocommit=True,
            client_encoding="UTF8",
            prepare_threshold=None if self.pooled else 5,
        )
        link = OwnLink(connection)
        try:
            self._settle_in(link)
        except BaseException:
            link.close()
            raise
        return link

    def _settle_in(self, link: OwnLink) -> None:
        """Have our settings for all of the session, if it is ours."""
        if self.pooled:
            return
        ((number, is_super),) = link.rows(_WHO)
        if number != link.connection.info.backend_pid:
            # Whom we speak to is not whom we were told at the door.
            self.behind_a_pooler()
            link.connection.prepare_threshold = None
        else:
            link.script(script_of(SETTINGS | _SOON if is_super else SETTINGS, local=False))

    def behind_a_pooler(self) -> None:
        """What is set or prepared on one connection may be asked for on another: do neither any more."""
        self.pooled = True
        self.settings = script_of(SETTINGS, local=True)
        self.drop()

    def drop(self) -> None:
        """Close what is free: after a restart of the server all of it is dead."""
        with self._returned:
            links, self._free = self._free, []
        for link in links:
            link.close()

    def close(self) -> None:
        """Close what is free now, and the rest when it comes back."""
        self._closed = True
        if self._pid == os.getpid():
            self.drop()
            with self._returned:
                self._returned.notify_all()

    def _take(self) -> OwnLink:
        if self._pid != os.getpid():
            _left_behind.append(self._free)
            self._begin()
        self._wait_for_room()
        try:
            with self._returned:
                while self._free:
                    link = self._free.pop()
                    if link.is_open:
                        return link
            link = self.connect()
            try:
                self._make_ready(link)
            except BaseException:
                link.close()
                raise
            return link
        except BaseException:
            self._leave()
            raise

    def _wait_for_room(self) -> None:
        until_s = monotonic_s() + self._patience_s
        with self._returned:
            while self._used >= self._address.pool and not self._closed:
                if not self._returned.wait(max(until_s - monotonic_s(), 0.0)) and monotonic_s() >= until_s:
                    text = f"all {self._address.pool} connections of this process are in use"
                    raise Unavailable(
                        f"{self._address.shown}: {text}; try again, or allow more with ?pool=NUMBER"
                    )
            if self._closed:
                raise Closed(f"the store {self._address.shown} was closed; open it again")
            self._used += 1

    def _make_ready(self, link: OwnLink) -> None:
        if self._ready:
            return
        with self._readying:
            if not self._ready:
                self._prepare(link)
                self._ready = True

    def _leave(self) -> None:
        with self._returned:
            self._used -= 1
            self._returned.notify()

    def _give(self, link: OwnLink) -> None:
        if self._pid != os.getpid():
            _left_behind.append(link)
            return
        keep = link.is_open and not link.in_transaction and not self._closed
        if keep and (link.connection.prepare_threshold is None) == self.pooled:
            with self._returned:
                self._free.append(link)
        else:
            link.close()
        self._leave()


def script_of(settings: dict[str, str], *, local: bool) -> str:
    """SQL that makes settings, for a session or for one transaction."""
    word = "SET LOCAL" if local else "SET"
    return "".join(f"{word} {name} = '{value}';" for name, value in settings.items())
