"""Group commit: the first caller commits for all that come meanwhile, an interruptible one for itself."""

import random
import signal
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core import commands as c
from holdfast.core.bounds import BATCH_BYTES, BATCH_JOBS
from holdfast.core.errors import Closed, Unavailable
from holdfast.core.job import Place
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.group import take
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import monotonic_s
from holdfast.store.common.interrupts import interruptible
from holdfast.store.contract import Capabilities, JobFilter
from holdfast.store.memory.store import MemoryStore
from tests.doubles import OnlyBatches

ADD = c.Add(jobs=(c.NewJob(task="work"),))
# Jobs of claims that were struck after `ask` had returned, before the test had noted them.
AT_THE_VERY_END = 20
CLAIM = c.Claim(tasks=("work",), lease_ms=60_000)


class Watched(OnlyBatches, MemoryStore):
    """Remembers which thread ran a batch, can be made to fail, and can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []
        self.fault: Exception | None = None
        # The batch after which its thread is interrupted; at most 0: none.
        self.interrupts = 0
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def run(self, fn):
        """Run a batch."""
        self.threads.append(threading.current_thread())
        self.began.set()
        assert self.goes_on.wait(60)
        if self.fault is not None:
            raise self.fault
        result = super().run(fn)
        self.interrupts -= 1
        if self.interrupts == 0:
            raise Interrupted
        return result


@pytest.fixture
def store():
    return Watched()


@pytest.fixture
def line(store):
    made = Committer(Engine(store, rng=lambda: 0.5))
    made.ask(ADD)
    yield made
    made.close()


def in_thread(call):
    """What a call comes to in a thread of its own, and that thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: (call(), threading.current_thread())).result()


def test_whoever_asks_commits(line, store):
    """In the main thread, in another one, and in one that a limit may strike."""

    def limited():
        with interruptible(), interruptible():
            pass
        with interruptible():
            return line.ask(ADD)

    line.ask(ADD)
    assert store.threads[-1] is threading.main_thread()
    for call in (lambda: line.ask(ADD), limited):
        ids, thread = in_thread(call)
        assert store.threads[-1] is thread
        assert list(line.engine.read(lambda txn, ids=ids: txn.load(ids))) == ids


def test_those_that_come_during_a_commit_share_the_next(line, store):
    store.began.clear()
    store.goes_on.clear()
    before = len(store.threads)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(line.ask, ADD)
        assert store.began.wait(60)
        others = [pool.submit(line.ask, ADD) for _ in range(8)]
        while len(line._groups[0].waiting) < 8:
            assert not first.done()
        store.goes_on.set()
        ids = {future.result(60)[0] for future in (first, *others)}

    assert len(ids) == 9
    assert len(store.threads) - before == 2


def test_what_may_be_interrupted_commits_nobody_elses_command(line, store):
    """Whatever strikes it is its own affair."""
    store.began.clear()
    store.goes_on.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(line.ask, ADD)
        assert store.began.wait(60)
        other = pool.submit(line.ask, ADD)
        while not line._groups[0].waiting:
            assert not first.done()
        threading.Timer(0.05, store.goes_on.set).start()
        line.ask(ADD)
        first.result(60)
        other.result(60)

    assert [thread is threading.main_thread() for thread in store.threads].count(True) == 2


def test_what_goes_wrong_is_told_to_whom_it_concerns(line, store):
    store.fault = Unavailable("gone")
    with pytest.raises(Unavailable, match="gone"):
        in_thread(lambda: line.ask(ADD))

    store.fault = None
    ids, _ = in_thread(lambda: line.ask(ADD))
    assert len(ids) == 1


class Interrupted(BaseException):
    """Raised in the middle."""


@pytest.fixture
def alarm():
    """Raises `Interrupted` in the main thread after some seconds."""

    def strike(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, strike)
    yield lambda after_s: signal.setitimer(signal.ITIMER_REAL, after_s)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# What strikes inside a callback of the collector is swallowed there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_step_leaves_the_queue_usable_and_no_job_claimed(alarm):
    """A claim that was struck before its caller got the job gives it back."""
    line = Committer(Engine(MemoryStore(), rng=lambda: 0.5))
    rng, struck, got = random.Random(7), 0, 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(600):
            assert len(pool.submit(line.ask, ADD).result(60)) == 1
            claimed = []
            try:
                alarm(rng.uniform(1e-6, 4e-4))
                claimed = line.ask(CLAIM)
                alarm(0)
            except Interrupted:
                struck += 1
            got += len(claimed)
    assert struck > 50
    until_s = monotonic_s() + 60
    while True:
        running = line.engine.read(lambda txn: txn.jobs(JobFilter(place=Place.RUNNING), after=0, limit=999))
        if len(running) <= got + AT_THE_VERY_END:
            break
        assert monotonic_s() < until_s, running
    line.close()


def test_a_thread_that_is_interrupted_leaves_no_other_waiting(line, store):
    """By a time limit of a library, in a thread that commits for others: these are told of the doubt."""
    store.began.clear()
    store.goes_on.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(line.ask, ADD)
        assert store.began.wait(60)
        others = [pool.submit(line.ask, ADD), pool.submit(line.ask, CLAIM)]
        while len(line._groups[0].waiting) < 2:
            assert not first.done()
        store.interrupts = 2
        store.goes_on.set()
        errors = [other.exception(60) for other in others]
        assert len(first.result(60)) == 1

    assert sorted(type(error).__name__ for error in errors) == ["Interrupted", "Unsettled"]
    # The job that was claimed for it, if the commit was made, is released.
    for _ in range(3):
        assert len(line.ask(CLAIM, wait_s=10)) == 1


