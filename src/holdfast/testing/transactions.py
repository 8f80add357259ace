"""How memory learns what became of a caller's transaction, for tests of code with `connection=`.

    Session of SQLAlchemy   its events; so also within a transaction that the test rolls back at its end
    Django                  its `on_commit`; in a `TestCase` also the end of the outer `atomic` of the test
    psycopg                 a notification, which PostgreSQL delivers with the commit
    sqlite3                 a row in the table `holdfast_testing` of the caller's database

See `store/memory/transactional.py`.
"""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from secrets import token_hex
from sys import modules
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..core.errors import BadInput
from ..engine.makers import ConnectionMaker, StoreMaker
from ..queue.connect import store_maker
from ..store.common.lending import (
    InAutocommit,
    async_driver_of,
    driver_of,
    in_autocommit,
    is_of,
    kind_of,
    outside,
)
from ..store.memory.transactional import TransactionalMemory, TransactionMark
from ..store.sqlite import borrow as sqlite_borrow
from ..store.sqlite.connection import ERRORS, SqliteConnection
from .clock import Clock

if TYPE_CHECKING:
    from ..store.postgres.connection import PostgresConnection

NEEDED = "one of SQLAlchemy (also over asyncpg), Django, psycopg, sqlite3 or aiosqlite"
SESSION, ASYNC_SESSION = "sqlalchemy.orm", "sqlalchemy.ext.asyncio.session"


class SessionMark(TransactionMark):
    """Listens to a session of SQLAlchemy."""

    def __init__(self, session: Any) -> None:
        self.owner = session
        self._state: bool | None = None
        self._transactions: list[Any] = []
        inner = session.get_nested_transaction() or session.get_transaction()
        while inner is not None:
            self._transactions.append(inner)
            inner = inner.parent
        listen = modules["sqlalchemy.event"].listen
        listen(session, "after_commit", self._after_commit)
        listen(session, "after_soft_rollback", self._after_rollback)

    def _after_commit(self, session: Any) -> None:
        is_last = session.get_nested_transaction() is None
        if self._state is None and is_last and session.get_transaction() is self._transactions[-1]:
            self._state = True

    def _after_rollback(self, _session: Any, transaction: Any) -> None:
        if self._state is None and any(one is transaction for one in self._transactions):
            self._state = False

    def is_in_transaction(self) -> bool:
        """By the events so far."""
        return self._state is None and self.owner.get_transaction() is self._transactions[-1]

    def state(self) -> bool | None:
        """By the events so far."""
        return self._state


class DjangoMark(TransactionMark):
    """A hook of `on_commit`: Django calls it after the commit, and drops it where it rolls back.

    The blocks of a `TestCase` are never committed: there the first one inside them is the transaction.
    """

    def __init__(self, connection: Any) -> None:
        self.owner, self._is_committed = connection, False
        if not connection.in_atomic_block and connection.get_autocommit():
            raise InAutocommit
        if not connection.in_atomic_block:
            raise outside(connection)
        connection.validate_no_broken_transaction()
        blocks = connection.atomic_blocks
        self._depth = next((at for at, block in enumerate(blocks) if not block._from_testcase), len(blocks))
        if self._depth == len(blocks):
            raise InAutocommit
        self._place = self._opened()
        hook = partial(self._commit)
        # Only Django keeps it.
        self._hook = ref(hook)
        connection.on_commit(hook)

    def _commit(self) -> None:
        self._is_committed = True

    def _opened(self) -> list[Any]:
        """The blocks around the transaction, its own, and their savepoints."""
        upto = self._depth + 1
        return [*self.owner.atomic_blocks[:upto], *self.owner.savepoint_ids[: self._depth]]

    def is_in_transaction(self) -> bool:
        """By the hook and the open blocks."""
        return self.state() is None

    def state(self) -> bool | None:
        """By the hook and the open blocks."""
        is_dropped = self._hook() is None
        if self._is_committed or is_dropped:
            return self._is_committed
        return True if self._depth and self._opened() != self._place else None


