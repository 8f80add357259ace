"""The SQLite store: one file, any number of processes.

    run      queue of writers ▶ BEGIN IMMEDIATE ▶ fn(SqliteTxn) ▶ Changes ▶ COMMIT ▶ notify
    read     a connection of the pool ▶ BEGIN ▶ fn(SqliteReads) ▶ ROLLBACK
    borrow   the caller's connection ▶ SAVEPOINT ▶ fn(SqliteTxn) ▶ Changes ▶ RELEASE; the caller commits

The file is opened by the first of these. While it is in use there are other files beside it: `-wal` and
`-shm` are SQLite's own, `-lock` is the queue of writers, `-wake/` has the sockets of waiting processes,
`-workers/` the files of running ones.
"""

import fcntl
import os
import threading
import weakref
from collections.abc import Callable
from fcntl import LOCK_UN, flock
from functools import partial
from pathlib import Path
from sys import modules
from typing import Any, TypeVar

from ...core.bounds import CLAIM_BYTES
from ...core.damage import UNREADABLE
from ...core.errors import BadInput, Conflict, Contended, HoldfastError, Unquoted, WouldBlock
from ...core.job import MISSING, plain_lease_ms
from ...core.layout import unreadable_newer
from ..common.clock import Clock, SystemClock, monotonic_s, system_clock
from ..common.records import call_with_repair
from ..contract import (
    ENDS,
    NO_WAKE,
    NOTHING,
    TRIES,
    Capabilities,
    Changes,
    ClaimQuery,
    Leased,
    NewJobs,
    OneStore,
    ReadTxn,
    StoreReport,
    Txn,
    counts_of_lease,
    first_jobs,
    only_add,
)
from .borrow import borrowed, check_transaction, lend
from .claim import find_ready
from .connection import ERRORS, SqliteConnection
from .doctor import complaints, particulars, repair_records
from .errors import faults, is_refusal, translated
from .guard import OTHERS, UNFENCE, inode_of
from .lock import NOW, begin
from .notify import SqliteNotifier, SqlitePresence
from .open import is_in_wal, needs_migration
from .pool import SqlitePool
from .reads import SqliteReads
from .statements import BODY_BYTES, LAYOUT, SQL, use_layout
from .txn import SqliteTxn, rest_of_new

T = TypeVar("T")
V = TypeVar("V")
Fn = Callable[[Txn], tuple[Changes, T]]

ADD_JOB = SQL["add_job"]
# How long a batch waits in the queue of writers.
PATIENCE_S = 30.0
# The interval at which a waiting store checks whether another process has written.
POLL_S = 0.1


