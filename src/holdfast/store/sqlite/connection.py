"""What the store needs of a SQLite library: connections, with the same few verbs for either, and its errors.

A process must use one library for a file, never two: copies of SQLite in one process do not see, and drop,
each other's locks (`guard.py`). Only the one that was chosen is imported.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

DEFAULT_DRIVER = "stdlib"

# How many prepared statements a connection keeps: all that there are, in all their sizes.
STATEMENTS_KEPT = 256

# SQLITE_DBCONFIG_ENABLE_QPSG: plans do not depend on the values bound. Otherwise current SQLites look at
# some of them while planning, such as a LIMIT, and plan anew, for 20 to 80 µs, whenever one is bound.
STABLE_PLANS = 1007

Values = list[Any] | tuple[Any, ...]


class SqliteConnection(Protocol):
    """One connection. Not for two threads at once."""

    # Runs a statement; what it returns has `fetchall`. The library's own function, so that an interrupt comes
    # before or after it, and never in between.
    execute: Callable[..., Any]

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement; how many rows it changed, not counting those that triggers changed."""

    def give_back(self, pages: int) -> None:
        """Cut so many empty pages off the file."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def close(self) -> None:
        """Close the connection."""


class SqliteFault(NamedTuple):
    """An error of a library: SQLite's extended code, 0 if it is not SQLite's own, and its text."""

    code: int
    text: str


class Driver(Protocol):
    """One of the two libraries."""

    name: str
    # The Python module that brings the library.
    module: str
    errors: tuple[type[Exception], ...]
    version: str
    # What a caller's connection must be, for whoever brings another.
    wanted: str

    def open(self, path: str) -> SqliteConnection:
        """A new connection to a file, which is created if it is not there."""

    def wrap(self, connection: Any) -> SqliteConnection | None:
        """A caller's own connection, whatever its tracers and factories; None: it is not of this library."""

    def begin_as_library(self, connection: Any) -> None:
        """Begin a transaction where the library itself would do so before the first write."""

    def fault(self, error: Exception) -> SqliteFault:
        """What went wrong."""