class Undone(OnlyBatches, MemoryStore):
    """Undoes the next batch, whose thread is interrupted; another thread claims before that is noticed."""

    line: Committer
    claimed: list[c.Claimed]
    undoes = False

    def run(self, fn):
        """Run a batch."""
        if not self.undoes:
            return super().run(fn)
        self.undoes = False

        def undo(txn):
            fn(txn)
            raise Interrupted

        try:
            return super().run(undo)
        finally:
            other = c.Claim(tasks=("work",), lease_ms=30_000)
            self.claimed = in_thread(lambda: self.line.engine.execute([other]))[0].replies[0]


def test_a_claim_that_was_undone_does_not_release_the_next_one_of_that_number():
    store = Undone()
    line = store.line = Committer(Engine(store, rng=lambda: 0.5))
    line.ask(ADD)

    store.undoes = True
    with pytest.raises(Interrupted):
        line.ask(CLAIM)
    # By now the release that followed has been made, and refused.
    line.ask(ADD)

    (claimed,) = store.claimed
    assert line.ask(c.Answer(hold=c.hold_of(claimed.job))).id == claimed.job.id
    line.close()


def test_ctrl_c_while_a_claim_waits_gives_nothing_away(line, alarm):
    line.ask(CLAIM)

    def wait():
        alarm(0.2)
        line.ask(CLAIM, wait_s=60)

    with pytest.raises(Interrupted):
        wait()
    (job_id,) = line.ask(ADD)

    (claimed,) = line.ask(CLAIM, wait_s=10)
    assert (claimed.job.id, claimed.job.claim) == (job_id, 1)


def test_beside_a_commit_that_takes_long_others_are_made():
    """Where a store lets several be under way: nobody waits for one that takes long."""
    store = Several()
    line = Committer(Engine(store, rng=lambda: 0.5))
    line.ask(ADD)
    store.slow = True
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(line.ask, ADD)
        assert store.began.wait(60)
        assert len(pool.submit(line.ask, ADD).result(60)) == 1
        assert len(pool.submit(line.ask, ADD).result(60)) == 1
        assert not slow.done()
        store.goes_on.set()
        assert len(slow.result(60)) == 1
    line.close()


class Several(OnlyBatches, MemoryStore):
    """Has two commits under way at once; one batch takes its time before it begins."""

    capabilities = Capabilities(parallel_commits=2)

    def __init__(self) -> None:
        super().__init__()
        self.began, self.goes_on, self.slow = threading.Event(), threading.Event(), False

    def run(self, fn):
        """Run a batch."""
        if self.slow:
            self.slow = False
            self.began.set()
            assert self.goes_on.wait(60)
        return super().run(fn)


@pytest.mark.parametrize(
    ("command", "group"),
    [
        (c.Answer(hold=c.Hold(job_id=7, owner=2, claim=1)), 1),
        (c.Add(jobs=ADD.jobs, hold=c.Hold(job_id=7, owner=2, claim=1)), 1),
        (c.Claim(limit=1, lease_ms=1_000, owner=1), 0),
        (c.Cancel(job_id=7), 0),
    ],
)
def test_what_has_an_order_keeps_it(command, group):
    """The verbs of a holder, and claims of the port, whose clients may send several ahead."""
    line = Committer(Engine(Several(), rng=lambda: 0.5))
    assert line._group_of(command) is line._groups[group]
    line.close()


def test_what_was_put_in_comes_before_what_is_asked_next(line):
    """Of one thread: also where it did not wait for the first."""
    for n in range(200):
        line.submit(Ticket(c.Add(jobs=(c.NewJob(task=f"t{n}"),))))
        assert line.ask(c.Claim(tasks=(f"t{n}",), lease_ms=1_000))


def test_nothing_is_committed_after_the_end(line):
    line.close()

    with pytest.raises(Closed):
        in_thread(lambda: line.ask(ADD))


def test_no_job_is_missed_by_those_who_wait(line):
    """Adds of threads, and claims that come and wait at any moment beside them."""
    number = 300
    got: list[int] = []

    def take():
        while len(got) < number:
            claimed = line.ask(CLAIM, wait_s=0.2)
            got.extend(one.job.id for one in claimed)

    line.ask(CLAIM)
    takers = [threading.Thread(target=take) for _ in range(2)]
    for thread in takers:
        thread.start()
    added = [in_thread(lambda: line.ask(ADD))[0][0] for _ in range(number)]
    for thread in takers:
        thread.join(60)

    assert sorted(got) == sorted(added)


def test_a_batch_takes_no_more_than_its_bounds():
    """A command that alone has more than a batch is taken alone."""
    half = c.Add(jobs=ADD.jobs * (BATCH_JOBS // 2))
    large = c.Add(jobs=(c.NewJob(task="work", data="x" * (BATCH_BYTES + 1)),))
    waiting = deque(Ticket(command) for command in (half, ADD, half, large, ADD))

    taken = []
    while waiting:
        taken.append([ticket.command for ticket in take(waiting)])

    assert taken == [[half, ADD], [half], [large], [ADD]]
