"""The SQLite store: one file, any number of processes.

    run      its turn in the queue of writers (sqlite_lock) ▶ BEGIN IMMEDIATE ▶ fn(SqliteTxn) ▶ COMMIT
    read     a connection of the pool ▶ BEGIN ▶ fn(SqliteReads) ▶ ROLLBACK
    borrow   the caller's connection ▶ SAVEPOINT ▶ fn(SqliteTxn) ▶ RELEASE; the caller commits

Nothing is opened before the first of these. The file has company while it is in use: `-wal` and `-shm`
are SQLite's own, `-lock` is the queue of writers, `-wake/` the sockets of those that wait, `-workers/` who
is there.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import BadInput, Closed, Conflict, Contended, HoldfastError, StoreError, WouldBlock
from ..common.clock import Clock, jump_of, monotonic_s, system_clock
from ..common.mending import mended
from ..contract import ReadTxn, Txn
from .borrow import begin_borrowed, find_link
from .connection import Link
from .errors import faults
from .fork import close_before_forks, leave_behind
from .guard import LockGuard, LocksLost, inode_of
from .libraries import DEFAULT, driver_named
from .lock import WriteQueue, begin
from .marks import Marks
from .mend import mend
from .notify import Wake
from .open import open_reader, open_writer
from .presence import Presence
from .reads import SqliteReads
from .report import complaints, particulars
from .txn import SqliteTxn
from .wal import Checkpointer, copy_all

T = TypeVar("T")

# How long a batch waits for its turn.
PATIENCE_S = 30.0
# How often a batch is done again when what it expected has changed: never more than once, unless the
# caller's expectation is wrong.
TRIES = 100
READERS_KEPT = 4
# How often a waiting store looks by itself whether somebody has written.
POLL_S = 0.1
FORK_PATIENCE_S = 1.0


class SqliteStore:
    """A store in one file."""

    def __init__(
        self,
        path: str | Path,
        *,
        driver: str = DEFAULT,
        clock: Clock = system_clock,
        patience_s: float = PATIENCE_S,
        join: bool = True,
        create: bool = True,
    ) -> None:
        self.path = _real(path)
        self._driver = driver_named(driver)
        self._clock = clock
        self._patience_s = patience_s
        self._join, self._create = join, create
        self._closed = False
        self._lock = threading.RLock()  # the writer
        self._pool = threading.Condition()  # the readers
        self._fresh()
        close_before_forks(self)

    def _fresh(self) -> None:
        """Nothing is open."""
        self._pid = os.getpid()
        self._writer: Link | None = None
        self._inode = (0, 0)
        self._readers: list[Link] = []
        self._reading = 0
        self._seen_version = 0
        self._marks = Marks()
        self._queue = WriteQueue(self.path, self._patience_s)
        self._wake = Wake(self.path)
        self._presence = Presence(self.path)
        self._guard = LockGuard(self.path, self._driver.module)
        self._checkpointer = self._new_checkpointer()

    def _new_checkpointer(self) -> Checkpointer:
        return Checkpointer(self._driver, self.path, self._guard)

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` as one transaction, which is on the disk when this returns."""
        with self._lock:
            for _ in range(TRIES):
                try:
                    with faults(self._driver, self.path):
                        return mended(lambda: self._attempt(fn), self._mend, self.path)
                except Conflict:
                    continue
        raise Contended(f"{self.path}: a batch was done {TRIES} times, and each time something had changed")

    def _mend(self) -> int:
        with self._lock, faults(self._driver, self.path):
            return self._attempt(lambda txn: mend(txn.link))

    def _attempt(self, fn: Callable[[SqliteTxn], T]) -> T:
        link = self._open()
        if link.in_transaction:
            raise WouldBlock("a batch must not run another batch: it would wait for itself")
        try:
            self._queue.take()
            with self._guard.fenced():
                begin(self._driver, link, self.path, self._patience_s)
                # Only now, so that in whichever process, who commits later has the later time.
                txn = SqliteTxn(link, self._clock(), self._presence, self._marks)
                txn.jump = jump_of(self._clock)
                result = fn(txn)
                self._guard.check()
                link.change("COMMIT")
                self._guard.check(committed=True)
        except BaseException:
            self._roll_back(link)
            raise
        finally:
            self._queue.give()
        self._checkpointer.written(txn.changed)
        return result

    def _roll_back(self, link: Link) -> None:
        self._marks.clear()
        try:
            # Not all errors leave a transaction: after some SQLite has rolled back by itself.
            if link.in_transaction:
                link.change("ROLLBACK")
        except self._driver.errors:
            self._writer = None
            link.close()

    def _open(self) -> Link:
        """The connection that writes, opened if need be. The caller has the lock."""
        if self._closed:
            raise Closed(f"the store {self.path} was closed; open it again")
        if self._pid != os.getpid():
            self._leave_behind()
        if self._writer is None:
            self._marks.clear()
            self._guard.before_open()
            self._writer = open_writer(
                self._driver, self.path, self._queue, join=self._join, create=self._create
            )
            self._inode = inode_of(self.path)
            self._guard.watch()
            self._checkpointer.opened()
            # From here on whatever somebody else commits is news to `wait`.
            self._seen_version = self._writer.value("PRAGMA data_version")
        elif inode_of(self.path) != self._inode:
            self._disconnect()
            raise StoreError(
                f"{self.path} was removed or replaced while in use; what it held is gone with it"
            )
        return self._writer

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on one view of the file as it is now, beside whoever writes."""
        return mended(
            lambda: self._look(lambda link: fn(SqliteReads(link, self._clock(), self._presence))),
            self._mend,
            self.path,
        )

    def _look(self, fn: Callable[[Link], T]) -> T:
        with faults(self._driver, self.path):
            link, pool = self._take_reader()
            sound = False
            try:
                link.change("BEGIN")
                result = fn(link)
                sound = True
                return result
            finally:
                self._give_reader(link, pool, sound=sound)

    def _take_reader(self) -> tuple[Link, list[Link]]:
        if self._writer is None or self._closed or self._pid != os.getpid():
            with self._lock:
                self._open()
        self._guard.admit()
        with self._pool:
            self._reading += 1
            pool = self._readers
            if pool:
                return pool.pop(), pool
        try:
            return open_reader(self._driver, self.path), pool
        except BaseException:
            self._done_reading()
            raise

    def _give_reader(self, link: Link, pool: list[Link], *, sound: bool) -> None:
        try:
            if sound:
                link.change("ROLLBACK")
                with self._pool:
                    # Another pool: all connections were closed meanwhile, and this one is of before.
                    if pool is self._readers and len(pool) < READERS_KEPT and not self._closed:
                        pool.append(link)
                        return
            link.close()
        finally:
            self._done_reading()

    def _done_reading(self) -> None:
        with self._pool:
            self._reading -= 1
            self._pool.notify_all()

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Call `fn` inside the caller's transaction, which the caller commits or rolls back.

        `connection` must be of the library that this store was opened with, lead to the same file, and
        be in a transaction; that of `sqlite3` begins one as it does before any INSERT.
        """
        with faults(self._driver, self.path, borrowed=True):
            link = self._borrowed(connection)
            return mended(lambda: self._inside(link, fn), lambda: mend(link), self.path)

    def _inside(self, link: Link, fn: Callable[[Txn], T]) -> T:
        link.change("SAVEPOINT holdfast")
        txn = SqliteTxn(link, self._clock(), self._presence)
        try:
            result = fn(txn)
        except BaseException:
            if link.in_transaction:
                link.change("ROLLBACK TO holdfast")
                link.change("RELEASE holdfast")
            raise
        link.change("RELEASE holdfast")
        self._checkpointer.written(txn.changed)
        return result

    def _borrowed(self, connection: Any) -> Link:
        link = find_link(self._driver, connection, self.path)
        if self._writer is None:
            with self._lock:
                self._open()
        self._guard.check()
        begin_borrowed(self._driver, connection, link)
        return link

    def now_ms(self) -> int:
        """The clock given at the start: processes that share a file share a machine."""
        return self._clock()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until told by another store of this file, interrupted, or until the file has changed."""
        until = monotonic_s() + timeout_s
        while True:
            left = until - monotonic_s()
            if self._closed or self._changed() or self._wake.wait(min(max(left, 0.0), POLL_S)):
                return True
            if left <= POLL_S:
                return False

    def _changed(self) -> bool:
        """Whether anybody but our own writer has committed since the last look."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            with faults(self._driver, self.path):
                link = self._open()
                # Inside a transaction of ours nothing can have changed.
                version = self._seen_version if link.in_transaction else link.value("PRAGMA data_version")
                before, self._seen_version = self._seen_version, version
                return bool(before != version)
        except HoldfastError:
            # The next verb meets it too, and has somebody to tell.
            return False
        finally:
            self._lock.release()

    def notify(self, *, ends: bool = False) -> None:
        """Wake the other stores of this file that wait."""
        self._wake.tell(ends=ends)

    def heed(self, *, ends: bool) -> None:
        """Whether to wake for ends alone."""
        self._wake.heeds_ends = ends

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._wake.interrupt()

    def appear(self, name: str) -> bool:
        """Be seen by the other stores of this file, which is opened first: it may not be there."""
        with self._lock, faults(self._driver, self.path):
            self._open()
        return self._presence.appear(name)

    def check(self) -> list[str]:
        """What is wrong, for `doctor`."""
        try:
            return self._look(lambda link: complaints(link, self.path, self._wake))
        except HoldfastError as error:
            return [str(error)]

    def facts(self) -> dict[str, str]:
        """Version, settings and sizes."""
        return self._look(lambda link: particulars(link, self.path, self._driver))

    def close(self) -> None:
        """Let go of the file; the last one to do so leaves it without a log."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._pid != os.getpid():
                self._leave_behind()
            self._disconnect()
        self._presence.close()
        self._wake.close()

    def _disconnect(self) -> None:
        """Close all connections. The caller has the lock; what is committed depends on none of this."""
        self._checkpointer.stop()
        with self._pool:
            links, self._readers = self._readers, []
        writer, self._writer = self._writer, None
        try:
            with faults(self._driver, self.path):
                for link in links if writer is None else self._ready_to_close([*links, writer]):
                    link.close()
        except HoldfastError:
            pass
        self._queue.give()
        self._queue.close()
        self._checkpointer = self._new_checkpointer()

    def _ready_to_close(self, links: list[Link]) -> list[Link]:
        """Those of all connections, the writer last, that may be closed; the log is emptied if it is ours."""
        try:
            self._guard.check()
        except LocksLost:
            if self._guard.keep_pinned():
                return links
            leave_behind(links)
            return []
        if self._queue.try_take():
            copy_all(links[-1])
        self._guard.release()
        return links

    def _leave_behind(self) -> None:
        """We are a forked child: what is still open belongs to the parent.

        Connections are not even closed: SQLite would think that it gives up locks, and tidy up.
        """
        leave_behind(self._writer, self._readers)
        self._presence.abandon()
        self._wake.abandon()
        self._queue.close()
        self._guard.forget()
        self._fresh()

    def before_fork(self) -> None:
        """Close all connections; nobody opens one until `after_fork`."""
        self._lock.acquire()
        self._pool.acquire()
        self._pool.wait_for(lambda: not self._reading, FORK_PATIENCE_S)
        if self._writer is not None and not self._writer.in_transaction and not self._reading:
            self._disconnect()

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""
        if self._pid != os.getpid():
            self._leave_behind()
        self._pool.release()
        self._lock.release()


def _real(path: str | Path) -> Path:
    """The file itself, by whichever name: all who share it must agree on those of its companions."""
    if str(path) in ("", ":memory:"):
        raise BadInput("path", str(path), needed="the name of a file; memory:// keeps jobs in memory")
    try:
        str(path).encode()
        return Path(os.path.realpath(path))
    except ValueError:
        raise BadInput("path", str(path), needed="a name that is text, without a NUL") from None
