"""Two SQLite libraries in one process: nothing that was acknowledged is lost, and misuse is told.

What another library does is done in processes of their own, as it spoils the file for the process.
"""

import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from functools import partial

import apsw
import pytest

import holdfast
from holdfast.core.errors import StoreError
from holdfast.store.contract import Changes
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, new_jobs, race
from tests.store.helpers import all_ids, python, run_python, wait_until_settled

# Adds and closes, again and again, until its input ends; prints how many were acknowledged.
NEIGHBOUR = """
import sys, threading
import holdfast
path, task = sys.argv[1:]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
count = 0
while not ended.is_set():
    with holdfast.connect(path) as queue:
        for _ in range(3):
            queue.add(task)
            count += 1
print(count)
"""

# The loop of somebody who looks into the file with `sqlite3` between two adds.
LOOKER = """
import sqlite3, sys
import holdfast
path, count = sys.argv[1], int(sys.argv[2])
queue = holdfast.connect(path)
for _ in range(count):
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    connection.close()
    queue.add("looked")
"""


def tasks(path):
    """The task of each job, seen by a process of its own; the file must be sound."""
    program = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
print(json.dumps(connection.execute("SELECT id, task FROM holdfast_jobs").fetchall()))
"""
    return dict(json.loads(run_python(program, path)))


def test_adds_stay_when_the_process_looks_into_the_file_with_sqlite3(tmp_path):
    """Which is the library of the store."""
    path = tmp_path / "jobs.db"
    holdfast.connect(str(path)).close()
    with python(NEIGHBOUR, path, "beside") as neighbour:
        run_python(LOOKER, path, 100)
        beside = int(neighbour.communicate()[0])

    assert Counter(tasks(path).values()) == Counter(looked=100, beside=beside)


# Opens the store, uses the file with another library as its argument says, and goes on.
MISUSE = """
import sys
import apsw
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add
from holdfast.core.errors import StoreError
path, how = sys.argv[1:]
store = SqliteStore(path)
if how != "before":
    add(store, a_job(1))
other = apsw.Connection(path)
other.execute("SELECT count(*) FROM sqlite_schema").fetchall()
if how == "closed":
    other.close()
for number in (2, 3):
    try:
        add(store, a_job(number))
        print("acknowledged")
    except StoreError as error:
        print(error)
try:
    print(len(store.read(lambda txn: txn.load([1]))))
except StoreError as error:
    print(error)
store.close()
try:
    add(SqliteStore(path), a_job(4))
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("open", "has the file open"),
        pytest.param("closed", "has dropped the locks", marks=pytest.mark.proof),
    ],
)
@pytest.mark.parametrize(
    "neighbour",
    [
        pytest.param(True, id="beside another process"),
        pytest.param(False, id="alone", marks=pytest.mark.proof),
    ],
)
def test_a_second_library_is_told_before_anything_is_acknowledged(tmp_path, how, what, neighbour):
    """Whether it still has the file open or has closed it; and until the process ends, for reads as well."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(tmp_path / ("jobs.db" if neighbour else "other.db"))) as beside:
        add(beside, a_job(9))

        said = run_python(MISUSE, path, how).splitlines()

    assert len(said) == 4
    assert what in said[0] or (what == "has the file open" and "has dropped the locks" in said[0])
    assert all(line.startswith(str(path)) and "docs/sqlite.md" in line for line in said)
    with closing(SqliteStore(path)) as store:
        assert all_ids(store) == ([1, 9] if neighbour else [1])
        assert store.report().complaints == []


def test_a_file_that_another_library_has_open_is_not_opened(tmp_path):
    """Nothing is done to it, so the other library can go on."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))

    said = run_python(MISUSE, path, "before").splitlines()

    assert all("second SQLite library of this process has the file open" in line for line in said)
    with closing(SqliteStore(path)) as store:
        assert all_ids(store) == [1]


def test_reading_the_file_by_other_means_does_no_harm(tmp_path):
    """A copy of the file, made by this process, closes it: the locks that SQLite loses by that are pinned."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        path.read_bytes()
        run_python(NEIGHBOUR_ONCE, path)
        add(store, a_job(3))

        assert all_ids(store) == [1, 2, 3]
    with closing(SqliteStore(path)) as store:
        assert all_ids(store) == [1, 2, 3]
    assert not path.with_name("jobs.db-wal").exists()


NEIGHBOUR_ONCE = """
import sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add
store = SqliteStore(sys.argv[1])
add(store, a_job(2))
store.close()
"""


def test_a_log_that_was_removed_is_told(tmp_path):
    """By whomever: what would be written to it is not kept."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        wait_until_settled(path)
        add(store, a_job(2))
        path.with_name("jobs.db-wal").unlink()

        with pytest.raises(StoreError, match=r"jobs\.db-wal was removed; nothing was written"):
            add(store, a_job(3))


