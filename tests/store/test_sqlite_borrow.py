"""Writing inside the caller's own transaction, and waiting for callers who have one."""

import sqlite3
import sys
from contextlib import closing

import apsw
import pytest

from holdfast.core.errors import BadInput, Unavailable, WouldBlock
from holdfast.store.common.lending import InAutocommit
from holdfast.store.contract import NOTHING, Changes
from holdfast.store.sqlite import lock as sqlite_lock
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, new_jobs
from tests.store.helpers import all_ids, line, python, tell


@pytest.fixture
def store(tmp_path):
    """A store with one job in it."""
    store = SqliteStore(tmp_path / "jobs.db")
    add(store, a_job(1))
    yield store
    store.close()


def connect(path):
    """A caller's own connection, which begins nothing by itself."""
    return sqlite3.connect(path, isolation_level=None)


@pytest.fixture
def connection(store):
    """One to the store's file."""
    with closing(connect(store.path)) as connection:
        yield connection


def insert(store, connection, *numbers):
    """Add jobs by the caller's connection."""
    store.borrow(connection, lambda txn: (Changes(added=new_jobs(map(a_job, numbers))), None))


def test_the_caller_commits(store, connection):
    """Then the job is there, and not before."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE orders (id)")
    insert(store, connection, 2)
    assert all_ids(store) == [1]

    connection.execute("COMMIT")

    assert all_ids(store) == [1, 2]


def test_the_caller_rolls_back(store, connection):
    """Then nothing has happened, and the file is free again."""
    connection.execute("BEGIN")
    insert(store, connection, 2)
    connection.execute("ROLLBACK")

    assert all_ids(store) == [1]
    add(store, a_job(3))


def test_what_fails_inside_is_undone_alone(store, connection):
    """What the caller did before stays in his transaction."""

    def fn(txn):
        txn.write(Changes(added=new_jobs([a_job(3)])))
        raise KeyError("mine")

    connection.execute("BEGIN")
    insert(store, connection, 2)
    with pytest.raises(KeyError):
        store.borrow(connection, fn)
    connection.execute("COMMIT")

    assert all_ids(store) == [1, 2]


def test_everything_can_be_done_there(store, connection):
    """A claim, an archived job, counts: it is a batch as any other."""
    connection.execute("BEGIN IMMEDIATE")
    store.borrow(connection, lambda txn: (Changes(removed=[*txn.load([1]).values()]), None))
    connection.execute("COMMIT")

    assert all_ids(store) == []


def test_a_caller_without_a_transaction_is_told_apart_from_one_in_autocommit(store, connection):
    """By the way of the library: `isolation_level=None`, and with Python 3.12 `autocommit=True`."""
    with pytest.raises(InAutocommit):
        insert(store, connection, 2)
    with closing(sqlite3.connect(store.path)) as other, pytest.raises(BadInput, match="BEGIN IMMEDIATE"):
        insert(store, other, 2)
    if sys.version_info >= (3, 12):
        with closing(sqlite3.connect(store.path, autocommit=True)) as other, pytest.raises(InAutocommit):
            insert(store, other, 2)

    assert all_ids(store) == [1]


def test_another_librarys_connection_is_refused(store):
    """Before anything is written, with the way out; and what is no connection too."""
    with closing(apsw.Connection(str(store.path))) as other:
        other.execute("BEGIN")
        with pytest.raises(BadInput, match="Python's own SQLite library"):
            insert(store, other, 2)
        other.execute("ROLLBACK")
    with pytest.raises(BadInput, match="str"):
        insert(store, "jobs.db", 2)

    assert all_ids(store) == [1]


def test_a_connection_to_another_file_is_refused(store, tmp_path):
    """Also one to no file at all."""
    for name in (tmp_path / "other.db", ":memory:"):
        with closing(connect(name)) as other:
            other.execute("BEGIN")
            with pytest.raises(BadInput, match=r"must be one to .*jobs\.db"):
                insert(store, other, 2)
            assert other.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]


def test_the_same_file_by_another_name_is_the_same_file(store, tmp_path):
    """A link to its folder, say."""
    (tmp_path / "link").symlink_to(tmp_path)
    with closing(connect(tmp_path / "link" / "jobs.db")) as other:
        other.execute("BEGIN")
        insert(store, other, 2)
        other.execute("COMMIT")

    assert all_ids(store) == [1, 2]


def test_a_closed_connection_is_refused(store):
    """In our words."""
    connection = connect(store.path)
    connection.close()

    with pytest.raises(BadInput, match="connection"):
        insert(store, connection, 2)


def test_a_callers_own_ways_do_not_matter(tmp_path):
    """Row factories and text factories change what his statements return, not ours."""
    plain = SqliteStore(tmp_path / "plain.db")
    add(plain, a_job(1))
    with closing(sqlite3.connect(plain.path)) as connection:
        connection.row_factory = lambda cursor, row: 1 / 0
        connection.text_factory = lambda raw: 1 / 0
        connection.execute("BEGIN")
        insert(plain, connection, 2)
        assert plain.borrow(connection, lambda txn: (NOTHING, list(txn.load([1, 2])))) == [1, 2]
        connection.commit()
    plain.close()


def test_a_store_that_is_not_open_yet_can_borrow(store, connection):
    """It needs no lock to open what is up to date."""
    connection.execute("BEGIN IMMEDIATE")
    other = SqliteStore(store.path)

    insert(other, connection, 2)
    connection.execute("COMMIT")

    assert all_ids(other) == [1, 2]
    other.close()


def test_who_holds_the_write_lock_himself_is_told_so(store, connection, monkeypatch):
    """Instead of waiting for himself; afterwards all is well."""
    monkeypatch.setattr(sqlite_lock, "OWN_TRANSACTION_S", 0.05)
    connection.execute("BEGIN IMMEDIATE")

    with pytest.raises(WouldBlock, match="connection="):
        add(store, a_job(2))
    insert(store, connection, 3)
    connection.execute("COMMIT")

    add(store, a_job(4))
    assert all_ids(store) == [1, 3, 4]


def test_who_began_before_somebody_else_wrote_is_told_so(store, connection):
    """SQLite cannot let him write on what is no longer so."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    add(store, a_job(2))

    with pytest.raises(Unavailable, match="BEGIN IMMEDIATE"):
        insert(store, connection, 3)

    connection.execute("ROLLBACK")
    assert all_ids(store) == [1, 2]


def test_whoever_only_reads_stands_in_nobodys_way(store, connection):
    """A transaction that has written nothing yet is none that we wait for."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()

    add(store, a_job(2))

    connection.execute("ROLLBACK")


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held")
sys.stdin.readline()
connection.execute("COMMIT")
print("free")
sys.stdin.readline()
"""


def test_another_programs_long_transaction_is_waited_for_but_not_for_ever(store):
    """It is no fault of ours, and trying again may help."""
    hasty = SqliteStore(store.path, patience_s=0.2)
    with python(HOLD, store.path) as other:
        assert line(other) == "held"
        with pytest.raises(Unavailable, match="another program"):
            add(hasty, a_job(2))

        tell(other)
        assert line(other) == "free"
        add(hasty, a_job(3))

    assert all_ids(store) == [1, 3]
    hasty.close()
