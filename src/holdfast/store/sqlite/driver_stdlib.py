"""`sqlite3` of the standard library: the copy of SQLite that Django, SQLAlchemy and most programs use too."""

import sqlite3
from typing import Any

from ...core.errors import StoreError
from .connection import STABLE_PLANS, STATEMENTS_KEPT, SqliteConnection, SqliteFault, Values

# The first version with `->>`; STRICT tables and RETURNING are older.
OLDEST = (3, 38, 0)


class StdlibConnection:
    """One connection, used through its own cursor, as the caller's connection may have a row factory."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = sqlite3.Cursor(connection)
        self._cursor.row_factory = None
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
        return self.execute(sql, values).rowcount

    def give_back(self, pages: int) -> None:
        """See `SqliteConnection`."""
        # The pragma needs a step per page, and `execute` makes only one, as there is no row to fetch.
        self._cursor.executescript(f"PRAGMA incremental_vacuum({pages})")

    @property
    def in_transaction(self) -> bool:
        """See `SqliteConnection`."""
        return self.connection.in_transaction

    def close(self) -> None:
        """See `SqliteConnection`."""
        self._cursor.close()
        self.connection.close()


class StdlibDriver:
    """`sqlite3` of the standard library."""

    name, module = "stdlib", "_sqlite3"
    errors: tuple[type[Exception], ...] = (sqlite3.Error, sqlite3.Warning)
    version = sqlite3.sqlite_version
    wanted = (
        "a sqlite3.Connection, as this store uses Python's own SQLite library: two libraries in one process "
        "drop each other's locks; open it with ?driver=apsw to share connections of apsw"
    )

    def open(self, path: str) -> SqliteConnection:
        """A new connection in autocommit mode: only the store begins and ends transactions."""
        if sqlite3.sqlite_version_info < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise StoreError(
                f"Python's own SQLite is {self.version}, and must be {needed} or newer: pip install "
                "'.[apsw]' in the folder of Holdfast, which brings a newer one, and open the store with "
                "?driver=apsw"
            )
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
        )
        if hasattr(connection, "setconfig"):  # from Python 3.12 on
            connection.setconfig(STABLE_PLANS, True)
        return StdlibConnection(connection)

    def wrap(self, connection: Any) -> SqliteConnection | None:
        """See `Driver`."""
        return StdlibConnection(connection) if isinstance(connection, sqlite3.Connection) else None

    def begin_as_library(self, connection: Any) -> None:
        """Begin one as `sqlite3` does before an INSERT, unless it is configured otherwise."""
        legacy = getattr(connection, "autocommit", -1) == -1 and connection.isolation_level is not None
        if legacy and not connection.in_transaction:
            sqlite3.Cursor(connection).execute(f"BEGIN {connection.isolation_level}")

    def fault(self, error: Exception) -> SqliteFault:
        """See `Driver`."""
        return SqliteFault(getattr(error, "sqlite_errorcode", 0), str(error))
