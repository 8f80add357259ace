"""apsw: a separate SQLite library, usually newer than Python's; for programs that use apsw themselves."""

from typing import Any

import apsw

from .connection import STABLE_PLANS, STATEMENTS_KEPT, SqliteConnection, SqliteFault, Values


class ApswConnection:
    """One connection, used through its own cursor without the tracers that the connection may have."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._cursor = apsw.Cursor(connection)
        self._cursor.exec_trace = self._cursor.row_trace = None
        if hasattr(self._cursor, "convert_binding"):
            self._cursor.convert_binding = None
        self.execute = self._cursor.execute

    def value(self, sql: str, values: Values = ()) -> Any:
        """See `SqliteConnection`."""
        rows = self.execute(sql, values).fetchall()
        return rows[0][0] if rows else None

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """See `SqliteConnection`."""
        return self.execute(sql, values).fetchall()

    def change(self, sql: str, values: Values = ()) -> int:
        """See `SqliteConnection`."""
        self.execute(sql, values)
        return self.connection.changes()

    def give_back(self, pages: int) -> None:
        """See `SqliteConnection`."""
        self.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()

    @property
    def in_transaction(self) -> bool:
        """See `SqliteConnection`."""
        return self.connection.in_transaction

    def close(self) -> None:
        """See `SqliteConnection`."""
        self._cursor.close(True)
        self.connection.close(True)


class ApswDriver:
    """apsw."""

    name = module = "apsw"
    errors: tuple[type[Exception], ...] = (apsw.Error,)
    version = apsw.sqlite_lib_version()
    wanted = (
        "an apsw.Connection, as this store was opened with driver=apsw: two SQLite libraries in one process "
        "drop each other's locks; open it without driver= to share connections of sqlite3"
    )

    def open(self, path: str) -> SqliteConnection:
        """See `Driver`."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(path, flags, statementcachesize=STATEMENTS_KEPT)
        connection.config(STABLE_PLANS, 1)
        return ApswConnection(connection)

    def wrap(self, connection: Any) -> SqliteConnection | None:
        """See `Driver`."""
        return ApswConnection(connection) if isinstance(connection, apsw.Connection) else None

    def begin_as_library(self, connection: Any) -> None:
        """Nothing: apsw never begins a transaction by itself."""

    def fault(self, error: Exception) -> SqliteFault:
        """See `Driver`."""
        return SqliteFault(getattr(error, "extendedresult", 0), str(error))
