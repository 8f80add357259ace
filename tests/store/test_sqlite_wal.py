"""Checkpoints: every write to the file or its log happens under the lock that writers queue for."""

import fcntl
import os
import threading
from contextlib import closing
from functools import partial

import apsw
import pytest

from holdfast.store.contract import Changes
from holdfast.store.sqlite import wal as sqlite_wal
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, new_jobs, race
from tests.queue_suite.tools import until
from tests.store.helpers import all_ids

# A write into the file that a thread has made which copies the log.
BY_A_CHECKPOINT = ("jobs.db", "write", "checkpoint")


class _WatchedFile(apsw.VFSFile):
    """A file of the store: notes each write that is made while the queue of writers is open to others."""

    disk: "WatchedDisk"
    name: str

    def xWrite(self, data, offset):  # noqa: N802, the library's name
        self.disk.note(self.name, "write")
        super().xWrite(data, offset)

    def xTruncate(self, size):  # noqa: N802
        self.disk.note(self.name, "truncate")
        super().xTruncate(size)


class WatchedDisk(apsw.VFS):
    """What lies beneath SQLite, watched."""

    def __init__(self, lock):
        self._lock = lock
        self._base = apsw.vfs_names()[0]
        super().__init__("holdfast-watched", self._base, makedefault=True)
        self.seen: set[tuple[str, str, str]] = set()
        self.outside: set[tuple[str, str]] = set()

    def xOpen(self, name, flags):  # noqa: N802
        file = _WatchedFile(self._base, name, flags)
        file.disk, file.name = self, name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return file

    def note(self, name, what):
        """Whether anybody could take the lock now."""
        # The thread that copies is the only one that `threading` did not start.
        thread = "checkpoint" if threading.current_thread().name.startswith("Dummy") else "other"
        self.seen.add((name.rpartition("/")[2], what, thread))
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.outside.add((name.rpartition("/")[2], what))
        except BlockingIOError:
            pass
        finally:
            os.close(fd)


@pytest.fixture
def disk(tmp_path):
    """A watched disk, on which every database lies that is opened meanwhile."""
    disk = WatchedDisk(tmp_path / "jobs.db-lock")
    yield disk
    disk.unregister()


def test_every_write_and_every_checkpoint_is_made_under_the_file_lock(tmp_path, disk, monkeypatch):
    """So no checkpoint meets a commit: the WAL-reset bug of SQLite before 3.51.3 needs both at once."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 40)
    stores = [SqliteStore(tmp_path / "jobs.db", driver="apsw") for _ in range(3)]

    def fill(n):
        for at in range(40):
            add(stores[n % 3], a_job(1 + n * 40 + at))

    race([partial(fill, n) for n in range(6)])
    assert len(all_ids(stores[0])) == 240
    # A store that closes does not begin one.
    until(lambda: BY_A_CHECKPOINT in disk.seen)
    stores.pop().close()
    add(stores[0], a_job(1_000))
    for store in stores:
        store.close()

    assert ("jobs.db-wal", "write", "other") in disk.seen
    assert disk.outside == set()


def insert(store, connection, number):
    """Add a job inside the caller's transaction."""
    store.borrow(connection, lambda txn: (Changes(added=new_jobs([a_job(number)])), None))


def test_a_checkpoint_holds_off_a_callers_own_transaction(tmp_path, disk, monkeypatch):
    """Which does not queue for the file lock; once it was used, its own commits make no checkpoints."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 40)
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path, driver="apsw")) as store:
        add(store, a_job(1))
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(60_000)
            for number in range(2, 102):
                connection.execute("BEGIN IMMEDIATE")
                insert(store, connection, number)
                connection.execute("COMMIT")
            assert connection.pragma("wal_autocheckpoint") == 0
        assert len(all_ids(store)) == 101
        until(lambda: BY_A_CHECKPOINT in disk.seen)

    assert ("jobs.db", "write") not in disk.outside
