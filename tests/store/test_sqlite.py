"""What is particular to the SQLite store: opening, settings, and what can be wrong with a file."""

import os
import sqlite3
from _thread import start_new_thread
from contextlib import closing
from itertools import count

import pytest

from holdfast.core.errors import (
    BadInput,
    Closed,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMissing,
    Unavailable,
    WouldBlock,
)
from holdfast.store.contract import Changes
from holdfast.store.sqlite import open as sqlite_open
from holdfast.store.sqlite import statements as sqlite_sql
from holdfast.store.sqlite import wal as sqlite_wal
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, commit, ids, live, look, new_jobs, race
from tests.queue_suite.tools import until
from tests.store.helpers import all_ids, execute, line, python, tell, wait_until_settled


@pytest.fixture
def path(tmp_path):
    """Where the store is to be."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path):
    """A store that is not open yet."""
    store = SqliteStore(path)
    yield store
    store.close()


def pragma(store, name):
    """A setting of the connection that writes."""
    return look(store, lambda txn: txn.connection.value(f"PRAGMA {name}"))  # type: ignore[attr-defined]


def test_nothing_is_opened_before_it_is_needed(store, path):
    """Not by making a store, nor by closing one."""
    store.interrupt()
    assert list(path.parent.iterdir()) == []


def test_a_commit_is_on_the_disk_when_it_returns(store):
    """synchronous=FULL in WAL mode, on the connection that writes."""
    assert pragma(store, "synchronous") == 2
    assert pragma(store, "journal_mode") == "wal"
    assert store.report().facts["synchronous"] == "full"


def test_commits_do_not_pay_for_checkpoints_and_space_can_be_given_back(store):
    """Settings that are easily lost."""
    assert pragma(store, "wal_autocheckpoint") == 0
    assert pragma(store, "auto_vacuum") == 2
    assert 0 > pragma(store, "cache_size") >= -64 * 1024


def test_what_was_written_is_found_again(path):
    """By one store after the other."""
    for number in range(1, 4):
        store = SqliteStore(path)
        add(store, a_job(number))
        assert all_ids(store) == list(range(1, number + 1))
        store.close()


def test_a_closed_store_leaves_one_file_and_its_lock(store, path):
    """No log, no sockets: the file alone can be copied."""
    add(store, a_job(1))
    store.wait(0)
    assert (path.parent / "jobs.db-wake").is_dir()

    store.close()

    assert sorted(entry.name for entry in path.parent.iterdir()) == ["jobs.db", "jobs.db-lock"]


def test_a_closed_store_says_so(store):
    """Every verb, and `wait` lets its caller go."""
    store.close()

    with pytest.raises(Closed):
        commit(store)
    with pytest.raises(Closed):
        store.read(lambda txn: None)
    assert store.wait(60)


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    """Whatever the process makes its folder later."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("jobs.db")
    monkeypatch.chdir("/")

    add(store, a_job(1))
    store.close()

    assert (tmp_path / "jobs.db").exists()


def copy_by_vacuum(path):
    """Replace the file by its copy."""
    copy = path.with_name("copy.db")
    execute(path, f"VACUUM INTO '{copy}'")
    copy.replace(path)


def load_dump(path):
    """Replace the file by what its dump makes."""
    with closing(sqlite3.connect(path)) as source:
        dump = "\n".join(source.iterdump())
    path.unlink()
    with closing(sqlite3.connect(path)) as target:
        target.executescript(dump)


def leave_delete_mode(path):
    """Switch the file to a rollback journal."""
    execute(path, "PRAGMA journal_mode = DELETE")


@pytest.mark.parametrize("come_back", [copy_by_vacuum, load_dump, leave_delete_mode])
def test_a_file_in_another_journal_mode_is_put_into_wal(store, path, come_back):
    """Backups and dumps are in journal mode delete."""
    add(store, a_job(1))
    store.close()
    come_back(path)
    again = SqliteStore(path)

    add(again, a_job(2))

    assert all_ids(again) == [1, 2]
    assert pragma(again, "journal_mode") == "wal"
    assert again.report().complaints == []
    again.close()


