"""A caller's own connection, also of asyncio: a `sqlite3.Connection`, or one that wraps it."""

import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, Self

from ...core.errors import BadInput
from ..common.lending import InAutocommit, async_driver_of, driver_of, in_autocommit, is_of, kind_of, outside
from .connection import SqliteConnection, Values

NEEDED = (
    "a sqlite3.Connection, or a Session or Connection of SQLAlchemy or django.db.connection that has one, as "
    "the store uses Python's own SQLite library: two libraries in one process drop each other's locks. Those "
    "of asyncio go to a queue of holdfast.connect_async"
)
ASYNC_NEEDED = (
    "an aiosqlite.Connection, or an AsyncSession or AsyncConnection of SQLAlchemy that has one "
    "(sqlite+aiosqlite://); others go to a queue of holdfast.connect"
)


class AiosqliteConnection(SqliteConnection):
    """A connection of aiosqlite, used from another thread than the event loop's while its caller awaits."""

    def __init__(
        self,
        connection: Any,
        cursor: Any,
        wait: Callable[[Coroutine[Any, Any, Any]], Any],
        *,
        autocommits: bool,
    ) -> None:
        self.connection, self._autocommits = connection, autocommits
        self._awaited_cursor, self._wait = cursor, wait
        self.execute: Any = self._execute_in_loop

    def _execute_in_loop(self, sql: str, values: Values = ()) -> Self:
        self._wait(self._awaited_cursor.execute(sql, values))
        return self

    @property
    def in_autocommit(self) -> bool:
        """Whether each statement commits, outside of a transaction."""
        return self._autocommits

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows of the last statement."""
        return [*self._wait(self._awaited_cursor.fetchall())]

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed."""
        return int(self._awaited_cursor.rowcount)


def borrowed(connection: Any) -> SqliteConnection:
    """Wrap a caller's connection; `lend` has wrapped one of asyncio."""
    if isinstance(connection, SqliteConnection):
        return connection
    found = driver_of(connection)
    if not isinstance(found, sqlite3.Connection):
        raise BadInput("connection", kind_of(connection, found), needed=NEEDED)
    return SqliteConnection(found)


async def lend(connection: Any) -> SqliteConnection:
    """Wrap an asyncio connection, to be used in another thread than the event loop's."""
    import asyncio

    found = await async_driver_of(connection)
    if not (is_of(found, "aiosqlite") and hasattr(found, "cursor")):
        raise BadInput("connection", kind_of(connection, found), needed=ASYNC_NEEDED)
    try:
        cursor = await found.cursor()
    except ValueError:
        raise BadInput("connection", "closed", needed="open") from None
    # The caller's connection may have a row factory.
    cursor.row_factory = None
    loop = asyncio.get_running_loop()
    # In the connection's own thread: from Python 3.12 on others may not ask.
    autocommits = await found._execute(in_autocommit, found._conn)
    return AiosqliteConnection(
        found,
        cursor,
        lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(),
        autocommits=autocommits,
    )


def check_transaction(connection: SqliteConnection) -> None:
    """Raise `InAutocommit` or `BadInput` unless a transaction is open."""
    if not connection.in_transaction:
        raise InAutocommit if connection.in_autocommit else outside(connection.connection)
