"""Checkpoints: moving what was committed from the write-ahead log into the file, beside the commits.

A commit only appends to the log. When enough has been appended a thread waits for its turn to write, copies
the log into the file, and the next writer begins the log anew. Nobody writes meanwhile: stores wait in the
same queue, and a caller's own transaction for SQLite's write lock. So the WAL-reset bug of SQLite 3.7 to
3.51.2, which needs a checkpoint and a commit at the same instant, cannot be met.
"""

import threading
from pathlib import Path
from queue import SimpleQueue
from sys import modules

from ...core.errors import HoldfastError, Unavailable, WouldBlock
from .connection import Driver, SqliteConnection
from .errors import faults
from .guard import LockGuard
from .lock import WriteQueue, begin
from .open import open_reader

PAGE_BYTES = 4096
# When to copy: at 16 MB. Each time two files are synced, and writers wait for it; so not too often.
COPY_PAGES = 4_000
# A commit touches a page of each table and index, and more as it is larger.
PAGES_OF_A_COMMIT = 8
ROWS_OF_A_PAGE = 8
# The file gives space back when more than this, and more than half of it, is empty: 40 MB; so much at once.
EMPTY_PAGES = 10_000
PAGES_GIVEN_BACK = 1_000
# Whoever writes for so long will end; then it is tried again, with the next commits.
PATIENCE_S = 5.0


class Checkpointer:
    """Counts what is written, and has a thread copy it when it is due."""

    def __init__(self, driver: Driver, path: Path, guard: LockGuard) -> None:
        self._driver, self._path, self._guard = driver, path, guard
        self._pages = 0
        # True: copy. False: end. Unlike an event it cannot be left locked by an interrupt.
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def opened(self) -> None:
        """Whoever wrote before us may have left a log behind."""
        self._pages = log_bytes(self._path) // PAGE_BYTES

    def written(self, rows: int) -> None:
        """A commit of so many rows was made."""
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
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with faults(self._driver, self._path):
                self._work()
        except HoldfastError:
            # Whatever it is, the next commit meets it too, and has somebody to tell.
            self._thread = None

    def _work(self) -> None:
        # A connection in a write transaction cannot copy: one holds writers off, and the other copies.
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
            # A log that is no longer the file's own must not be copied into it.
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
    """How large the write-ahead log is."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def copy_all(connection: SqliteConnection) -> None:
    """Copy everything and empty the log, if nobody is in the way."""
    connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _is_mostly_empty(connection: SqliteConnection) -> bool:
    empty = int(connection.value("PRAGMA freelist_count"))
    return empty > EMPTY_PAGES and empty * 2 > connection.value("PRAGMA page_count")
