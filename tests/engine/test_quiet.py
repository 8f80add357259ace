"""Upkeep goes by what there is to do: at its moment, soon while jobs come and go, and else seldom."""

import random
import threading

import msgspec
import pytest

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.kinds import CHORE, name_of
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.engine import upkeep
from holdfast.engine.commands import chores
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import JOBS, Changes
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock
from tests.doubles import SharedMemory

START_MS = 1_800_000_000_000
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
CLAIM = c.Claim(limit=1, lease_ms=MINUTE_MS, tenant="")
PATIENCE_S = 60.0


@pytest.fixture
def clock():
    return MovedClock(START_MS)


@pytest.fixture
def waiting(request):
    """What makes a claim wait in a thread, and ends it afterwards."""
    made = []

    def make(store):
        made.append(Waiting(store))
        return made[-1]

    yield make
    for one in made:
        one.line.close()


def engine_on(store, **options):
    return Engine(store, rng=random.random, **options)


def ahead_ms(engine, clock):
    """How far ahead the rest of upkeep is."""
    return engine.next_upkeep_ms - clock()


def work_one(engine):
    """Add a job, claim and finish it."""
    engine.execute([c.Add(jobs=(c.NewJob(task="t"),))])
    (claimed,) = engine.execute([CLAIM]).replies[0]
    engine.execute([c.Answer(hold=c.hold_of(claimed.job), held=claimed.job)])


def test_where_nothing_is_to_do_it_comes_seldom(clock):
    engine = engine_on(MemoryStore(clock))

    engine.execute([CLAIM])

    assert ahead_ms(engine, clock) == upkeep.QUIET_MS


def test_while_jobs_come_and_go_it_comes_soon_and_then_seldom_again(clock):
    """One more look, a period after the last of them."""
    engine = engine_on(MemoryStore(clock))
    engine.execute([CLAIM])

    work_one(engine)
    assert ahead_ms(engine, clock) == bounds.UPKEEP_PERIOD_MS
    clock.advance(bounds.UPKEEP_PERIOD_MS)
    engine.execute([CLAIM])

    assert ahead_ms(engine, clock) == upkeep.QUIET_MS


def test_others_who_work_do_not_make_it_busy(clock):
    """Each looks after its own; who is idle stays so."""
    memory = SharedMemory(clock)
    idle, busy = engine_on(memory.open()), engine_on(memory.open())
    idle.execute([CLAIM])
    quiet_ms = idle.next_upkeep_ms

    work_one(busy)
    idle.execute([CLAIM])

    assert idle.next_upkeep_ms == quiet_ms


@pytest.mark.parametrize(
    ("retention_ms", "most_ms"),
    [(MINUTE_MS, bounds.UPKEEP_PERIOD_MS), (20 * MINUTE_MS, 2 * MINUTE_MS), (DAY_MS, upkeep.QUIET_MS)],
)
def test_a_short_archive_is_tidied_in_time(clock, retention_ms, most_ms):
    """A tenth of what it keeps is as late as it gets."""
    engine = engine_on(MemoryStore(clock), retention_ms=retention_ms)

    engine.execute([CLAIM])

    assert ahead_ms(engine, clock) == most_ms


def test_a_schedule_has_its_moment(clock):
    engine = engine_on(MemoryStore(clock))
    engine.execute([CLAIM])

    often = Schedule(name="often", every_ms=MINUTE_MS)
    engine.execute([c.SetSchedule(schedule=often, job=c.NewJob(task="t"))])
    engine.execute([CLAIM])

    assert 0 < ahead_ms(engine, clock) <= MINUTE_MS


class Waiting:
    """A claim that waits in a thread."""

    def __init__(self, store, task="t"):
        self.line = Committer(engine_on(store))
        self.found = []
        self._task = task
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()
        self.until(lambda: self.line._waiter._claims)

    def _wait(self):
        command = c.Claim(limit=1, lease_ms=MINUTE_MS, tenant="", tasks=(self._task,))
        self.found = self.line.ask(command, wait_s=PATIENCE_S)

    def until(self, happened):
        """Look until something has happened."""
        until_s = monotonic_s() + PATIENCE_S
        while not happened():
            assert monotonic_s() < until_s, "it never happened"

    def ends(self):
        """What it has got."""
        self._thread.join(PATIENCE_S)
        return [claimed.job.task for claimed in self.found]