class SqliteStore(OneStore):
    """A store in one file."""

    capabilities = Capabilities(reads_locally=True)

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock = system_clock,
        patience_s: float = PATIENCE_S,
        join: bool = True,
        create: bool = True,
    ) -> None:
        self.path = _real(path)
        self._clock = clock
        self._system_clock = clock if isinstance(clock, SystemClock) else None
        self._patience_s = patience_s
        self._pool = SqlitePool(self.path, patience_s, join=join, create=create)
        self._in_batch = False
        self._notifier = SqliteNotifier(self.path)
        self._presence = SqlitePresence(self.path)
        _stores.add(self)

    # Batches

    def commit(self, changes: Changes) -> bool:
        """Write changes for which nothing was read: a single new job by one statement."""
        group = only_add(changes)
        with self._pool.lock:
            is_done = self._commit_unread(changes) if group is None else self._add_one(group, changes)
        if is_done and changes.wake != NO_WAKE:
            self._notifier.notify(self._pool.guard.folder, ends=changes.wake == ENDS)
        return is_done

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Claim jobs in one transaction, if nothing else has to be decided."""

        def fn(txn: Txn) -> tuple[Changes, bool]:
            assert isinstance(txn, SqliteTxn)
            leased.clear()
            if txn.is_busy(query.now_ms):
                return NOTHING, False
            jobs = first_jobs(find_ready(txn.connection, query), CLAIM_BYTES)
            if not all([plain_lease_ms(job) >= query.lease_ms for job in jobs]):  # noqa: C419 - calls
                return NOTHING, False
            if not jobs:
                return NOTHING, True
            bodies = txn.bodies([job.id for job in jobs])
            leased.extend([(job, bodies.get(job.id, MISSING)) for job in jobs])
            txn.lease(jobs, query)
            return Changes(counts=counts_of_lease(jobs)), True

        return self.run(fn)

    def run(self, fn: Fn[T]) -> T:
        """Call `fn` as one transaction, which is on disk when this returns."""
        with self._pool.lock:
            try:
                changes, result = self._try(fn)
            except UNREADABLE:
                changes, result = call_with_repair(lambda: self._try(fn), self._repair, self.path)
        if changes.wake != NO_WAKE:
            self._notifier.notify(self._pool.guard.folder, ends=changes.wake == ENDS)
        return result

    def _add_one(self, group: NewJobs, changes: Changes) -> bool:
        """Add a single job by one statement; False if its id exists, or the store has a notice."""
        job, data = group.template, group.rows[0][1]
        if job.size > BODY_BYTES or job.mock or job.expires_at or job.schedule:
            return self._commit_unread(changes)
        row = (job.id, job.size, int(job.place), job.rank, job.tenant, job.task, rest_of_new(job), data)
        try:
            self._in_turn(self._insert, row, looks=False)
        except ERRORS as error:
            if not is_refusal(error):
                raise translated(error, self.path) from error
            return False
        return True

    def _insert(self, connection: SqliteConnection, row: tuple[Any, ...]) -> None:
        """Run the statement. That the files are still ours is checked after it: enough for an add."""
        pool = self._pool
        if not pool.guard.commit(connection.execute, ADD_JOB, row, looks=pool.guard.fence_fd >= 0):
            pool.open()
        pool.checkpointer.written(1)

    def _commit_unread(self, changes: Changes) -> bool:
        """Write the changes in a transaction, once; False if they do not fit, or the store has a notice."""

        def fn(txn: Txn) -> tuple[Changes, bool]:
            return (NOTHING, False) if txn.notice() is not None else (changes, True)

        try:
            return self._try(fn, tries=1)[1]
        except Contended:
            return False

    def _try(self, fn: Fn[T], *, tries: int = TRIES) -> tuple[Changes, T]:
        for _ in range(tries):
            layout = self._pool.layout
            try:
                return self._attempt(fn)
            except Conflict:
                continue
            except ERRORS as error:
                fault = translated(error, self.path)
                if not isinstance(fault, Conflict) and not self._pool.has_new_layout(error, layout):
                    raise fault from error
        raise Contended(f"{self.path}: a batch was done {tries} times, and each time something had changed")

    def _repair(self) -> int:
        with self._pool.lock, faults(self.path):
            return self._attempt(lambda txn: (NOTHING, self._repair_in(txn.connection)))[1]

    def _repair_in(self, connection: SqliteConnection) -> int:
        if self._pool.layout.version > LAYOUT:
            raise unreadable_newer(self.path, self._pool.layout, LAYOUT)
        return repair_records(connection)

    def _attempt(self, fn: Callable[[SqliteTxn], tuple[Changes, T]]) -> tuple[Changes, T]:
        """Call `fn` as one transaction in the queue of writers; return its changes and its result."""
        return self._in_turn(self._transact, fn)

    def _in_turn(self, write: Callable[[SqliteConnection, V], T], value: V, *, looks: bool = True) -> T:
        """Call `write` with the connection that writes, in the queue of writers.

        `looks`: whether it is checked before that the file is the one that was opened.

        In the main thread a KeyboardInterrupt may come after any call. So clean-up that must not be skipped
        is a C function called directly from a `finally`: the interrupt comes after it, not before.
        """
        if self._in_batch:
            raise WouldBlock("a batch must not run another batch: it would wait for itself")
        pool = self._pool
        connection = pool.writer
        if looks or connection is None:
            connection = pool.open()
        queue, guard = pool.queue, pool.guard
        self._in_batch, has_turn = True, False
        try:
            try:
                flock(queue.fd, NOW)
            except BlockingIOError:
                queue.take()
            has_turn = True
            for library in OTHERS:
                if library in modules:
                    guard.fence()
            return write(connection, value)
        finally:
            self._in_batch = False
            fence_fd = -1
            if has_turn:
                # Otherwise the fence is that of the thread that copies the log.
                fence_fd, guard.fence_fd = guard.fence_fd, -1
            try:
                if fence_fd >= 0:
                    fcntl.fcntl(fence_fd, fcntl.F_OFD_SETLK, UNFENCE)
            finally:
                flock(queue.fd, LOCK_UN)

    def _transact(
        self, connection: SqliteConnection, fn: Callable[[SqliteTxn], tuple[Changes, T]]
    ) -> tuple[Changes, T]:
        execute, pool, clock = connection.execute, self._pool, self._system_clock
        is_over = False
        try:
            try:
                execute("BEGIN IMMEDIATE")
            except ERRORS:
                begin(connection, self.path, self._patience_s)
            # Only now, so that a batch that commits later has a later time, in whichever process.
            now_ms = self._clock()
            txn = pool.txn(connection, now_ms, self._presence, None if clock is None else clock.jump)
            changes, result = fn(txn)
            txn.write_last(changes)
            pool.guard.commit(execute)
            is_over = True
            pool.checkpointer.written(txn.changed)
            return changes, result
        except Exception:
            # After some errors SQLite has already rolled back.
            if connection.in_transaction:
                execute("ROLLBACK")
            is_over = True
            raise
        finally:
            if not is_over:
                # It was interrupted, or the file has an error.
                pool.writer = None
                try:
                    execute("ROLLBACK")
                except ERRORS:
                    pass
                pool.discard(connection)

    # Views

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on a snapshot of the file, concurrently with writers."""
        try:
            return self._view(fn, hint=hint)
        except UNREADABLE:
            return call_with_repair(lambda: self._view(fn, hint=hint), self._repair, self.path)

    def _view(self, fn: Callable[[SqliteReads], T], *, hint: bool = False) -> T:
        pool, user = self._pool, object()
        layout = pool.layout
        try:
            connection, kept = pool.take_reader(user)
            is_sound = False
            try:
                if not hint:
                    connection.execute("BEGIN")
                result = fn(SqliteReads(connection, self._clock(), self._presence))
                if not hint:
                    connection.execute("ROLLBACK")
                is_sound = True
            finally:
                if not is_sound:
                    connection.close()
            pool.keep_reader(connection, kept)
            return result
        except ERRORS as error:
            if not pool.has_new_layout(error, layout):
                raise translated(error, self.path) from error
        finally:
            pool.reading.discard(user)
        return self._view(fn, hint=hint)

    # A caller's own connection

    def borrow(self, connection: Any, fn: Fn[T]) -> T:
        """Call `fn` inside the caller's transaction, which the caller commits or rolls back.

        `connection` must be of `sqlite3` and lead to the same file. `InAutocommit` is raised if it has no
        transaction. No process is notified: waiting processes find the commit when they poll.
        """
        with faults(self.path, borrowed=True):
            lent, layout = self._lent(connection), self._pool.layout
            try:
                return call_with_repair(
                    lambda: self._nest(lent, fn), lambda: self._repair_in(lent), self.path
                )
            except ERRORS as error:
                if not self._pool.has_new_layout(error, layout):
                    raise
                lent = self._lent(connection)
            return self._nest(lent, fn)

    def _nest(self, connection: SqliteConnection, fn: Fn[T]) -> T:
        connection.execute("SAVEPOINT holdfast")
        txn = self._pool.txn(connection, self._clock(), self._presence)
        try:
            changes, result = fn(txn)
            txn.write_last(changes)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO holdfast")
                connection.execute("RELEASE holdfast")
            raise
        connection.execute("RELEASE holdfast")
        self._pool.checkpointer.written(txn.changed)
        return result

    def _lent(self, given: Any) -> SqliteConnection:
        """The caller's connection, in a transaction; `BadInput` if it cannot be used."""
        connection = borrowed(given)
        name = connection.value("SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'")
        if not name or inode_of(Path(os.fsdecode(name))) != inode_of(self.path) or not self.path.exists():
            shown = os.fsdecode(name or b"") or "in memory"
            raise BadInput("connection", shown, needed=f"one to {self.path}")
        if self._pool.writer is None:
            self._open_beside(connection)
        self._pool.guard.check()
        check_transaction(connection)
        # From now on its commits make no checkpoints. Those of the store are made while holding the lock of
        # the write queue, which avoids the WAL-reset bug of SQLite before 3.51.3.
        connection.rows("PRAGMA wal_autocheckpoint = 0")
        if self._pool.layout.version > LAYOUT:
            use_layout(connection, self._pool.layout.version)
        return connection

    def _open_beside(self, connection: SqliteConnection) -> None:
        """Open the store; `BadInput` if the caller's transaction keeps the file from being prepared."""
        if connection.in_transaction:
            lacks = "no tables of this Holdfast" if needs_migration(connection, self.path) else ""
            lacks = lacks or ("" if is_in_wal(connection) else "no write-ahead log")
            if lacks:
                found = f"in a transaction, but the file has {lacks} yet"
                needed = "used after it was created: call queue.counts() once before your transaction"
                raise BadInput("connection", Unquoted(found), needed=needed)
        with self._pool.lock:
            self._pool.open()

    # See `Store.lend`.
    lend = staticmethod(lend)

    # Everything else

    def now_ms(self) -> int:
        """The local clock: processes that share a file are on the same machine."""
        return self._clock()

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until notified by another store of this file, interrupted, or until the file has changed."""
        until_s = monotonic_s() + timeout_s
        while True:
            left_s = until_s - monotonic_s()
            if self._pool.closed or self._has_changed():
                return True
            notified = self._notifier.wait(min(max(left_s, 0.0), POLL_S), ends=ends)
            if notified:
                # This poll takes note of the commit of the notification, so that it does not wake `wait`
                # again.
                self._has_changed()
            if notified is not None:
                return notified
            if left_s <= POLL_S:
                return False

    def _has_changed(self) -> bool:
        """Whether a connection other than our own writer has committed since the last call."""
        pool = self._pool
        if not pool.lock.acquire(blocking=False):
            return False
        try:
            # During a transaction of our own no other connection can commit.
            if self._in_batch:
                return False
            with faults(self.path):
                connection, before = pool.open(), pool.seen_version
                # Here, because a store that is being closed does not come to this line.
                self._presence.keep()
                pool.seen_version = connection.value("PRAGMA data_version")
                return before != pool.seen_version
        except HoldfastError:
            # The next call has the same error, and a caller to raise it to.
            return False
        finally:
            pool.lock.release()

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._notifier.interrupt()

    def stop_retrying(self) -> None:
        """Nothing to do: there is no server."""

    def appear(self, name: str) -> bool:
        """Announce a name to the other stores of the file, which is opened first: it may not exist."""
        with self._pool.lock, faults(self.path):
            self._pool.open()
        return self._presence.appear(name)

    def report(self) -> StoreReport:
        """Facts and problems of the store; raises an error if it cannot be opened."""
        facts = self._view(lambda view: particulars(view.connection, self.path))
        try:
            found = self._view(lambda view: complaints(view.connection, self.path, self._notifier))
        except HoldfastError as error:
            found = [str(error)]
        return StoreReport(facts, found)

    def close(self) -> None:
        """Close the file; the last process to do so leaves no write-ahead log."""
        with self._pool.lock:
            if self._pool.closed:
                return
            self._pool.close()
        self._presence.close()
        self._notifier.close()

    def before_fork(self) -> None:
        """Close all connections; none is opened until `after_fork`."""
        self._pool.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """Allow connections again, in the parent or in the child."""
        if in_child:
            self._pool.leave_behind()
            self._presence.abandon()
            self._notifier.abandon()
            self._presence, self._notifier = SqlitePresence(self.path), SqliteNotifier(self.path)
            self._in_batch = False
        self._pool.after_fork()


_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()
# The stores that each forking thread has stopped: several may fork at once, and take turns.
_forking: dict[int, list[SqliteStore]] = {}


def _before_fork() -> None:
    stores = _forking[threading.get_ident()] = sorted(_stores, key=id)
    for store in stores:
        store.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for store in reversed(_forking.pop(threading.get_ident())):
        store.after_fork(in_child=in_child)
    if in_child:
        # The other threads are the parent's.
        _forking.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, in_child=False),
    after_in_child=partial(_after_fork, in_child=True),
)


def _real(path: str | Path) -> Path:
    """The path without symbolic links: all processes must agree on the names of the files beside it."""
    if str(path) in ("", ":memory:"):
        raise BadInput("path", str(path), needed="the name of a file; memory:// keeps jobs in memory")
    try:
        str(path).encode()
        return Path(os.path.realpath(path))
    except ValueError:
        raise BadInput("path", str(path), needed="a name that is text, without a NUL") from None
