"""A thread that adds while nobody else asks for anything commits by itself."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Closed, Unavailable
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.group import interruptible
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import monotonic_s
from holdfast.store.memory.store import MemoryStore
from tests.queue_suite.tools import until

ADD = c.Add(jobs=(c.NewJob(task="work"),))


class Watched(MemoryStore):
    """Remembers which thread ran a batch, and can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []
        self.fault: Exception | None = None

    def run(self, fn):
        """Run a batch."""
        self.threads.append(threading.current_thread())
        if self.fault is not None:
            raise self.fault
        return super().run(fn)


@pytest.fixture
def store():
    return Watched()


@pytest.fixture
def line(store):
    """A committer that has committed before, one command at a time, and rests."""
    made = Committer(Engine(store, dice=lambda: 0.5))
    made.ask(ADD)
    until(lambda: made._is_quiet)
    yield made
    made.close()


def in_thread(call):
    """What a call comes to in a thread of its own, and that thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: (call(), threading.current_thread())).result()


def test_a_thread_commits_its_own_add(line, store):
    ids, thread = in_thread(lambda: line.ask(ADD))

    assert store.threads[-1] is thread
    assert list(line.read(lambda txn: txn.load(ids))) == ids


def test_what_a_signal_or_a_limit_may_break_into_is_left_to_the_committer(line, store):
    def limited():
        with interruptible(), interruptible():
            pass
        with interruptible():
            line.ask(ADD)

    line.ask(ADD)
    in_thread(limited)

    assert {thread.name for thread in store.threads} == {"holdfast-committer"}
    until(lambda: line._is_quiet)
    _, thread = in_thread(lambda: (limited(), line.ask(ADD)))
    assert store.threads[-2].name == "holdfast-committer"
    assert store.threads[-1].name in (thread.name, "holdfast-committer")


@pytest.mark.parametrize(
    "command", [c.Add(jobs=(c.NewJob(task="work", unique=b"one"),)), c.Upkeep(), c.Claim(tasks=("none",))]
)
def test_what_is_not_a_plain_add_is_left_to_the_committer(line, store, command):
    in_thread(lambda: line.ask(command))

    assert store.threads[-1].name == "holdfast-committer"


def test_who_waits_for_a_job_gets_it_in_the_same_commit(line, store):
    claim = Ticket(c.Claim(tasks=("work", "late"), lease_ms=1_000), deadline_s=monotonic_s() + 60)
    line.ask(c.Claim(tasks=("work",), lease_ms=1_000))
    line.submit(Ticket(c.Claim(tasks=("late",), lease_ms=1_000), deadline_s=monotonic_s() + 60))
    line.submit(claim)
    line.ask(c.Upkeep())
    ids, _ = in_thread(lambda: line.ask(c.Add(jobs=(c.NewJob(task="late"),))))

    assert ids
    assert store.threads[-1].name == "holdfast-committer"


def test_what_goes_wrong_is_told_to_who_asked(line, store):
    store.fault = Unavailable("gone")
    with pytest.raises(Unavailable, match="gone"):
        in_thread(lambda: line.ask(ADD))

    store.fault = None
    ids, _ = in_thread(lambda: line.ask(ADD))
    assert len(ids) == 1


def test_beside_a_thread_that_commits_by_itself_others_may_commit_too():
    """Where a store lets several be under way: nobody waits for one that takes long."""
    store = Slow()
    line = Committer(Engine(store, dice=lambda: 0.5))
    line.ask(ADD)
    until(lambda: line._is_quiet)
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(line.ask, c.Add(jobs=(c.NewJob(task="slow"),)))
        assert store.began.wait(60)
        # More than one: the committer's own thread is held up with the first.
        assert len(pool.submit(line.ask, ADD).result(60)) == 1
        assert len(pool.submit(line.ask, ADD).result(60)) == 1
        assert not slow.done()
        store.goes_on.set()
        assert len(slow.result(60)) == 1
    line.close()


class Slow(MemoryStore):
    """Has two lanes; a batch that adds a slow job takes its time before it begins."""

    lanes = 2

    def __init__(self) -> None:
        super().__init__()
        self.began, self.goes_on = threading.Event(), threading.Event()

    def run(self, fn):
        """Run a batch."""
        if threading.current_thread().name.startswith("ThreadPool") and not self.began.is_set():
            self.began.set()
            assert self.goes_on.wait(60)
        return super().run(fn)


def test_nothing_is_committed_after_the_end(line):
    line.close()

    with pytest.raises(Closed):
        in_thread(lambda: line.ask(ADD))


def test_no_job_is_missed_by_those_who_wait(line):
    """Adds of threads that commit by themselves, and claims that come and wait at any moment beside them."""
    number = 300
    got: list[int] = []

    def take():
        while len(got) < number:
            claimed = line.ask(c.Claim(tasks=("work",), lease_ms=60_000), wait_s=0.2)
            got.extend(one.job.id for one in claimed)

    for claimed in iter(lambda: line.ask(c.Claim(tasks=("work",), lease_ms=60_000)), []):
        assert claimed
    takers = [threading.Thread(target=take) for _ in range(2)]
    for thread in takers:
        thread.start()
    added = [in_thread(lambda: line.ask(ADD))[0][0] for _ in range(number)]
    for thread in takers:
        thread.join(30)

    assert sorted(got) == sorted(added)