def test_who_waits_looks_anew_when_the_clock_was_set_back(clock, waiting):
    """What it took for the next moment is far ahead then, and what a domain waits for too."""
    memory = SharedMemory(clock)
    spend_one_of_two(engine_on(memory.open()))
    waiter = waiting(memory.open())

    clock.advance(-HOUR_MS)
    waiter.until(lambda: waiter.line._waiter._next_known_ms < START_MS - HOUR_MS // 2)
    # By the clock of now it may start a second later.
    clock.advance(2_000)

    assert waiter.ends() == ["t"]


def spend_one_of_two(engine):
    """Have one of two jobs of a limited domain started."""
    engine.execute([c.SetLimit(domain=b"d", limit=Limit(rate=1))])
    engine.execute([c.Add(jobs=tuple(c.NewJob(task="t", domain=b"d") for _ in range(2)))])
    assert len(engine.execute([CLAIM]).replies[0]) == 1


def test_the_moment_of_a_domain_is_known_when_a_claim_has_found_nothing(clock):
    """Also where it is by this very claim that the domain has one."""
    engine = engine_on(MemoryStore(clock))
    spend_one_of_two(engine)
    clock.advance(-HOUR_MS)

    done = engine.execute([CLAIM])

    assert done.replies == [[]]
    assert done.next_ms == clock() + 1_000


def wakes(store, monkeypatch):
    """Who is woken by the batches to come."""
    told, run = [], store.run

    def noted(fn):
        def call(txn):
            changes, result = fn(txn)
            told.append(changes.wake)
            return changes, result

        return run(call)

    monkeypatch.setattr(store, "run", noted)
    return told


@pytest.mark.parametrize("what", ["a held job", "one that expires", "a higher rate"])
def test_moments_that_arise_are_told_to_others(clock, monkeypatch, what):
    """Nobody can claim anything for it, but those who wait must know until when."""
    store = MemoryStore(clock)
    engine = engine_on(store)
    engine.execute([c.SetLimit(domain=b"d", limit=Limit(rate=1 / 3600))])
    new = c.NewJob(task="t", domain=b"d")
    for _ in range(1 + (what == "a higher rate")):
        engine.execute([c.Add(jobs=(new,))])
    (claimed,) = engine.execute([CLAIM]).replies[0]
    if what == "one that expires":
        engine.execute([c.Add(jobs=(new,))])
    told = wakes(store, monkeypatch)

    if what == "a higher rate":
        engine.execute([c.SetLimit(domain=b"d", limit=Limit(rate=1))])
    else:
        expires_at = START_MS + MINUTE_MS if what == "one that expires" else 0
        engine.execute([c.Add(jobs=(c.NewJob(task="t", domain=b"d", expires_at=expires_at),))])

    assert told == [JOBS]
    assert claimed.job.domain == b"d"


def test_what_is_left_to_do_is_told_to_others(clock, monkeypatch):
    """Whoever asked for more than one transaction may never claim: those who wait must hear of it."""
    monkeypatch.setattr(chores, "UPKEEP_JOBS", 2)
    store = MemoryStore(clock)
    engine = engine_on(store)
    engine.execute([c.SetLimit(domain=b"d*", limit=Limit(concurrency=2))])
    engine.execute([c.Add(jobs=tuple(c.NewJob(task="t", domain=b"d%d" % n) for n in range(5)))])
    engine.execute([c.Upkeep()])
    told = wakes(store, monkeypatch)

    # Nothing becomes ready by it, nothing ends.
    done = engine.execute([c.SetLimit(domain=b"d*", limit=Limit(concurrency=1))])

    assert (done.woke, done.ended, done.news) == (False, set(), False)
    assert told == [JOBS]
    assert engine.next_upkeep_ms == 0


@pytest.mark.parametrize("chore", [False, True])
def test_who_is_told_of_a_job_claims_it_and_leaves_the_rest_of_upkeep(clock, waiting, monkeypatch, chore):
    """Which would make the job wait. What is to be done, and has no moment of its own, it sees."""
    memory = SharedMemory(clock)
    waiter, other = waiting(memory.open()), engine_on(memory.open())
    if chore:
        monkeypatch.setattr(chores, "go_on", lambda _batch: False)
        name = name_of("domains", "")
        memory.open().run(lambda txn: (Changes(rows={(CHORE, name): msgspec.msgpack.encode({})}), None))
    rests = []
    real = upkeep.rest

    def rest(batch):
        rests.append(batch)
        return real(batch)

    monkeypatch.setattr(upkeep, "rest", rest)

    other.execute([c.Add(jobs=(c.NewJob(task="t"),))])

    assert waiter.ends() == ["t"]
    assert bool(rests) == chore
