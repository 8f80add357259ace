"""Connections to PostgreSQL: made when needed, kept for the next, left behind by a fork.

A connection must not live through a fork: parent and child would speak into one socket. The child leaves what
it finds where it is, without a word to the server, and makes its own.

An interrupt may strike at any step, also between the taking of a connection and the `try` that gives it back.
So a permit to use one is an object that returns by itself when nobody has it any more.
"""

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ...core.errors import Closed, Unavailable
from ..common.clock import monotonic_s
from .connection import OwnConnection
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
# How often a thread that waits for a connection looks whether the store was closed.
_LOOK_S = 0.2

_IDLE, _BAD = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.ConnStatus.BAD

# What a forked child found: kept, because the end of such a connection would be told to the server.
_left_behind: list[object] = []


class Permit:
    """What lets one connection of a pool be used. It returns to the pool when it is dropped."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = weakref.ref(pool)

    def __del__(self) -> None:
        if (pool := self._pool()) is not None:
            pool.permits.put(Permit(pool))


class Pool:
    """At most so many connections; a thread that finds none free waits for one."""

    def __init__(self, address: Address, prepare: Callable[[OwnConnection], None], patience_s: float) -> None:
        self._address, self._prepare, self._patience_s = address, prepare, patience_s
        self.is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._free: list[OwnConnection] = []
        self.permits: queue.SimpleQueue[Permit] = queue.SimpleQueue()
        for _ in range(self._address.pool):
            self.permits.put(Permit(self))
        self.was_ready = False
        self.was_readying = threading.Lock()
        # Whether others stand between us and our session: then it is nobody's, and nothing is left in it.
        self.pooled = not self._address.prepare
        # What each transaction begins with.
        self.settings = script_of(SETTINGS, local=True) if self.pooled else ""

    def take(self) -> OwnConnection:
        """A connection in no transaction, until `give`."""
        if self._pid != os.getpid():
            _left_behind.extend((self._free, self.permits))
            self._begin()
        permit = self._permit()
        try:
            connection = self._take_free() or self.connect()
            connection.permit = permit
            if not self.was_ready:
                self._make_ready(connection)
            return connection
        except BaseException:
            # Not left to the permit itself: whoever keeps the error keeps all that this function had.
            self.permits.put(permit)
            raise

    def _take_free(self) -> OwnConnection | None:
        while self._free:
            try:
                connection = self._free.pop()
            except IndexError:
                # Another thread was faster.
                break
            if connection.pgconn.status != _BAD:
                return connection
        return None

    def _make_ready(self, connection: OwnConnection) -> None:
        try:
            with self.was_readying:
                if not self.was_ready:
                    self._prepare(connection)
                    self.was_ready = True
        except BaseException:
            connection.close()
            raise

    def give(self, connection: OwnConnection) -> None:
        """Give a connection back; one that is left in a transaction is closed."""
        if self._pid != os.getpid():
            _left_behind.append(connection)
            return
        permit, connection.permit = connection.permit, None
        # A connection that is lost is in no known state either.
        is_idle = connection.pgconn.transaction_status == _IDLE
        if is_idle and not self.is_closed and connection.prepares != self.pooled:
            self._free.append(connection)
        else:
            connection.close()
        self.permits.put(permit)  # type: ignore[arg-type]

    @contextmanager
    def connection(self) -> Iterator[OwnConnection]:
        """A connection for a while, in no transaction."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give(connection)

    def connect(self) -> OwnConnection:
        """A connection that is nobody else's, for as long as its owner likes."""
        connection = OwnConnection(
            psycopg.connect(**self._address.parameters, autocommit=True, client_encoding="UTF8"),
            prepares=not self.pooled,
        )
        try:
            self._settle_in(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _settle_in(self, connection: OwnConnection) -> None:
        """Have our settings for all of the session, if it is ours."""
        if self.pooled:
            return
        ((number, is_super),) = connection.rows(_WHO)
        if number != connection.pgconn.backend_pid:
            # Whom we speak to is not whom we were told at the door.
            self.behind_a_pooler()
            connection.prepares = False
        else:
            connection.execute(script_of(SETTINGS | _SOON if is_super else SETTINGS, local=False))

    def behind_a_pooler(self) -> None:
        """What is set or prepared on one connection may be asked for on another: do neither any more."""
        self.pooled = True
        self.settings = script_of(SETTINGS, local=True)
        self.drop()

    def drop(self) -> None:
        """Close what is free: after a restart of the server all of it is dead."""
        while self._free:
            try:
                self._free.pop().close()
            except IndexError:
                break

    def close(self) -> None:
        """Close what is free now, and the rest when it comes back."""
        self.is_closed = True
        if self._pid == os.getpid():
            self.drop()

    def _permit(self) -> Permit:
        timeout_s, until_s = 0.0, 0.0
        while True:
            if self.is_closed:
                raise Closed(f"the store {self._address.shown} was closed; open it again")
            try:
                return self.permits.get(True, timeout_s)
            except queue.Empty:
                timeout_s, until_s = _LOOK_S, until_s or monotonic_s() + self._patience_s
                if monotonic_s() >= until_s:
                    text = f"all {self._address.pool} connections of this process are in use"
                    raise Unavailable(
                        f"{self._address.shown}: {text}; try again, or allow more with ?pool=NUMBER"
                    ) from None


def script_of(settings: dict[str, str], *, local: bool) -> str:
    """SQL that makes settings, for a session or for one transaction."""
    word = "SET LOCAL" if local else "SET"
    return "".join(f"{word} {name} = '{value}';" for name, value in settings.items())
