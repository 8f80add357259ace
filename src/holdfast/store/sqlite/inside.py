"""Batches on SQLite connections of an application alone, also on a database in memory. For tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..common.clock import system_clock
from ..common.lending import driver_of
from ..contract import Changes, Txn
from .connection import SqliteConnection
from .errors import faults
from .notify import SqlitePresence
from .open import create_tables, needs_migration
from .txn import SqliteTxn

T = TypeVar("T")
# What errors call the database.
HERE = Path("the database of the test")
_OURS = "SELECT type, name FROM sqlite_schema WHERE type IN ('view', 'table') AND name GLOB 'holdfast_*'"


class InsideSqlite:
    """Runs batches on connections in a transaction, without the files that processes share."""

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` in the transaction of a connection, which gets the tables if it has none."""
        with faults(HERE):
            own = SqliteConnection(driver_of(connection))
            own.execute("SAVEPOINT holdfast")
            try:
                if needs_migration(own, HERE):
                    create_tables(own)
                txn = SqliteTxn(own, system_clock(), SqlitePresence(HERE))
                changes, result = fn(txn)
                txn.write_last(changes)
            except BaseException:
                if own.in_transaction:
                    own.execute("ROLLBACK TO holdfast")
                    own.execute("RELEASE holdfast")
                raise
            own.execute("RELEASE holdfast")
        return result

    def remove(self, connection: Any) -> None:
        """Remove the tables, and all jobs with them."""
        own = SqliteConnection(driver_of(connection))
        for kind, name in sorted(own.rows(_OURS), reverse=True):
            own.execute(f"DROP {kind} {name}")
