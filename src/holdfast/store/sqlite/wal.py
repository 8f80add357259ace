"""Checkpoints: a thread copies the write-ahead log into the file.

A commit only appends to the log. When the log is large enough a thread takes the lock of the write queue and
copies the log into the file, and the next writer starts the log from its beginning. No commit happens
meanwhile: stores wait in the write queue, and a caller's own transaction waits for SQLite's write lock. This
avoids the WAL-reset bug of SQLite 3.7 to 3.51.2, which needs a checkpoint and a commit at the same time.
"""

import threading
from _thread import start_new_thread
from contextlib import closing
from pathlib import Path
from sys import modules

from ...core.errors import HoldfastError
from .connection import SqliteConnection
from .errors import faults
from .guard import OTHERS, LockGuard
from .lock import WriteQueue, begin
from .open import PAGE_BYTES, open_reader

# The log is copied at 16 MB. A copy syncs two files while writers wait, so it should not be frequent.
COPY_PAGES = 8_000
# An estimate of the pages that a commit writes: one of each table and index, and more for many rows.
PAGES_OF_A_COMMIT = 8
ROWS_OF_A_PAGE = 8
# The file is truncated when more than this (20 MB), and more than half of it, is free; some pages at a time.
EMPTY_PAGES = 10_000
PAGES_GIVEN_BACK = 1_000
# How long the thread waits for a writer; after that it tries again with the next commits.
PATIENCE_S = 5.0


class Checkpointer:
    """Counts the pages written, and copies the log in a thread when it is large enough."""

    def __init__(self, path: Path, guard: LockGuard) -> None:
        self._path, self._guard = path, guard
        self._pages = 0
        # Held by a thread that copies. After `stop` none begins.
        self._copying = threading.Lock()
        self._is_stopped = False

    def opened(self) -> None:
        """Count the log that earlier writers may have left."""
        self._pages = log_bytes(self._path) // PAGE_BYTES

    def written(self, rows: int) -> None:
        """Count a commit of `rows` rows."""
        self._pages += PAGES_OF_A_COMMIT + rows // ROWS_OF_A_PAGE
        if self._pages >= COPY_PAGES:
            self._pages = 0
            # A KeyboardInterrupt during `threading.Thread.start` can leave a thread that waits for ever.
            start_new_thread(self._run, ())

    def stop(self) -> None:
        """Wait for a copy to end."""
        self._is_stopped = True
        with self._copying:
            pass

    def _run(self) -> None:
        with self._copying:
            if self._is_stopped:
                return
            try:
                with faults(self._path):
                    self._copy()
            except HoldfastError:
                # The next commit has the same error, and a caller to raise it to.
                pass

    def _copy(self) -> None:
        queue = WriteQueue(self._path, PATIENCE_S)
        try:
            queue.take()
            # A connection in a write transaction cannot copy: one blocks other writers, the other copies.
            with closing(self._open()) as holder, closing(self._open()) as connection:
                self._copy_with(holder, connection)
        finally:
            queue.give()
            queue.close()

    def _open(self) -> SqliteConnection:
        connection = open_reader(self._path)
        connection.rows("PRAGMA query_only = 0")
        return connection

    def _copy_with(self, holder: SqliteConnection, connection: SqliteConnection) -> None:
        try:
            for library in OTHERS:
                if library in modules:
                    self._guard.fence()
            begin(holder, self._path, PATIENCE_S)
            # A log that does not belong to the file must not be copied into it.
            self._guard.check()
            connection.rows("PRAGMA wal_checkpoint(PASSIVE)")
            holder.execute("ROLLBACK")
            if _is_mostly_empty(connection):
                connection.give_back(PAGES_GIVEN_BACK)
        finally:
            if holder.in_transaction:
                holder.execute("ROLLBACK")
            self._guard.unfence()


def log_bytes(path: Path) -> int:
    """The size of the write-ahead log."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def copy_all(connection: SqliteConnection) -> None:
    """Copy the whole log and empty it, unless readers or writers prevent it."""
    connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _is_mostly_empty(connection: SqliteConnection) -> bool:
    empty = int(connection.value("PRAGMA freelist_count"))
    return empty > EMPTY_PAGES and empty * 2 > connection.value("PRAGMA page_count")
