"""Checkpoints: every write to the file or its log happens under the lock that writers queue for."""

import fcntl
import os
import re
import sqlite3
import threading
from contextlib import closing
from functools import partial

import pytest

from holdfast.store.contract import Changes
from holdfast.store.sqlite import wal as sqlite_wal
from holdfast.store.sqlite.connection import SqliteConnection
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, new_jobs, race
from tests.queue_suite.tools import until
from tests.store.helpers import all_ids

# What may write to the file or to its log: transactions that write, a single INSERT, copies of the log.
WRITES = re.compile(r"BEGIN IMMEDIATE|COMMIT|INSERT|PRAGMA wal_checkpoint|PRAGMA incremental_vacuum")
COPY = "PRAGMA wal_checkpoint"
BY_A_THREAD = (COPY, "checkpoint")


class Watch:
    """Notes each write of a store's connections, and whether the lock was free before or after it."""

    def __init__(self, path):
        self._path = path
        # The connections that are open: the last one to be closed copies the log and removes it.
        self._open: set[SqliteConnection] = set()
        self._writing: set[SqliteConnection] = set()
        self.seen: set[tuple[str, str]] = set()
        self.outside: set[str] = set()
        # Copies during which a caller's own transaction could begin.
        self.disturbed = 0

    def watch(self, connection):
        """Watch a new connection."""
        self._open.add(connection)
        execute, close = connection.execute, connection.close
        connection.execute = partial(self._execute, connection, execute)
        connection.close = partial(self._close, connection, close)

    def _execute(self, connection, execute, sql, values=()):
        found = WRITES.match(sql)
        # A store that is opened begins one transaction in which it only reads.
        if found is None or (sql == "COMMIT" and connection not in self._writing):
            return execute(sql, values)
        self._note(found[0])
        if found[0] == COPY and "PASSIVE" in sql:
            self.disturbed += self._can_begin()
        done = execute(sql, values)
        self._note(found[0])
        if sql == "BEGIN IMMEDIATE":
            self._writing.add(connection)
        return done

    def _close(self, connection, close):
        self._open.discard(connection)
        if not self._open:
            self._note("close")
        close()

    def _note(self, what):
        # The thread that copies is the only one that `threading` did not start.
        thread = "checkpoint" if threading.current_thread().name.startswith("Dummy") else "other"
        self.seen.add((what, thread))
        fd = os.open(f"{self._path}-lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.outside.add(what)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)

    def _can_begin(self):
        with closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """What the connections to `jobs.db` do that are opened meanwhile."""
    watch, init = Watch(tmp_path / "jobs.db"), SqliteConnection.__init__

    def watched(self, connection):
        init(self, connection)
        watch.watch(self)

    monkeypatch.setattr(SqliteConnection, "__init__", watched)
    return watch


def test_every_write_and_every_checkpoint_is_made_under_the_file_lock(tmp_path, watch, monkeypatch):
    """So no checkpoint meets a commit: the WAL-reset bug of SQLite before 3.51.3 needs both at once."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 40)
    stores = [SqliteStore(tmp_path / "jobs.db") for _ in range(3)]

    def fill(n):
        for at in range(40):
            add(stores[n % 3], a_job(1 + n * 40 + at))

    race([partial(fill, n) for n in range(6)])
    assert len(all_ids(stores[0])) == 240
    # A store that closes does not begin one.
    until(lambda: BY_A_THREAD in watch.seen)
    stores.pop().close()
    add(stores[0], a_job(1_000))
    for store in stores:
        store.close()

    assert {("BEGIN IMMEDIATE", "other"), (COPY, "other"), ("close", "other")} <= watch.seen
    assert watch.outside == set()


def insert(store, connection, number):
    """Add a job inside the caller's transaction."""
    store.borrow(connection, lambda txn: (Changes(added=new_jobs([a_job(number)])), None))


def test_a_checkpoint_holds_off_a_callers_own_transaction(tmp_path, watch, monkeypatch):
    """Which does not queue for the file lock; once it was used, its own commits make no checkpoints."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 40)
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
            for number in range(2, 102):
                connection.execute("BEGIN IMMEDIATE")
                insert(store, connection, number)
                connection.execute("COMMIT")
            assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        assert len(all_ids(store)) == 101
        until(lambda: BY_A_THREAD in watch.seen)

    assert watch.disturbed == 0
    assert COPY not in watch.outside
