"""The interface to a SQLite library: connections and errors, the same for both libraries.

A process must use one library for a file, never two: copies of SQLite in one process do not see, and drop,
each other's locks (`guard.py`). Only the chosen library is imported.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

DEFAULT_DRIVER = "stdlib"

# How many prepared statements a connection keeps: enough for all statements in all sizes.
STATEMENTS_KEPT = 256

# SQLITE_DBCONFIG_ENABLE_QPSG: plans do not depend on bound values. Otherwise current SQLite versions use some
# of them for planning, such as a LIMIT, and plan again, for 20 to 80 µs, whenever one is bound.
STABLE_PLANS = 1007

Values = list[Any] | tuple[Any, ...]


class SqliteConnection(Protocol):
    """One connection, used by one thread at a time."""

    # Runs a statement and returns a cursor. It is the library's own function, so that a KeyboardInterrupt
    # comes before or after it, never in the middle.
    execute: Callable[..., Any]

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement and return the number of rows that it changed, without changes by triggers."""

    def give_back(self, pages: int) -> None:
        """Truncate the file by this many free pages."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def close(self) -> None:
        """Close the connection."""


class SqliteFault(NamedTuple):
    """An error of a library: SQLite's extended result code, 0 if there is none, and its text."""

    code: int
    text: str


class Driver(Protocol):
    """One of the two libraries."""

    name: str
    # The Python module that contains the library.
    module: str
    errors: tuple[type[Exception], ...]
    version: str
    # The kind of connection that `borrow` needs, for the error if it gets another.
    wanted: str

    def open(self, path: str) -> SqliteConnection:
        """A new connection to a file, which is created if it does not exist."""

    def wrap(self, connection: Any) -> SqliteConnection | None:
        """A caller's own connection, whatever its tracers and factories; None if it is of another library."""

    def begin_as_library(self, connection: Any) -> None:
        """Begin a transaction if the library itself would do so before the first write."""

    def fault(self, error: Exception) -> SqliteFault:
        """The code and text of an error."""
