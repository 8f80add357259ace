"""Checkpoints: a thread copies the write-ahead log into the file.

A commit only appends to the log. When the log is large enough a thread takes the lock of the write queue and
copies the log into the file, and the next writer starts the log from its beginning. No commit happens
meanwhile: stores wait in the write queue, and a caller's own transaction waits for SQLite's write lock. This
avoids the WAL-reset bug of SQLite 3.7 to 3.51.2, which needs a checkpoint and a commit at the same time.
"""

import threading
from pathlib import Path
from queue import SimpleQueue
from sys import modules
from time import sleep

from ...core.errors import HoldfastError, Unavailable, WouldBlock
from .connection import Driver, SqliteConnection
from .errors import faults
from .guard import LockGuard
from .lock import WriteQueue, begin
from .open import open_reader

PAGE_BYTES = 4096
# The log is copied at 16 MB. A copy syncs two files while writers wait, so it should not be frequent.
COPY_PAGES = 4_000
# An estimate of the pages that a commit writes: one of each table and index, and more for many rows.
PAGES_OF_A_COMMIT = 8
ROWS_OF_A_PAGE = 8
# The file is truncated when more than this (40 MB), and more than half of it, is free; some pages at a time.
EMPTY_PAGES = 10_000
PAGES_GIVEN_BACK = 1_000
# How long the thread waits for a writer; after that it tries again with the next commits.
PATIENCE_S = 5.0


class Checkpointer:
    """Counts the pages written, and starts a thread that copies the log when it is large enough."""

    def __init__(self, driver: Driver, path: Path, guard: LockGuard) -> None:
        self._driver, self._path, self._guard = driver, path, guard
        self._pages = 0
        # True: copy. False: stop. Unlike an Event it cannot be left locked by a KeyboardInterrupt.
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def opened(self) -> None:
        """Count the log that earlier writers may have left."""
        self._pages = log_bytes(self._path) // PAGE_BYTES

    def written(self, rows: int) -> None:
        """Count a commit of `rows` rows."""
        self._pages += PAGES_OF_A_COMMIT + rows // ROWS_OF_A_PAGE
        if self._pages < COPY_PAGES:
            return
        self._pages = 0
        self._orders.put(True)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-checkpoint", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Wait for the thread to end."""
        self._orders.put(False)
        # One that was interrupted as it was started may not have been.
        while (thread := self._thread) is not None and thread.ident is not None:
            try:
                thread.join()
                break
            except RuntimeError:
                # It has its number, and will be started in a moment.
                sleep(0.001)

    def _run(self) -> None:
        try:
            with faults(self._driver, self._path):
                self._work()
        except HoldfastError:
            # The next commit has the same error, and a caller to raise it to.
            self._thread = None

    def _work(self) -> None:
        # A connection in a write transaction cannot copy: one blocks other writers, the other copies.
        holder, connection = (open_reader(self._driver, self._path) for _ in range(2))
        queue = WriteQueue(self._path, PATIENCE_S)
        try:
            for one in (holder, connection):
                one.rows("PRAGMA query_only = 0")
            while self._orders.get():
                try:
                    self._copy_in_turn(queue, holder, connection)
                except (Unavailable, WouldBlock):
                    continue
        finally:
            queue.close()
            holder.close()
            connection.close()

    def _copy_in_turn(
        self, queue: WriteQueue, holder: SqliteConnection, connection: SqliteConnection
    ) -> None:
        try:
            queue.take()
            for library in self._guard.others:
                if library in modules:
                    self._guard.fence()
            begin(self._driver, holder, self._path, PATIENCE_S)
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
            queue.give()


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
