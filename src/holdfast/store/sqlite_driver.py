"""The two SQLite libraries behind one small face.

apsw brings its own, current SQLite; `sqlite3` of the standard library has the one that Django and
SQLAlchemy use too. A process must use one of them for a file, never both: two copies of SQLite in a
process do not see each other's locks. A `Link` is one connection, and the same four verbs for either.
"""

import sqlite3
from typing import Any, NamedTuple, Protocol

import apsw

from ..core.errors import BadInput, StoreError

# How many prepared statements a connection keeps: all that there are, in all their sizes.
STATEMENTS_KEPT = 256
# `->>` came with it. apsw's own is always newer.
OLDEST = (3, 38, 0)

# SQLITE_DBCONFIG_ENABLE_QPSG: plans do not depend on the values bound. Otherwise current SQLites look at
# some of them while planning, such as a LIMIT, and plan anew, for 20 to 80 µs, whenever one is bound.
STABLE_PLANS = 1007

Values = list[Any] | tuple[Any, ...]


class Link(Protocol):
    """One connection. Not for two threads at once."""

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement; how many rows it changed."""

    def give_back(self, pages: int) -> None:
        """Cut so many empty pages off the file."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def close(self) -> None:
        """Close the connection."""


class Fault(NamedTuple):
    """An error of a library: SQLite's extended code, 0 if it is not SQLite's own, and its text."""

    code: int
    text: str


class Driver(Protocol):
    """One of the two libraries."""

    name: str
    errors: tuple[type[Exception], ...]
    version: str
    # What a caller's connection must be, for whoever brings another.
    wanted: str

    def open(self, path: str) -> Link:
        """A new connection to a file, which is created if it is not there."""

    def lent(self, connection: Any) -> Link | None:
        """A caller's own connection, whatever its tracers and factories; None: it is not of this library."""

    def begin_as_library(self, connection: Any) -> None:
        """Begin a transaction where the library itself would do so before the first write."""

    def fault(self, error: Exception) -> Fault:
        """What went wrong."""


class _ApswLink:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        # A cursor of our own making: None is "no tracer", where the connection may have one.
        self._cursor = apsw.Cursor(connection)
        self._cursor.exec_trace = self._cursor.row_trace = None
        if hasattr(self._cursor, "convert_binding"):
            self._cursor.convert_binding = None

    def value(self, sql: str, values: Values = ()) -> Any:
        rows = self._cursor.execute(sql, values).fetchall()
        return rows[0][0] if rows else None

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(sql, values).fetchall()

    def change(self, sql: str, values: Values = ()) -> int:
        before = self.connection.total_changes()
        self._cursor.execute(sql, values).fetchall()
        return self.connection.total_changes() - before

    def give_back(self, pages: int) -> None:
        self._cursor.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def close(self) -> None:
        self._cursor.close(True)
        self.connection.close(True)


class _StdlibLink:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = sqlite3.Cursor(connection)
        self._cursor.row_factory = None

    def value(self, sql: str, values: Values = ()) -> Any:
        rows = self._cursor.execute(sql, values).fetchall()
        return rows[0][0] if rows else None

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(sql, values).fetchall()

    def change(self, sql: str, values: Values = ()) -> int:
        before = self.connection.total_changes
        self._cursor.execute(sql, values).fetchall()
        return self.connection.total_changes - before

    def give_back(self, pages: int) -> None:
        # A step per page, of which `execute` takes one: there is no column to fetch.
        self._cursor.executescript(f"PRAGMA incremental_vacuum({pages})")

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def close(self) -> None:
        self._cursor.close()
        self.connection.close()


class ApswDriver:
    """apsw."""

    name = "apsw"
    errors: tuple[type[Exception], ...] = (apsw.Error,)
    version = apsw.sqlite_lib_version()
    wanted = (
        "an apsw.Connection, as this store was opened with driver=apsw: two SQLite libraries in one process "
        "do not see each other's locks; open it with ?driver=stdlib to share connections of sqlite3"
    )

    def open(self, path: str) -> Link:
        """A new connection."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(path, flags, statementcachesize=STATEMENTS_KEPT)
        connection.config(STABLE_PLANS, 1)
        return _ApswLink(connection)

    def lent(self, connection: Any) -> Link | None:
        """A caller's connection."""
        return _ApswLink(connection) if isinstance(connection, apsw.Connection) else None

    def begin_as_library(self, connection: Any) -> None:
        """apsw begins nothing by itself."""

    def fault(self, error: Exception) -> Fault:
        """What went wrong."""
        return Fault(getattr(error, "extendedresult", 0), str(error))


class StdlibDriver:
    """`sqlite3` of the standard library."""

    name = "stdlib"
    errors: tuple[type[Exception], ...] = (sqlite3.Error, sqlite3.Warning)
    version = sqlite3.sqlite_version
    wanted = (
        "a sqlite3.Connection, as this store was opened with driver=stdlib: two SQLite libraries in one "
        "process do not see each other's locks; open it with ?driver=apsw to share connections of apsw"
    )

    def open(self, path: str) -> Link:
        """A new connection, whose transactions are begun and ended by nobody but us."""
        if sqlite3.sqlite_version_info < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise StoreError(
                f"Python's own SQLite is {self.version}, and must be {needed} or newer: use driver=apsw"
            )
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
        )
        if hasattr(connection, "setconfig"):  # from Python 3.12 on
            connection.setconfig(STABLE_PLANS, True)
        return _StdlibLink(connection)

    def lent(self, connection: Any) -> Link | None:
        """A caller's connection."""
        return _StdlibLink(connection) if isinstance(connection, sqlite3.Connection) else None

    def begin_as_library(self, connection: Any) -> None:
        """Unless told otherwise, `sqlite3` begins a transaction before an INSERT: ours count as such."""
        legacy = getattr(connection, "autocommit", -1) == -1 and connection.isolation_level is not None
        if legacy and not connection.in_transaction:
            sqlite3.Cursor(connection).execute(f"BEGIN {connection.isolation_level}")

    def fault(self, error: Exception) -> Fault:
        """What went wrong."""
        return Fault(getattr(error, "sqlite_errorcode", 0), str(error))


DRIVERS: dict[str, Driver] = {"apsw": ApswDriver(), "stdlib": StdlibDriver()}


def driver_named(name: str) -> Driver:
    """The driver that a URL or an argument names."""
    if name not in DRIVERS:
        raise BadInput("driver", name, needed="apsw or stdlib")
    return DRIVERS[name]
