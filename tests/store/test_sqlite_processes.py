"""Several processes on one file: their queue, their wake-up calls, forks and sudden deaths."""

import fcntl
import os
import shutil
import signal
import socket
import threading
from contextlib import ExitStack, closing

import pytest

from holdfast.core.errors import Unavailable
from holdfast.store.contract import JOBS, NOTHING, Changes
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add, commit, new_jobs, race
from tests.queue_suite.tools import until
from tests.store.helpers import all_ids, execute, line, python, run_python, tell


@pytest.fixture
def store(tmp_path):
    """A store with one job in it."""
    store = SqliteStore(tmp_path / "jobs.db")
    add(store, a_job(1))
    yield store
    store.close()


ADD = """
import sys
from holdfast.store.contract import Changes
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, new_jobs
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = SqliteStore(path)
print("ready")
sys.stdin.readline()

def fn(txn):
    number = int(txn.rows("last", ["number"]).get("number", b"0")) + 1
    rows = {("last", "number"): b"%d" % number, ("times", str(number)): b"%d" % txn.now_ms}
    return Changes(added=new_jobs([a_job(job_id)]), rows=rows), None

for job_id in range(first, first + count):
    store.run(fn)
store.close()
print("done")
sys.stdin.readline()
"""


@pytest.mark.parametrize("restored", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_many_processes_create_one_store_and_lose_nothing(tmp_path, restored):
    """They start at once, on no file or a restored one; whoever commits later has the later time."""
    path = tmp_path / "jobs.db"
    if restored:
        store = SqliteStore(path)
        commit(store)
        store.close()
        execute(path, "PRAGMA journal_mode = DELETE")
    with ExitStack() as stack:
        others = [stack.enter_context(python(ADD, path, 1000 * n, 40)) for n in range(1, 7)]
        for other in others:
            assert line(other) == "ready"
        for other in others:
            tell(other)
        assert [line(other) for other in others] == ["done"] * 6

    store = SqliteStore(path)
    times = store.read(lambda txn: txn.rows("times"))
    assert len(all_ids(store)) == len(times) == 240
    in_order = [int(times[str(number)]) for number in range(1, 241)]
    assert in_order == sorted(in_order)
    assert store.report().complaints == []
    store.close()


def test_the_queue_is_left_after_a_while(store):
    """When somebody never ends; and who waits is served as soon as he does."""
    hasty = SqliteStore(store.path, patience_s=0.1)
    fd = os.open(f"{store.path}-lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)

    with pytest.raises(Unavailable, match="-lock has been locked"):
        add(hasty, a_job(2))

    started = threading.Event()

    def wait_and_add():
        started.set()
        add(store, a_job(3))

    def let_go():
        started.wait()
        fcntl.flock(fd, fcntl.LOCK_UN)

    race([wait_and_add, let_go])
    os.close(fd)

    def hasty_adds():
        # The thread that had waited for it before may have the lock for a moment.
        try:
            add(hasty, a_job(4))
        except Unavailable:
            return False
        return True

    until(hasty_adds)
    assert all_ids(store) == [1, 3, 4]
    hasty.close()


KILLED = """
import os, signal, sys
from holdfast.store.contract import NOTHING, Changes
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, new_jobs

def fn(txn):
    txn.write(Changes(added=new_jobs(a_job(n) for n in range(10, 400))))
    print("inside")
    sys.stdin.readline()
    return NOTHING, None

SqliteStore(sys.argv[1]).run(fn)
"""


def test_a_process_that_dies_in_a_batch_leaves_no_trace(store):
    """And whoever waits for its turn gets it at once."""
    with python(KILLED, store.path) as other:
        assert line(other) == "inside"
        other.send_signal(signal.SIGKILL)
        other.wait()

        add(store, a_job(2))

    assert all_ids(store) == [1, 2]
    assert store.report().complaints == []


WAIT = """
import sys
from holdfast.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.wait(0)
print("listening")
while sys.stdin.readline():
    print(store.wait(30))
"""


def test_a_waiting_process_is_woken(store):
    """By a word, and without one by what was committed."""
    with python(WAIT, store.path) as other:
        assert line(other) == "listening"
        tell(other)
        commit(store, wake=JOBS)
        assert line(other) == "True"

        tell(other)
        add(store, a_job(2))
        assert line(other) == "True"


def test_a_store_is_not_woken_by_itself(store):
    """Neither by what it commits nor by its own word: its process knows."""
    store.wait(0)
    add(store, a_job(2))
    commit(store, wake=JOBS)

    assert not store.wait(0.25)


@pytest.mark.parametrize("folder", ["short", "l" * 120])
def test_two_stores_of_one_process_wake_each_other(tmp_path, folder):
    """However long the path is."""
    (tmp_path / folder).mkdir()
    one, other = (SqliteStore(tmp_path / folder / "jobs.db") for _ in range(2))
    assert not one.wait(0)
    assert not other.wait(0)

    # Nothing is written, so that it is the notification alone.
    commit(one, wake=JOBS)

    assert other.wait(30)
    assert not one.wait(0)
    one.close()
    other.close()


def test_what_dead_processes_leave_behind_is_tidied_up(store):
    """By the next one who notifies, or by `report`, which says so."""
    folder = store.path.with_name("jobs.db-wake")
    folder.mkdir()

    def leave(name):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
            gone.bind(str(folder / name))

    leave("4711-0")
    commit(store, wake=JOBS)
    assert list(folder.iterdir()) == []

    leave("4711-1")
    assert "removed 1 socket" in store.report().complaints[0]
    assert store.report().complaints == []


def test_a_waiting_process_is_present_again_after_its_file_was_removed(store):
    """As by a program that tidies up old files; and when it closes it leaves none."""
    files = store.path.with_name("jobs.db-workers")
    store.appear("a-process")
    shutil.rmtree(files)

    with closing(SqliteStore(store.path)) as other:
        before = other.read(lambda txn: txn.present(["a-process"]))
        store.wait(0.0)
        after = other.read(lambda txn: txn.present(["a-process"]))
    store.close()

    assert (before, after) == (set(), {"a-process"})
    assert not files.exists()


def test_the_last_to_close_removes_what_killed_processes_left(store):
    """Also a store that never waited itself. One that still waits keeps its socket."""
    other = SqliteStore(store.path)
    folder = store.path.with_name("jobs.db-wake")
    assert not other.wait(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(folder / "4711-0"))
    add(store, a_job(2))
    assert other.wait(0)

    store.close()
    (left,) = folder.iterdir()
    assert left.name != "4711-0"

    other.close()
    assert sorted(entry.name for entry in store.path.parent.iterdir()) == ["jobs.db", "jobs.db-lock"]


def forked(fn):
    """Call `fn` in a forked child; its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            fn()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_store_lives_on_on_both_sides_of_a_fork(store):
    """With connections, sockets and locks of their own."""
    store.wait(0)
    store.read(lambda txn: None)

    def child():
        assert all_ids(store) == [1]
        add(store, a_job(2))
        assert not store.wait(0)
        commit(store, wake=JOBS)
        store.close()

    assert forked(child) == 0
    assert store.wait(30)

    add(store, a_job(3))
    assert all_ids(store) == [1, 2, 3]
    assert store.report().complaints == []


ORPHAN = """
import os, sqlite3, subprocess, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, add
store = SqliteStore(sys.argv[1])
add(store, a_job(2))
ended, end = os.pipe()
if os.fork():
    os._exit(0)
os.close(end)
os.read(ended, 1)
add(store, a_job(3))
visit = '''import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("DELETE FROM holdfast_counts")
c.commit()'''
subprocess.run([sys.executable, "-c", visit, sys.argv[1]], check=True)
add(store, a_job(4))
store.close()
print("done")
"""


def test_the_file_stays_whole_when_the_parent_ends_first(store):
    """The child holds locks of its own: whoever comes and goes does not take its log away from it."""
    store.close()

    assert run_python(ORPHAN, store.path) == "done\n"

    again = SqliteStore(store.path)
    assert all_ids(again) == [1, 2, 3, 4]
    assert again.report().complaints == []
    again.close()


def test_a_fork_waits_for_the_batch_that_runs(store):
    """So a child never starts with half a batch, or with a lock that nobody will let go."""
    inside, go_on = threading.Event(), threading.Event()

    def fn(txn):
        txn.write(Changes(added=new_jobs([a_job(2)])))
        inside.set()
        go_on.wait()
        return NOTHING, None

    thread = threading.Thread(target=store.run, args=(fn,))
    thread.start()
    inside.wait()
    threading.Timer(0.05, go_on.set).start()

    code = forked(lambda: add(store, a_job(3)))

    thread.join()
    assert code == 0
    assert all_ids(store) == [1, 2, 3]


# Two threads fork while a batch runs, for which both wait. The store was imported last, as a queue does.
FORKS = """
import os, sys, threading, time
import holdfast
from holdfast.store.contract import NOTHING
queue = holdfast.connect(sys.argv[1])
queue.add("work")
inside, go_on = threading.Event(), threading.Event()

def fn(txn):
    inside.set()
    go_on.wait()
    return NOTHING, None

def fork():
    pid = os.fork()
    if not pid:
        queue.add("work")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

threads = [threading.Thread(target=queue.connection.store.run, args=(fn,), daemon=True)]
threads[0].start()
inside.wait()
threads += [threading.Thread(target=fork, daemon=True) for _ in range(2)]
for thread in threads[1:]:
    thread.start()
time.sleep(0.3)
go_on.set()
threads.append(threading.Thread(target=queue.add, args=("work",), daemon=True))
threads[-1].start()
for thread in threads:
    thread.join(60)
print([thread.is_alive() for thread in threads], queue.counts(), flush=True)
os._exit(0)
"""


def test_threads_that_fork_at_once_leave_no_lock_behind(tmp_path):
    """Each lets go of what it has stopped."""
    assert run_python(FORKS, tmp_path / "jobs.db") == "[False, False, False, False] {'work': {'QUEUED': 4}}\n"


def test_a_fork_while_a_thread_wakes_another_does_not_hang(store):
    """The lock that it has for that moment is locked in the child for ever."""
    store.wait(0)
    with store._notifier._waker._lock:
        pid = os.fork()
        if not pid:
            add(store, a_job(2))
            os._exit(0)
    try:
        until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(pid, 0)

    assert status == 0
    assert all_ids(store) == [1, 2]


def test_a_fork_inside_a_batch_leaves_the_batch_to_the_parent(store):
    """The child cannot go on with it, but may use the store."""

    def fn(txn):
        txn.write(Changes(added=new_jobs([a_job(2)])))
        return NOTHING, forked(lambda: os._exit(0 if all_ids(store) == [1] else 3))

    assert store.run(fn) == 0
    assert all_ids(store) == [1, 2]
