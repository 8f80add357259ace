"""The connections of one store: one that writes, and some that read.

A connection is opened on first use. No connection of SQLite may be open during a fork, as the child would
believe that it holds its parent's locks. So all stores close theirs before a fork; parent and child open new
ones on their next use.
"""

import os
import threading
from pathlib import Path
from time import sleep

from ...core.errors import Closed, HoldfastError, StoreError
from ...core.layout import Layout
from ..common.clock import monotonic_s
from .connection import ERRORS, SqliteConnection
from .errors import cannot_open, faults, is_missing_table
from .guard import LockGuard, LocksLost, inode_of
from .lock import WriteQueue
from .open import NO_LAYOUT, layout_of, open_reader, open_writer
from .statements import LAYOUT
from .txn import SqliteKeepingTxn, SqliteTxn
from .wal import Checkpointer, copy_all

READERS_KEPT = 4
FORK_PATIENCE_S = 1.0
FORK_PAUSE_S = 0.001


class SqlitePool:
    """The pool. `lock` protects the connection that writes, and opening and closing."""

    def __init__(self, path: Path, patience_s: float, *, join: bool, create: bool) -> None:
        self.path, self.patience_s = path, patience_s
        self._join, self._create = join, create
        self.lock = threading.RLock()
        # Held while a reader begins, and during a fork.
        self._starting = threading.Lock()
        self.closed = False
        self._reset()

    def _reset(self) -> None:
        """Reset to the state in which nothing is open."""
        self.writer: SqliteConnection | None = None
        # The layout of the open file, and what a batch on it is.
        self.layout: Layout = NO_LAYOUT
        self.txn: type[SqliteTxn] = SqliteTxn
        # Device and inode of the open file.
        self._inode = (0, 0)
        self._readers: list[SqliteConnection] = []
        # One object for each view that uses a reader.
        self.reading: set[object] = set()
        # The `PRAGMA data_version` that was seen last.
        self.seen_version = 0
        self.queue = WriteQueue(self.path, self.patience_s)
        self.guard = LockGuard(self.path)
        self.checkpointer = Checkpointer(self.path, self.guard)

    # The writer

    def open(self) -> SqliteConnection:
        """The connection that writes, opened if necessary. The caller has the lock."""
        if self.writer is None:
            return self._open()
        if not self.guard.folder.is_unchanged():
            self._check_files()
        return self.writer

    def _check_files(self) -> None:
        """Raise `StoreError` if the file or its log is not the one that was opened."""
        if inode_of(self.path) != self._inode:
            self.disconnect()
            # What was there has vanished: nothing is accepted into a new store that looks like it.
            self._create = False
            if not os.access(self.path.parent, os.X_OK):
                raise cannot_open(self.path, "its folder cannot be entered by this user")
            text = "was removed or replaced while in use; what it held is gone with it"
            raise StoreError(f"{self.path} {text}")
        self.guard.check()
        self.guard.folder.note_checked()

    def _open(self) -> SqliteConnection:
        if self.closed:
            raise Closed(f"the store {self.path} was closed; open it again")
        self.guard.before_open()
        connection, self.layout = open_writer(self.path, self.queue, join=self._join, create=self._create)
        self.txn = SqliteKeepingTxn if self.layout.version > LAYOUT else SqliteTxn
        try:
            self._inode = inode_of(self.path)
            self.guard.watch()
            self.queue.open()
            self.checkpointer.opened()
            # From here on a commit of another connection wakes up `wait`.
            self.seen_version = connection.value("PRAGMA data_version")
            self.writer = connection
        except BaseException:
            self.discard(connection)
            raise
        return connection

    def has_new_layout(self, error: Exception, used: Layout) -> bool:
        """Whether a call failed because the file has no longer the layout `used`; then it is opened again.

        A migration renames the tables, so only this error path looks at the layout.
        """
        if not is_missing_table(error):
            return False
        with self.lock, faults(self.path):
            if self.writer is not None and layout_of(self.writer, self.path) != self.layout:
                self.disconnect()
            self.open()
            return self.layout != used

    def discard(self, connection: SqliteConnection) -> None:
        """Close a connection that was the writer; the next batch opens another. The caller has the lock."""
        self.writer = None
        self.guard.release()
        try:
            connection.close()
        except ERRORS:  # it is in no transaction, and no longer referenced
            pass

    # Readers

    def take_reader(self, user: object) -> tuple[SqliteConnection, list[SqliteConnection]]:
        """A connection that reads, and the list to return it to. `user` is in `reading` during the view."""
        if self.writer is None:
            with self.lock:
                self.open()
        self.guard.admit()
        with self._starting:
            self.reading.add(user)
            kept = self._readers
            if kept:
                return kept.pop(), kept
        return open_reader(self.path, self.layout), kept

    def keep_reader(self, connection: SqliteConnection, kept: list[SqliteConnection]) -> None:
        """Keep an intact reader for the next view."""
        with self._starting:
            # If it is another list, all connections were closed meanwhile, and this one must be too.
            if kept is self._readers and len(kept) < READERS_KEPT:
                kept.append(connection)
                return
        connection.close()

    # Closing, and forks

    def close(self) -> None:
        """Close everything; nothing can be opened any more. The caller has the lock."""
        self.closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections. The caller has the lock. Errors here do not affect commits."""
        self.checkpointer.stop()
        writer, self.writer = self.writer, None
        readers, self._readers = self._readers, []
        try:
            with faults(self.path):
                for one in readers if writer is None else self._ready_to_close([*readers, writer]):
                    one.close()
        except HoldfastError:
            pass
        self.queue.give()
        self.queue.close()
        self.checkpointer = Checkpointer(self.path, self.guard)

    def _ready_to_close(self, connections: list[SqliteConnection]) -> list[SqliteConnection]:
        """The connections that may be closed, the writer last; the log is emptied if it is the file's own."""
        try:
            self.guard.check()
        except LocksLost:
            if self.guard.keep_pinned():
                return connections
            _left_behind.append(connections)
            return []
        if self.queue.try_take():
            copy_all(connections[-1])
        self.guard.release()
        return connections

    def leave_behind(self) -> None:
        """Drop the connections in a forked child, as they belong to the parent.

        They are not closed: SQLite would release locks and delete the log.
        """
        _left_behind.append((self.writer, self._readers))
        self.queue.close()
        self.guard.forget()
        self._reset()

    def before_fork(self) -> None:
        """Close all connections; none is opened until `after_fork`."""
        self.lock.acquire()
        self._starting.acquire()
        until_s = monotonic_s() + FORK_PATIENCE_S
        while self.reading and monotonic_s() < until_s:
            sleep(FORK_PAUSE_S)
        if self.writer is not None and not self.writer.in_transaction and not self.reading:
            self.disconnect()

    def after_fork(self) -> None:
        """Allow connections again, in the parent or in the child."""
        self._starting.release()
        self.lock.release()


# References that prevent the garbage collector from closing these connections.
_left_behind: list[object] = []