def test_an_index_of_the_log_that_was_removed_is_told(tmp_path):
    """Another process would make its own, and the two would write over each other; nothing is lost."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        wait_until_settled(path)
        add(store, a_job(2))
        path.with_name("jobs.db-shm").unlink()

        run_python(NEIGHBOUR_ONCE.replace("a_job(2)", "a_job(3)"), path)
        with pytest.raises(StoreError, match=r"jobs\.db-shm was removed; nothing was written"):
            add(store, a_job(4))
    with closing(SqliteStore(path)) as store:
        assert all_ids(store) == [1, 2, 3]


def test_a_log_that_is_removed_during_a_batch_is_told(tmp_path):
    """The batch is not acknowledged: it may have been written to a file that is gone."""
    path = tmp_path / "jobs.db"
    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        wait_until_settled(path)

        def remove_log(_txn):
            path.with_name("jobs.db-wal").unlink()
            return Changes(added=new_jobs([a_job(2)])), None

        with pytest.raises(StoreError, match=r"jobs\.db-wal was removed; whether the last batch was kept"):
            store.run(remove_log)


def test_two_stores_of_one_process_share_a_file(tmp_path):
    """One library: neither is disturbed when the other closes, and the last one tidies up."""
    path = tmp_path / "jobs.db"
    one, other = SqliteStore(path), SqliteStore(path)
    add(one, a_job(1))
    add(other, a_job(2))

    one.close()
    run_python(NEIGHBOUR_ONCE.replace("a_job(2)", "a_job(3)"), path)
    add(other, a_job(4))

    assert all_ids(other) == [1, 2, 3, 4]
    other.close()
    assert not path.with_name("jobs.db-wal").exists()


def test_threads_that_open_and_close_a_file_are_not_taken_for_a_second_library(tmp_path):
    """Each with a store of its own, on a file that none of them has made yet."""
    path = tmp_path / "jobs.db"

    def use(thread):
        for n in range(8):
            with closing(SqliteStore(path)) as store:
                add(store, a_job(1 + thread * 8 + n))

    race([partial(use, thread) for thread in range(6)])

    with closing(SqliteStore(path)) as store:
        assert all_ids(store) == list(range(1, 49))


def test_a_store_is_opened_while_another_thread_uses_apsw(tmp_path):
    """apsw tells nothing of a connection that another thread is using: it may be to another file."""
    path = tmp_path / "jobs.db"
    begun, over = threading.Event(), threading.Event()

    def pause(*_args):
        begun.set()
        return over.wait(60)

    with closing(SqliteStore(path)) as store:
        add(store, a_job(1))
        busy = apsw.Connection(":memory:")
        busy.create_scalar_function("pause", pause)
        thread = threading.Thread(target=lambda: busy.execute("SELECT pause()").fetchall())
        thread.start()
        begun.wait(60)
        with pytest.raises(apsw.ThreadingViolationError):
            getattr(busy, "filename")  # noqa: B009 - asked for its error alone

        with closing(SqliteStore(path)) as other:
            add(other, a_job(2))

        over.set()
        thread.join()
        busy.close()
        assert all_ids(store) == [1, 2]


# A store that adds while threads read, write and close with apsw; it ends when it is refused.
CROWD = """
import os, random, sys, threading, time
import apsw
import holdfast
path, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
queue = holdfast.connect(path)
print(queue.add("crowd").id)
refused = threading.Event()

def opened():
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    return connection

def use(connection):
    connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    if rng.random() < 0.5:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO mine VALUES (randomblob(2000))")
        connection.execute("COMMIT")

def intrude():
    time.sleep(rng.random() / 20)
    while not refused.is_set():
        connection = opened()
        try:
            use(connection)
        except apsw.BusyError:
            pass
        connection.close()

threads = [threading.Thread(target=intrude) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    while True:
        print(queue.add("crowd").id)
except holdfast.StoreError as error:
    print(error, file=sys.stderr)
refused.set()
for thread in threads:
    thread.join()
sys.stdout.flush()
if seed % 2:
    os._exit(0)
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(500, marks=pytest.mark.proof)])
@pytest.mark.timeout(900)
def test_both_libraries_reading_writing_and_closing_lose_nothing(tmp_path, rounds):
    """Process after process is refused the file, beside neighbours that go on."""
    path = tmp_path / "jobs.db"
    with holdfast.connect(str(path)) as queue:
        queue.add("first")
    run_python("import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('CREATE TABLE mine (x)')", path)
    acknowledged: list[int] = []
    with python(NEIGHBOUR, path, "one") as one, python(NEIGHBOUR, path, "other") as other:
        for seed in range(rounds):
            command = [sys.executable, "-c", CROWD, str(path), str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert "one SQLite library" in done.stderr
            assert done.returncode == 0, done.stderr
            acknowledged += map(int, done.stdout.split())
        beside = {"one": int(one.communicate()[0]), "other": int(other.communicate()[0])}

    found = tasks(path)
    assert len(acknowledged) >= rounds
    assert found.keys() >= set(acknowledged)
    assert {task: n for task, n in Counter(found.values()).items() if task in beside} == beside


# ── without apsw ─────────────────────────────────────────────────────────────────────────────────

WITHOUT_APSW = """
import sys
sys.modules["apsw"] = None  # as if it were not installed: an import of it fails
"""


def test_a_queue_works_without_apsw(tmp_path):
    """`pip install .` brings all that a queue in a file needs, also for the command line."""
    program = """
import holdfast
from holdfast.cli import main
with holdfast.connect(sys.argv[1]) as queue:
    queue.add("work")
    with queue.next(["work"]) as job:
        print(job.task)
sys.argv[1:] = ["--store", sys.argv[1], "bench", "add", "--scale", "0.01", "--rounds", "1"]
main()
"""

    assert run_python(WITHOUT_APSW + program, tmp_path / "jobs.db").startswith("work\n")


def test_a_sqlite_that_is_too_old_is_refused(tmp_path, monkeypatch):
    """With the version that is needed, and where to get one."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))

    with pytest.raises(StoreError, match=r"must be 3\.38\.0 or newer: use a Python"):
        add(SqliteStore(tmp_path / "jobs.db"), a_job(1))
