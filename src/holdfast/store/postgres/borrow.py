"""A caller's own connection, also of asyncio: checked before it is used.

A batch on an asyncio connection runs in a thread, and each of its statements in the event loop:

    the loop    await queue.add(…, connection=…) ··· the caller waits ···▶ the reply
                     │           ▲ │     ▲ │
                     │ statement │ │ rows│ │
    a thread         └▶ fn(txn) ─┘ └▶ ───┘ └▶ …

So jobs are written by the same code for every library, sync and async.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from ...core.errors import BadInput
from ..common.lending import async_driver_of, driver_of, in_autocommit, is_of, kind_of, outside
from .connection import CallersConnection, PostgresConnection, QueryResult, Values
from .statements import numbered
from .url import PostgresAddress

NEEDED = (
    "a psycopg.Connection (psycopg 3), or a Session or Connection of SQLAlchemy (postgresql+psycopg://) or "
    "django.db.connection that has one; those of asyncio go to a queue of holdfast.connect_async"
)
ASYNC_NEEDED = (
    "a psycopg.AsyncConnection, one of asyncpg, or an AsyncSession or AsyncConnection of SQLAlchemy that has "
    "one; others go to a queue of holdfast.connect"
)

# The time as a number: its text depends on the settings of the session.
_WHERE = """SELECT current_database(), extract(epoch FROM pg_postmaster_start_time())::text,
to_regclass(%s) IS NOT NULL, current_setting('transaction_isolation'), current_setting('lock_timeout')"""

# The server, the database, and whether the schema exists.
Database = tuple[str, str, bool]


def borrowed(connection: Any) -> PostgresConnection:
    """Wrap a caller's connection, in a transaction or in autocommit; `lend` has wrapped one of asyncio."""
    if isinstance(connection, PostgresConnection):
        return connection
    found = driver_of(connection)
    if not isinstance(found, psycopg.Connection):
        raise BadInput("connection", kind_of(connection, found), needed=NEEDED)
    _check_mode(found)
    return _checked(CallersConnection(found), found, connection)


async def lend(connection: Any) -> PostgresConnection:
    """Wrap an asyncio connection, to be used in another thread than the event loop's."""
    found = await async_driver_of(connection)
    if isinstance(found, psycopg.AsyncConnection):
        _check_mode(found)
        own: PostgresConnection = AsyncPsycopgConnection(found)
    elif is_of(found, "asyncpg") and hasattr(found, "is_in_transaction"):
        own = AsyncpgConnection(found)
    else:
        raise BadInput("connection", kind_of(connection, found), needed=ASYNC_NEEDED)
    return _checked(own, found, connection)


def _check_mode(found: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    """Refuse a connection whose statements are answered later: what they read is needed at once."""
    if found.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
        raise BadInput("connection", "in pipeline mode", needed="used after `with connection.pipeline()`")


def _checked(own: PostgresConnection, driver: Any, connection: Any) -> PostgresConnection:
    if not own.is_open:
        raise BadInput("connection", "closed", needed="open")
    if not (own.in_transaction or in_autocommit(driver)):
        raise outside(connection)
    return own


class SessionInfo(NamedTuple):
    """What a connection leads to, and the settings of its transaction."""

    database: Database
    isolation: str
    lock_timeout: str

    @property
    def has_old_snapshot(self) -> bool:
        """Whether all statements see the database as it was at the first one."""
        return self.isolation in ("repeatable read", "serializable")


def session_of(connection: PostgresConnection, schema: str) -> SessionInfo:
    """Read the database and the settings of a connection."""
    (row,) = connection.rows(_WHERE, (f'"{schema}".version',))
    return SessionInfo(row[:3], *row[3:])


def check_database(theirs: Database, ours: Database, address: PostgresAddress) -> None:
    """Raise `BadInput` for a connection to another database."""
    if theirs != ours:
        raise BadInput("connection", f"one to the database {theirs[0]!r}", needed=f"one to {address.shown}")


class OldSnapshot(PostgresConnection):
    """What a batch reads from in a transaction that may see an old state of the jobs: it must not read."""

    is_open = in_transaction = False

    def __init__(self, isolation: str) -> None:
        self._isolation = isolation

    def execute(self, sql: str, values: Values = ()) -> QueryResult:
        """Raise `BadInput`."""
        found = f"in a {self._isolation.upper()} transaction, which may see an old state of the jobs"
        raise BadInput("connection", found, needed="in a READ COMMITTED one, except to add jobs")


class AwaitedConnection(PostgresConnection):
    """A connection of an event loop, used from another thread while its caller awaits."""

    def __init__(self, connection: Any) -> None:
        self.driver = connection
        self._loop = asyncio.get_running_loop()

    def execute(self, sql: str, values: Values = ()) -> QueryResult:
        """Run a statement in the event loop."""
        return asyncio.run_coroutine_threadsafe(self._execute(sql, values), self._loop).result()

    def _execute(self, sql: str, values: Values) -> Coroutine[Any, Any, QueryResult]:
        raise NotImplementedError


class AsyncPsycopgConnection(AwaitedConnection):
    """An asyncio connection of psycopg."""

    async def _execute(self, sql: str, values: Values) -> QueryResult:
        cursor = psycopg.AsyncCursor(self.driver, row_factory=tuple_row)
        # See `CallersConnection`.
        await cursor.execute(sql, values or None, prepare=None if values else False)
        return QueryResult(await cursor.fetchall() if cursor.description else [], cursor.rowcount)

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self.driver.closed

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE)


class AsyncpgConnection(AwaitedConnection):
    """A connection of asyncpg."""

    async def _execute(self, sql: str, values: Values) -> QueryResult:
        library = sys.modules["asyncpg"]
        try:
            if not values and not sql.startswith("SELECT"):
                return QueryResult([], _count(await self.driver.execute(sql)))
            text, names = numbered(sql, cast=True)
            statement = await self.driver.prepare(text)
            rows = await statement.fetch(*(values[name] for name in names))
            return QueryResult([tuple(row) for row in rows], _count(statement.get_statusmsg()))
        except library.PostgresError as error:
            raise _as_psycopg(error) from None
        except (library.InterfaceError, OSError) as error:
            raise psycopg.OperationalError(str(error)) from None

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self.driver.is_closed()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.driver.is_in_transaction())


def _count(status: str) -> int:
    """The number of rows in a command tag, such as `INSERT 0 3`."""
    word = status.rpartition(" ")[2]
    return int(word) if word.isdigit() else -1


def _as_psycopg(error: Any) -> psycopg.Error:
    """The psycopg exception for an asyncpg error, so that one table of errors is enough."""
    try:
        return psycopg.errors.lookup(error.sqlstate)(str(error))
    except KeyError:
        found = psycopg.DatabaseError(str(error))
        found.sqlstate = error.sqlstate
        return found
