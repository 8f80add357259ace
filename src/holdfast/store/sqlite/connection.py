"""Connections of `sqlite3`, Python's own copy of SQLite, which Django, SQLAlchemy and most programs use too.

No other copy may have the file open in the same process: they drop each other's locks (`guard.py`).
"""

import sqlite3
from typing import Any

from ...core.errors import StoreError
from ..common.lending import in_autocommit

# The first version with `->>`; STRICT tables and RETURNING are older.
OLDEST = (3, 38, 0)
ERRORS = (sqlite3.Error, sqlite3.Warning)
# How many prepared statements a connection keeps: enough for all statements in all sizes.
STATEMENTS_KEPT = 256
# SQLITE_DBCONFIG_ENABLE_QPSG: plans do not depend on bound values. Otherwise current SQLite versions use some
# of them for planning, such as a LIMIT, and plan again, for 20 to 80 µs, whenever one is bound.
STABLE_PLANS = 1007

Values = list[Any] | tuple[Any, ...]


class SqliteConnection:
    """One connection, used by one thread at a time.

    It has its own cursor, as a caller's connection may have a row factory.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = sqlite3.Cursor(connection)
        self._cursor.row_factory = None
        # Runs a statement and returns a cursor. It is the library's own function, so that a KeyboardInterrupt
        # comes before or after it, never in the middle.
        self.execute = self._cursor.execute

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""
        rows = self.execute(sql, values).fetchall()
        return rows[0][0] if rows else None

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.execute(sql, values).fetchall()

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement and return the number of rows that it changed, without changes by triggers."""
        return self.execute(sql, values).rowcount

    def give_back(self, pages: int) -> None:
        """Truncate the file by this many free pages."""
        # The pragma needs a step per page, and `execute` makes only one, as there is no row to fetch.
        self._cursor.executescript(f"PRAGMA incremental_vacuum({pages})")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.in_transaction

    @property
    def in_autocommit(self) -> bool:
        """Whether each statement commits, outside of a transaction."""
        return in_autocommit(self.connection)

    def close(self) -> None:
        """Close the connection."""
        self._cursor.close()
        self.connection.close()


def open_connection(path: str) -> SqliteConnection:
    """A new connection in autocommit mode to a file, which is created if it does not exist."""
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise StoreError(
            f"Python's own SQLite is {sqlite3.sqlite_version}, and must be {needed} or newer: "
            "use a Python that has such a one"
        )
    connection = sqlite3.connect(
        path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
    )
    if hasattr(connection, "setconfig"):  # from Python 3.12 on
        connection.setconfig(STABLE_PLANS, True)
    return SqliteConnection(connection)


def code_of(error: Exception) -> int:
    """SQLite's extended result code; 0: the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0)
