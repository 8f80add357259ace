"""The connections of one store: one that writes, and some that read.

Nothing is opened before it is needed. No connection of SQLite may live through a fork, as the child would
believe to hold its parent's locks: all stores close theirs before one, and open others on either side when
they are next needed.
"""

import os
import threading
from pathlib import Path
from time import sleep

from ...core.errors import Closed, HoldfastError, StoreError
from ..common.clock import monotonic_s
from .connection import Driver, SqliteConnection
from .errors import faults
from .guard import LockGuard, LocksLost, inode_of
from .lock import WriteQueue
from .open import open_reader, open_writer
from .wal import Checkpointer, copy_all

READERS_KEPT = 4
FORK_PATIENCE_S = 1.0
FORK_PAUSE_S = 0.001


class SqlitePool:
    """See above. `lock` is for the connection that writes, and for whatever opens and closes."""

    def __init__(
        self, path: Path, driver: Driver, patience_s: float, *, join: bool = True, create: bool = True
    ) -> None:
        self.path, self.driver, self.patience_s = path, driver, patience_s
        self._name = str(path)
        self._join, self._create = join, create
        self.lock = threading.RLock()
        # Held while a reader begins, and during a fork.
        self._starting = threading.Lock()
        self.closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        """Nothing is open."""
        self.writer: SqliteConnection | None = None
        # Which file is open.
        self._inode = (0, 0)
        self._readers: list[SqliteConnection] = []
        # Who uses a reader: something of its own for each view.
        self.reading: set[object] = set()
        # The `PRAGMA data_version` that was seen last.
        self.seen_version = 0
        self.queue = WriteQueue(self.path, self.patience_s)
        self.guard = LockGuard(self.path, self.driver.module)
        self.checkpointer = self._new_checkpointer()

    def _new_checkpointer(self) -> Checkpointer:
        return Checkpointer(self.driver, self.path, self.guard)

    # The one that writes

    def open(self) -> SqliteConnection:
        """The connection that writes, opened if need be. The caller has the lock."""
        if self.writer is None:
            return self._open()
        try:
            found = os.stat(self._name)  # noqa: PTH116 - for each batch
            if (found.st_dev, found.st_ino) == self._inode:
                return self.writer
        except FileNotFoundError:
            pass
        self.disconnect()
        raise StoreError(f"{self.path} was removed or replaced while in use; what it held is gone with it")

    def _open(self) -> SqliteConnection:
        if self.closed:
            raise Closed(f"the store {self.path} was closed; open it again")
        self.guard.before_open()
        connection = open_writer(self.driver, self.path, self.queue, join=self._join, create=self._create)
        try:
            self._inode = inode_of(self.path)
            self.guard.watch()
            self.queue.open()
            self.checkpointer.opened()
            # From here on whatever somebody else commits is news to `wait`.
            self.seen_version = connection.value("PRAGMA data_version")
            self.writer = connection
        except BaseException:
            self.discard(connection)
            raise
        return connection

    def discard(self, connection: SqliteConnection) -> None:
        """Close a connection that was the writer; the next batch opens another. The caller has the lock."""
        self.writer = None
        self.guard.release()
        try:
            connection.close()
        except self.driver.errors:  # it is in no transaction any more, and nothing leads to it
            pass

    # Those that read

    def take_reader(self, user: object) -> tuple[SqliteConnection, list[SqliteConnection]]:
        """A connection that reads, and where it is kept. `user` stays in `reading` until the view is over."""
        if self.writer is None:
            with self.lock:
                self.open()
        self.guard.admit()
        with self._starting:
            self.reading.add(user)
            kept = self._readers
            if kept:
                return kept.pop(), kept
        return open_reader(self.driver, self.path), kept

    def keep_reader(self, connection: SqliteConnection, kept: list[SqliteConnection]) -> None:
        """Keep a reader that is sound for the next view."""
        with self._starting:
            # Another list: all connections were closed meanwhile, and this one is of before.
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
        """Close all connections. The caller has the lock; what is committed depends on none of this."""
        self.checkpointer.stop()
        writer, self.writer = self.writer, None
        readers, self._readers = self._readers, []
        try:
            with faults(self.driver, self.path):
                for one in readers if writer is None else self._ready_to_close([*readers, writer]):
                    one.close()
        except HoldfastError:
            pass
        self.queue.give()
        self.queue.close()
        self.checkpointer = self._new_checkpointer()

    def _ready_to_close(self, connections: list[SqliteConnection]) -> list[SqliteConnection]:
        """Those of all connections, the writer last, that may be closed; the log is emptied if it is ours."""
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
        """We are a forked child: what is still open belongs to the parent.

        Connections are not even closed: SQLite would think that it gives up locks, and tidy up.
        """
        _left_behind.append((self.writer, self._readers))
        self.queue.close()
        self.guard.forget()
        self._start_anew()

    def before_fork(self) -> None:
        """Close all connections; nobody opens one until `after_fork`."""
        self.lock.acquire()
        self._starting.acquire()
        until_s = monotonic_s() + FORK_PATIENCE_S
        while self.reading and monotonic_s() < until_s:
            sleep(FORK_PAUSE_S)
        if self.writer is not None and not self.writer.in_transaction and not self.reading:
            self.disconnect()

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""
        self._starting.release()
        self.lock.release()


# Never closed, not even when nothing leads to them any more.
_left_behind: list[object] = []