def test_a_file_whose_creation_was_cut_by_a_power_failure_is_used_ever_after(path):
    """Its header was rolled back to journal mode delete, and a torn log is left, which SQLite then uses."""
    execute(path, "PRAGMA auto_vacuum = INCREMENTAL")
    path.with_name("jobs.db-wal").write_bytes(b"torn" * 1000)

    for number in (1, 2, 3):
        store = SqliteStore(path)
        add(store, a_job(number))
        assert all_ids(store) == list(range(1, number + 1))
        store.close()


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
def test_a_file_in_another_journal_mode_waits_for_the_transactions_of_others(store, path, begin):
    """One that never ends is named, one that ends is waited for."""
    add(store, a_job(1))
    store.close()
    leave_delete_mode(path)
    hasty, patient = SqliteStore(path, patience_s=0.1), SqliteStore(path)
    with python(HOLD, path, begin) as other:
        assert line(other) == "begun"
        with pytest.raises(Unavailable, match=r"locked for 0\.1 s by a transaction of another program"):
            add(hasty, a_job(2))

        race([lambda: add(patient, a_job(3)), lambda: tell(other)])

    assert all_ids(patient) == [1, 3]
    hasty.close()
    patient.close()


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("SELECT * FROM holdfast_schema").fetchall()
print("begun")
sys.stdin.readline()
connection.execute("COMMIT")
"""


def test_a_transaction_of_this_process_on_a_file_in_another_journal_mode_is_told_what_to_do(path):
    """It would keep the file from being put into WAL for ever."""
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
    leave_delete_mode(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as mine, closing(SqliteStore(path)) as store:
        mine.execute("BEGIN IMMEDIATE")

        with pytest.raises(WouldBlock, match="by a write transaction of this process"):
            add(store, a_job(2))
        with pytest.raises(BadInput, match=r"no write-ahead log yet.* call queue\.counts\(\) once before"):
            store.borrow(mine, lambda txn: (Changes(), None))


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b", "not \udcff text"])
def test_a_store_needs_a_file(path):
    """What SQLite would take for a database that nobody else sees is refused, and what is no name."""
    with pytest.raises(BadInput, match="path"):
        SqliteStore(path)


def test_a_file_has_one_queue_by_whichever_name(store, path):
    """A link to it leads to the same lock."""
    add(store, a_job(1))
    link = path.with_name("link.db")
    link.symlink_to(path)
    other = SqliteStore(link)

    add(other, a_job(2))

    assert all_ids(store) == [1, 2]
    assert not path.with_name("link.db-lock").exists()
    other.close()


def test_a_batch_in_a_batch_is_refused(store):
    """It would wait for itself; the outer one can go on."""

    def fn(txn):
        with pytest.raises(WouldBlock):
            commit(store)
        return Changes(added=new_jobs([a_job(1)])), None

    store.run(fn)
    assert all_ids(store) == [1]


def test_a_newer_schema_is_refused_with_both_numbers(store, path):
    """And what to do; nothing is changed."""
    add(store, a_job(1))
    store.close()
    execute(path, "UPDATE holdfast_schema SET version = 99, oldest = 99")
    before = path.read_bytes()

    newer = SqliteStore(path)
    with pytest.raises(SchemaMismatch, match=rf"layout 99.*up to {sqlite_sql.LAYOUT}\).*upgrade"):
        commit(newer)
    with pytest.raises(SchemaMismatch):
        newer.read(lambda txn: None)
    with pytest.raises(SchemaMismatch):
        newer.report()
    newer.close()

    assert path.read_bytes() == before


def test_a_migration_that_fails_changes_nothing(store, path, monkeypatch):
    """The store goes on with the version before; `tests/upgrades` has those that succeed."""
    add(store, a_job(1))
    store.close()
    known = sqlite_sql.migrations()

    def open_with(*more):
        monkeypatch.setattr(sqlite_open, "migrations", lambda: [*known, *more])
        opened = SqliteStore(path)
        try:
            return opened.read(lambda txn: ids(txn.load([1]).values())), opened.report().facts["schema"]
        finally:
            opened.close()

    with pytest.raises(StoreError, match="nowhere"):
        open_with(["CREATE TABLE holdfast_new (a)"], ["INSERT INTO nowhere VALUES (1)"])
    assert open_with() == ([1], str(len(known)))


@pytest.mark.parametrize("content", [b"hello, world\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_alone(store, path, content):
    """However it begins."""
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt, match=r"jobs\.db"):
        commit(store)
    with pytest.raises(StoreCorrupt):
        store.read(lambda txn: None)

    assert path.read_bytes() == content
    with pytest.raises(StoreCorrupt):
        store.report()


def test_an_application_s_database_is_joined(store, path):
    """Its tables and its numbers stay what they are, and both can be written in one transaction."""
    execute(path, "CREATE TABLE theirs (a)", "PRAGMA application_id = 7", "PRAGMA user_version = 3")

    add(store, a_job(1))

    assert all_ids(store) == [1]
    assert (pragma(store, "application_id"), pragma(store, "user_version")) == (7, 3)
    execute(path, "INSERT INTO theirs VALUES (1)")
    assert store.report().complaints == []


def test_the_database_of_another_program_is_left_alone_where_joining_was_not_asked_for(path):
    """As by the command line, where a wrong name is quickly typed."""
    execute(path, "CREATE TABLE theirs (a)", "VACUUM")
    before = path.read_bytes()
    store = SqliteStore(path, join=False)

    with pytest.raises(StoreCorrupt, match="another program"):
        commit(store)
    store.close()

    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(store, path):
    """As SQLite itself would have it."""
    path.touch()
    add(store, a_job(1))
    assert all_ids(store) == [1]


def test_tables_of_the_application_may_live_beside_ours(store, path):
    """Once the store is there, whatever they are called."""
    add(store, a_job(1))
    store.close()
    execute(path, "CREATE TABLE jobs (id)")

    again = SqliteStore(path)
    assert all_ids(again) == [1]
    assert again.report().complaints == []
    again.close()


def test_a_damaged_file_is_told(store, path):
    """By whatever comes upon it, and by `report` in any case."""
    add(store, *(a_job(n, reason="x" * 500) for n in range(1, 200)))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096 * 40)
        file.write(b"\xff" * 4096 * 20)

    damaged = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        damaged.read(lambda txn: (txn.load(range(1, 200)), txn.bodies(range(1, 200))))
    assert "damaged" in damaged.report().complaints[0]
    damaged.close()


def test_a_missing_folder_is_told(tmp_path):
    """And not created."""
    store = SqliteStore(tmp_path / "no" / "such" / "jobs.db")

    with pytest.raises(StoreError, match=r"no folder .*/no/such; create it"):
        commit(store)
    with pytest.raises(StoreError, match="no folder"):
        store.read(lambda txn: None)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path):
    """The path of one is told as such."""
    with pytest.raises(StoreError, match="is a folder"):
        commit(SqliteStore(tmp_path))


def test_a_full_disk_is_told_and_overcome(store):
    """Nothing of the batch is there; and when there is room again everything goes on."""
    add(store, a_job(1))
    pragma(store, f"max_page_count = {pragma(store, 'page_count') + 3}")

    with pytest.raises(StoreFull, match="make room"):
        add(store, *(a_job(n) for n in range(2, 2000)), data='"' + "x" * 500 + '"')
    assert all_ids(store) == [1]

    pragma(store, "max_page_count = 1000000")
    add(store, a_job(2))
    assert all_ids(store) == [1, 2]
    assert store.report().complaints == []


def test_what_sqlite_says_comes_in_our_words(store):
    """Whatever it is: here somebody has deleted a table of ours."""
    add(store, a_job(1))
    look(store, lambda txn: txn.connection.change("DROP TABLE holdfast_rows"))  # type: ignore[attr-defined]

    with pytest.raises(StoreError, match="holdfast_rows"):
        commit(store, rows={("k", "a"): b"1"})
    with pytest.raises(StoreError, match="holdfast_rows"):
        store.read(lambda txn: txn.rows("k"))
    assert all_ids(store) == [1]


def test_a_file_that_is_removed_while_in_use_is_noticed(store, path):
    """Nothing is written into what nobody can find again."""
    add(store, a_job(1))
    for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
        (path.parent / name).unlink()

    with pytest.raises(StoreError, match="removed or replaced"):
        add(store, a_job(2))

    with pytest.raises(StoreMissing):
        add(store, a_job(3))
    assert not path.exists()


def test_a_file_that_is_replaced_is_noticed_also_if_the_folder_looks_as_before(store, path):
    """As a backup is restored: the new file gets the old name, and the folder its old time."""
    add(store, a_job(1))
    wait_until_settled(path)
    add(store, a_job(2))
    before = path.parent.stat()
    (path.parent / "backup").write_bytes(path.read_bytes())
    (path.parent / "backup").rename(path)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(StoreError, match="removed or replaced"):
        add(store, a_job(3))


@pytest.fixture
def copies(monkeypatch):
    """The copies of the log that are under way: their threads may come late on a busy machine."""
    under_way: list[object] = []

    def counted(copy, args):
        def run():
            try:
                copy(*args)
            finally:
                under_way.pop()

        under_way.append(copy)
        start_new_thread(run, ())

    monkeypatch.setattr(sqlite_wal, "start_new_thread", counted)
    return under_way


def test_the_log_stays_bounded_while_one_process_only_adds(store, path, monkeypatch, copies):
    """A thousand commits of nine pages each are 36 MB of log, if nobody copies them."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 50)

    largest = 0
    for number in range(1, 1001):
        add(store, a_job(number))
        largest = max(largest, sqlite_wal.log_bytes(path))
        until(lambda: len(copies) < 10)

    assert largest < 12 * 1024 * 1024
    assert live(store, 1, 1000).keys() == {1, 1000}


def test_space_is_given_back(store, path, monkeypatch):
    """When most of the file is empty, bit by bit, beside the commits."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 1)
    monkeypatch.setattr(sqlite_wal, "EMPTY_PAGES", 100)
    add(store, a_job(1), data='"' + "x" * 4_000_000 + '"')
    add(store, a_job(2))
    commit(store, removed=[a_job(1)])
    numbers = count(3)

    def given_back():
        add(store, a_job(next(numbers)))
        return pragma(store, "freelist_count") < 150

    until(given_back)

    store.close()
    assert path.stat().st_size < 2_000_000


def test_an_idle_store_writes_nothing(store, path):
    """However long it waits."""
    add(store, a_job(1))
    store.wait(0)
    before = [(entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in path.parent.iterdir()]

    assert not store.wait(0.35)

    after = [(entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in path.parent.iterdir()]
    assert after == before
