"""A caller's own connection: found inside what people hold, looked at before it is used, and for asyncio too.

A batch on a connection of asyncio's kind runs in a thread, and each of its statements on the loop:

    the loop    await queue.add(…, connection=…) ··· the caller waits ···▶ the reply
                     │           ▲ │     ▲ │
                     │ statement │ │ rows│ │
    a thread         └▶ fn(txn) ─┘ └▶ ───┘ └▶ …

So there is one way to write jobs, whatever the library and its kind.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from ...core.errors import BadInput
from ..common.lending import async_driver_of, driver_of, is_of, kind_of
from .connection import Answer, CallersConnection, PostgresConnection, Values
from .statements import numbered
from .url import Address

NEEDED = (
    "a psycopg.Connection (psycopg 3), or a Session or Connection of SQLAlchemy (postgresql+psycopg://) or "
    "django.db.connection that has one; those of asyncio go to a queue of holdfast.connect_async"
)
ASYNC_NEEDED = (
    "a psycopg.AsyncConnection, one of asyncpg, or an AsyncSession or AsyncConnection of SQLAlchemy that has "
    "one; others go to a queue of holdfast.connect"
)
# By the library: how its transactions are begun.
_WAYS = {
    "django": "with transaction.atomic()",
    "sqlalchemy": "without isolation_level AUTOCOMMIT",
    "asyncpg": "async with connection.transaction()",
    "psycopg": "with connection.transaction()",
}

_WHERE = "SELECT current_database(), pg_postmaster_start_time()::text, to_regclass(%s) IS NOT NULL"


def borrowed(connection: Any) -> PostgresConnection:
    """A caller's connection as the store uses it; one of asyncio's kind has gone through `lend`."""
    if isinstance(connection, PostgresConnection):
        return connection
    found = driver_of(connection)
    if found is None:
        # Django's, which has not been used yet, and so is in no transaction.
        raise _outside(connection)
    if not isinstance(found, psycopg.Connection):
        raise BadInput("connection", kind_of(connection), needed=NEEDED)
    return _checked(CallersConnection(found), connection)


async def lend(connection: Any) -> PostgresConnection:
    """The same for connections of asyncio's kind, for another thread than the loop's."""
    found = await async_driver_of(connection)
    if isinstance(found, psycopg.AsyncConnection):
        own: PostgresConnection = AsyncPsycopgConnection(found)
    elif is_of(found, "asyncpg") and hasattr(found, "is_in_transaction"):
        own = AsyncpgConnection(found)
    else:
        raise BadInput("connection", kind_of(connection), needed=ASYNC_NEEDED)
    return _checked(own, connection)


def _checked(own: PostgresConnection, connection: Any) -> PostgresConnection:
    if not own.is_open:
        raise BadInput("connection", "closed", needed="open")
    if not own.in_transaction:
        raise _outside(connection)
    return own


def _outside(connection: Any) -> BadInput:
    way = next((way for library, way in _WAYS.items() if is_of(connection, library)), "BEGIN first")
    return BadInput("connection", "not in a transaction", needed=f"in one: {way}")


def place_of(connection: PostgresConnection, schema: str) -> tuple[str, str, bool]:
    """Which database of which server a connection leads to, and whether the schema is there."""
    (row,) = connection.rows(_WHERE, (f'"{schema}".version',))
    return row[0], row[1], row[2]


def check_place(theirs: tuple[str, str, bool], ours: tuple[str, str, bool], address: Address) -> None:
    """Refuse a connection that leads somewhere else."""
    if theirs != ours:
        raise BadInput("connection", f"one to the database {theirs[0]!r}", needed=f"one to {address.shown}")


class AwaitedConnection(PostgresConnection):
    """A connection that lives on a loop, used from another thread while the loop waits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def execute(self, sql: str, values: Values = ()) -> Answer:
        """Have the loop run a statement."""
        return asyncio.run_coroutine_threadsafe(self._execute(sql, values), self._loop).result()

    def _execute(self, sql: str, values: Values) -> Coroutine[Any, Any, Answer]:
        raise NotImplementedError


class AsyncPsycopgConnection(AwaitedConnection):
    """One of psycopg's."""

    async def _execute(self, sql: str, values: Values) -> Answer:
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        await cursor.execute(sql, values or None)
        return Answer(await cursor.fetchall() if cursor.description else [], cursor.rowcount)

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self._connection.closed

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or will be with the first statement."""
        idle = self._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return not (idle and self._connection.autocommit)


class AsyncpgConnection(AwaitedConnection):
    """One of asyncpg's."""

    async def _execute(self, sql: str, values: Values) -> Answer:
        library = sys.modules["asyncpg"]
        try:
            if not values and not sql.startswith("SELECT"):
                return Answer([], _count(await self._connection.execute(sql)))
            text, names = numbered(sql, cast=True)
            statement = await self._connection.prepare(text)
            rows = await statement.fetch(*(values[name] for name in names))
            return Answer([tuple(row) for row in rows], _count(statement.get_statusmsg()))
        except library.PostgresError as error:
            raise _as_psycopg(error) from None
        except (library.InterfaceError, OSError) as error:
            raise psycopg.OperationalError(str(error)) from None

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self._connection.is_closed()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._connection.is_in_transaction())


def _count(status: str) -> int:
    """How many rows: the last word of what PostgreSQL says when it has done something."""
    word = status.rpartition(" ")[2]
    return int(word) if word.isdigit() else -1


def _as_psycopg(error: Any) -> psycopg.Error:
    """The same error as psycopg would raise it: one table of them is enough."""
    try:
        return psycopg.errors.lookup(error.sqlstate)(str(error))
    except KeyError:
        found = psycopg.DatabaseError(str(error))
        found.sqlstate = error.sqlstate
        return found
