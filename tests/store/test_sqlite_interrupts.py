"""KeyboardInterrupt at any step of `run`: nothing acknowledged is lost, no batch is half done, all goes on.

Python looks for signals as a function begins and after each call of a function in C. So the steps at which an
interrupt can strike are known, and each of them is tried.
"""

import fcntl
import os
import random
import signal
import sys
import threading
from pathlib import Path

import apsw  # so that the store has to keep another library out
import pytest

from holdfast.core.job import Place, State
from holdfast.store.contract import JOBS, Changes, CountKey, JobFilter
from holdfast.store.sqlite import wal as sqlite_wal
from holdfast.store.sqlite.guard import PENDING_BYTE
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, commit, new_jobs
from tests.interrupts import Interrupter
from tests.queue_suite.tools import LONG_S, until

READY = CountKey("", "t", Place.READY, State.QUEUED)
assert apsw  # type: ignore[truthy-bool]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc/locks"),
    # What strikes while the interpreter tidies up is told and goes no further.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def store(tmp_path):
    """A store that is open."""
    store = SqliteStore(tmp_path / "jobs.db")
    commit(store)
    yield store
    store.close()


def add(store, *job_ids):
    """A batch that reads, writes in the middle, and writes everything that belongs together at the end."""

    def fn(txn):
        txn.notice()
        txn.write(Changes(rows={("middle", str(job_ids[0])): b"1"}))
        jobs = [a_job(job_id) for job_id in job_ids]
        rows = {("end", str(job_id)): b"1" for job_id in job_ids}
        return Changes(added=new_jobs(jobs), counts={READY: len(jobs)}, rows=rows, wake=JOBS), None

    store.run(fn)


def added(store):
    """The ids of the jobs that are there; each of them is there as a whole."""

    def fn(txn):
        ids = [job.id for job in txn.jobs(JobFilter(), after=0, limit=100_000)]
        assert [*txn.bodies(ids)] == ids
        assert {int(key) for key in txn.rows("end")} == {*ids}
        assert {int(key) for key in txn.rows("middle")} <= {*ids}
        assert txn.counts().get(READY, 0) == len(ids)
        return {*ids}

    return store.read(fn)


def is_taken(queue):
    """Take the lock, if it is free; whether it was."""
    try:
        fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_free(path):
    """Nobody holds the queue of writers, or keeps others from opening the file.

    It may be held for a moment: by the thread that copies the log into the file, or by one whose caller was
    interrupted while it waited, and which releases the lock as soon as it gets it.
    """
    queue = os.open(f"{path}-lock", os.O_RDWR)
    try:
        until(lambda: is_taken(queue))
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    finally:
        os.close(queue)
    inode = path.stat().st_ino
    assert not [line for line in held if line[-3].endswith(f":{inode}") and line[-2] == str(PENDING_BYTE)]


def check_works(store, job_id):
    """Another thread can add at once: it waits for no lock that was left behind."""
    thread = threading.Thread(target=add, args=(store, job_id), daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert job_id in added(store)


@pytest.mark.parametrize(
    "later", [None, 2, *(pytest.param(n, marks=pytest.mark.proof) for n in (1, 3, 4, 5))]
)
def test_an_interrupt_at_any_step_leaves_all_or_nothing(store, later):
    """Once at each of them, and a second time while the first is dealt with."""
    interrupt_each_step(store, later)


def test_an_interrupt_as_the_log_is_copied_leaves_a_store_that_closes(store, monkeypatch):
    """Also where the thread that copies is started; the fixture closes the store."""
    monkeypatch.setattr(sqlite_wal, "COPY_PAGES", 1)
    interrupt_each_step(store, None)


def interrupt_each_step(store, later):
    """Add, interrupted at the first step, at the second, and so on; check the store after each."""
    number, step, acknowledged = 1, 0, set[int]()
    while True:
        step += 1
        interrupter = Interrupter(SqliteStore.run, step, later)
        if interrupter.call(lambda number=number: add(store, number, number + 1)):
            acknowledged |= {number, number + 1}
        check_free(store.path)
        check_works(store, number + 2)
        acknowledged.add(number + 2)
        number += 3
        if not interrupter.struck:
            break
    assert step > 40
    assert acknowledged <= added(store)
    assert store.report().complaints == []


def test_an_interrupt_while_the_file_is_opened_or_made_leaves_a_store_that_works(tmp_path):
    """The first batch of a process makes the tables, takes its locks and pins them."""
    step = 0
    while True:
        step += 1 + step // 20
        path = tmp_path / f"{step}.db"
        store = SqliteStore(path)
        interrupter = Interrupter(SqliteStore.run, step)
        interrupter.call(lambda store=store: add(store, 1))
        check_works(store, 2)
        check_free(path)
        store.close()
        assert not path.with_name(f"{step}.db-wal").exists()
        if not interrupter.struck:
            break
    assert step > 100


def test_interrupts_at_random_moments_lose_nothing(store, monkeypatch):
    """By a timer of the system, again and again, also while a batch waits for its turn."""
    # One that strikes where an object is removed goes nowhere, and is no fault.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals come to the main thread")
    rng, acknowledged, stopped, is_armed = random.Random(1), set[int](), threading.Event(), False
    neighbour = SqliteStore(store.path)

    def crowd():
        number = 1_000_000
        while not stopped.is_set():
            add(neighbour, *range(number, number + 50))
            number += 50

    def strike(*_):
        if is_armed:
            raise KeyboardInterrupt

    thread = threading.Thread(target=crowd)
    # The same timer ends tests that hang.
    timer, handler = signal.getitimer(signal.ITIMER_REAL), signal.signal(signal.SIGALRM, strike)
    thread.start()
    try:
        for number in range(1, 600):
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.random() / 200, 0.000_4)
                add(store, number)
                is_armed = False
                acknowledged.add(number)
            except KeyboardInterrupt:
                is_armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        stopped.set()
        thread.join()
        neighbour.close()

    check_free(store.path)
    check_works(store, 999)
    assert 20 < len(acknowledged) < 590
    assert acknowledged <= added(store)
    assert store.report().complaints == []
