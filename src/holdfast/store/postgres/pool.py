"""The connection pool: connections are opened on demand, kept for reuse, and abandoned in a forked child.

Parent and child must not share a connection, as they would write to one socket. The child keeps the inherited
ones open, without a message to the server, and opens its own.

Not psycopg_pool: it has four threads in each process, knows neither forks nor interrupts, and takes 6.6 µs of
processor for each use instead of 2.6.

A KeyboardInterrupt may come at any step, also between taking a connection and the `try` that returns it. So
a permit to use one is an object that returns itself to the pool when it is garbage collected.
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
from .url import PostgresAddress

# Every query has its index. Statistics of a queue, which is full now and empty in a second, would mislead the
# planner, and planning takes longer than most statements. A batch that waits for a lock for more than a
# second is run again.
_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "jit")
SETTINGS = {
    **dict.fromkeys(_PLANS, "off"),
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "1s",
    # For calls that are their own transaction; other transactions set it in BEGIN.
    "default_transaction_isolation": "read committed",
}
# Only for superusers; for others PostgreSQL detects deadlocks after a second.
_SOON = {"deadlock_timeout": "50ms"}
_WHO = """SELECT pid, extract(epoch FROM backend_start)::text, current_setting('is_superuser') = 'on'
FROM pg_stat_activity WHERE pid = pg_backend_pid()"""
# How often a thread that waits for a connection checks whether the store was closed.
_CHECK_S = 0.2

_IDLE, _BAD = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.ConnStatus.BAD

# Connections inherited by a forked child: referenced, because closing one would send a message to the server.
_left_behind: list[object] = []


class Permit:
    """The right to use one connection of a pool. It returns to the pool when it is garbage collected."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = weakref.ref(pool)

    def __del__(self) -> None:
        if (pool := self._pool()) is not None:
            pool.permits.put(Permit(pool))


class Pool:
    """A limited number of connections; a thread that finds none free waits for one."""

    def __init__(
        self, address: PostgresAddress, make_schema_ready: Callable[[OwnConnection], None], patience_s: float
    ) -> None:
        self._address, self._make_schema_ready, self._patience_s = address, make_schema_ready, patience_s
        self.is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._free: list[OwnConnection] = []
        self.permits: queue.SimpleQueue[Permit] = queue.SimpleQueue()
        for _ in range(self._address.pool):
            self.permits.put(Permit(self))
        self.was_ready = False
        self._readying = threading.Lock()
        # Whether there is a pooler: then sessions are shared, and no state may be left in them.
        self.pooled = not self._address.prepare
        # The SQL at the start of each transaction.
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
            # Explicitly: a caller that keeps the exception keeps the frame, and so the permit, alive.
            self.permits.put(permit)
            raise

    def _take_free(self) -> OwnConnection | None:
        while self._free:
            try:
                connection = self._free.pop()
            except IndexError:
                # Another thread has taken it.
                break
            # The server says nothing to an idle connection, but that it is gone.
            if connection.pgconn.status != _BAD and not connection.has_news:
                return connection
            connection.close()
        return None

    def _make_ready(self, connection: OwnConnection) -> None:
        try:
            with self._readying:
                if not self.was_ready:
                    self._make_schema_ready(connection)
                    self.was_ready = True
        except BaseException:
            connection.close()
            raise

    def give(self, connection: OwnConnection) -> None:
        """Return a connection to the pool; one in a transaction is closed."""
        if self._pid != os.getpid():
            _left_behind.append(connection)
            return
        permit, connection.permit = connection.permit, None
        # The state of a lost connection is unknown, so it is closed too.
        is_idle = connection.pgconn.transaction_status == _IDLE
        if is_idle and not self.is_closed and connection.prepares != self.pooled:
            self._free.append(connection)
        else:
            connection.close()
        self.permits.put(permit)  # type: ignore[arg-type]

    @contextmanager
    def connection(self) -> Iterator[OwnConnection]:
        """A connection in no transaction, as a context manager."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give(connection)

    def connect(self) -> OwnConnection:
        """A new connection outside the pool, which the caller closes."""
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
        """Apply our settings to the session, unless there is a pooler."""
        if self.pooled:
            return
        ((number, began, is_super),) = connection.rows(_WHO)
        if number != connection.pgconn.backend_pid:
            # The session is another than the one that was announced at login.
            self.behind_a_pooler()
            connection.prepares = False
        else:
            connection.session = (number, began)
            connection.execute(script_of(SETTINGS | _SOON if is_super else SETTINGS, local=False))

    def behind_a_pooler(self) -> None:
        """Stop using session settings and prepared statements: the pooler may switch sessions."""
        self.pooled = True
        self.settings = script_of(SETTINGS, local=True)
        self.drop()

    def drop(self) -> None:
        """Close the free connections, which are all broken after a restart of the server."""
        while self._free:
            try:
                self._free.pop().close()
            except IndexError:
                break

    def close(self) -> None:
        """Close the free connections now, and the others when they are returned."""
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
                timeout_s, until_s = _CHECK_S, until_s or monotonic_s() + self._patience_s
                if monotonic_s() >= until_s:
                    text = f"all {self._address.pool} connections of this process are in use"
                    raise Unavailable(
                        f"{self._address.shown}: {text}; try again, or allow more with ?pool=NUMBER"
                    ) from None


def script_of(settings: dict[str, str], *, local: bool) -> str:
    """The SQL that applies settings to a session or to one transaction."""
    word = "SET LOCAL" if local else "SET"
    return "".join(f"{word} {name} = '{value}';" for name, value in settings.items())