class SqliteMark(TransactionMark):
    """A row in the database of a caller's connection."""

    TABLE = "CREATE TABLE IF NOT EXISTS holdfast_testing (token TEXT PRIMARY KEY) WITHOUT ROWID"
    FILE = "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"
    LOOK = "SELECT count(*) FROM holdfast_testing WHERE token = ?"

    def __init__(self, connection: SqliteConnection) -> None:
        sqlite_borrow.check_transaction(connection)
        self.owner = connection.connection
        self._connection, self._token = connection, token_hex(8)
        self._file = (connection.value(self.FILE) or b"").decode()
        if not self._file and not isinstance(self.owner, sqlite3.Connection):
            raise BadInput("connection", "to a database in memory", needed="to a file, or of SQLAlchemy")
        connection.execute(self.TABLE)
        connection.execute("INSERT INTO holdfast_testing VALUES (?)", (self._token,))

    def is_in_transaction(self) -> bool:
        """By the row."""
        return self._is_written(self._connection)

    def state(self) -> bool | None:
        """By the row: as another connection to the file sees it, or the same one after its transaction."""
        try:
            has_ended = not self._connection.in_transaction
        except (*ERRORS, ValueError):
            # It is closed.
            has_ended = True
        if not self._file:
            return self._is_written(self._connection) if has_ended else None
        return self._is_committed() or (False if has_ended else None)

    def _is_committed(self) -> bool:
        try:
            other = sqlite3.connect(f"{Path(self._file).as_uri()}?mode=ro", uri=True)
        except ERRORS:
            # The file was removed.
            return False
        with closing(other):
            return self._is_written(SqliteConnection(other))

    def _is_written(self, connection: SqliteConnection) -> bool:
        try:
            return bool(connection.value(self.LOOK, (self._token,)))
        except ERRORS:
            # The table was rolled back too, or the connection is closed.
            return False


class PsycopgMark(TransactionMark):
    """A notification to the caller's own connection, which comes with the commit, and a local setting."""

    SEND = """SELECT pg_notify('holdfast_testing', %(token)s), set_config('holdfast.testing',
    coalesce(current_setting('holdfast.testing', true), '') || %(token)s, true)"""
    LOOK = "SELECT strpos(current_setting('holdfast.testing', true), %(token)s)"

    def __init__(self, connection: "PostgresConnection", driver: Any) -> None:
        if not connection.in_transaction:
            raise InAutocommit
        self.owner = driver
        self._connection, self._token, self._is_committed = connection, token_hex(8), False
        driver.add_notify_handler(self._note)
        connection.execute("LISTEN holdfast_testing")
        connection.execute(self.SEND, {"token": self._token})

    def _note(self, notification: Any) -> None:
        self._is_committed = self._is_committed or notification.payload == self._token

    def is_in_transaction(self) -> bool:
        """By the setting, which is rolled back with a savepoint too."""
        return bool(self._connection.value(self.LOOK, {"token": self._token}))

    def state(self) -> bool | None:
        """By the notification."""
        # Not by the state of the transaction, which ends a moment before the notification is here.
        is_open = self._connection.is_open
        return self._is_committed or (None if is_open else False)


def _mark(connection: Any) -> TransactionMark:
    """A mark in the transaction of a caller's connection; `InAutocommit` or `BadInput` without one."""
    if isinstance(connection, TransactionMark):
        return connection
    if is_of(connection, "django"):
        return DjangoMark(connection)
    if is_of(connection, SESSION):
        _check_session(connection)
        return SessionMark(connection)
    driver = driver_of(connection)
    if isinstance(driver, SqliteConnection | sqlite3.Connection):
        return SqliteMark(sqlite_borrow.borrowed(connection))
    if is_of(driver, "psycopg") or is_of(driver, "holdfast.store.postgres"):
        from ..store.postgres.borrow import borrowed

        own: Any = borrowed(connection)
        return PsycopgMark(own, own.driver)
    raise BadInput("connection", kind_of(connection), needed=NEEDED)


async def _lend(connection: Any) -> Any:
    """Wrap an asyncio connection, or mark its transaction."""
    if is_of(connection, ASYNC_SESSION):
        await connection.run_sync(_check_session)
        return SessionMark(connection.sync_session)
    found = await async_driver_of(connection)
    if is_of(found, "aiosqlite"):
        return await sqlite_borrow.lend(connection)
    if is_of(found, "psycopg"):
        from ..store.postgres.borrow import lend

        return await lend(connection)
    raise BadInput("connection", kind_of(connection), needed=NEEDED)


def _check_session(session: Any) -> None:
    """Raise `InAutocommit` or `BadInput` unless a session of SQLAlchemy is in a transaction."""
    driver_of(session)
    if in_autocommit(session.connection().connection.dbapi_connection):
        raise InAutocommit


class MemoryMaker(StoreMaker):
    """Opens the memory of a test, which takes connections to any database."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(lambda: TransactionalMemory(clock, mark=_mark, lend=_lend))


def maker_of(url: str, clock: Clock) -> ConnectionMaker:
    """What opens the store of a test."""
    if url == "memory://":
        return MemoryMaker(clock)
    return store_maker(url, clock=clock, follow=False)
