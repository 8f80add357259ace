"""How a worker claims: by turn while somebody waits, by priority when it has to wait itself."""

import asyncio
import random
from collections import Counter

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import StoreFull, Unavailable
from holdfast.engine.connection import Connection
from holdfast.store.memory.store import MemoryStore
from holdfast.work.scheduler import Fair, Setting, make_scheduler
from holdfast.work.supervisor import claiming as module
from holdfast.work.supervisor.claiming import Claiming, Wanted
from holdfast.work.supervisor.pace import Pace, Space
from holdfast.work.supervisor.sources import chosen_tenants


class Line(Connection):
    """Remembers the claims that it was asked for."""

    def __init__(self):
        super().__init__(MemoryStore(), dice=random.random)
        self.claims = []

    def ask_async(self, asked, *, wait_s=0.0):
        if isinstance(asked, c.Claim):
            self.claims.append(asked)
        return super().ask_async(asked, wait_s=wait_s)


class Hands:
    """Takes jobs until it has so many, and tells who waits for that."""

    def __init__(self, room, most):
        self.room, self.most = room, most
        self.jobs = []
        self.full = asyncio.Event()

    def space(self):
        return Space(Pace(), free=self.room)

    def held(self):
        return self.jobs

    def hand_over(self, jobs):
        self.jobs += [claimed.job for claimed in jobs]
        if len(self.jobs) >= self.most:
            self.full.set()

    def note_claim(self, error):
        pass

    async def is_over(self):
        return False


@pytest.fixture
def line():
    line = Line()
    yield line
    line.close()


def add(line, count, **fields):
    """Add jobs."""
    line.ask(c.Add(jobs=tuple(c.NewJob(**{"task": "t"} | fields) for _ in range(count))))


def work(line, *, room=4, most, tasks=("t", "u"), tenants=None, scheduler="fair", meanwhile=lambda: None):
    """Claim until so many jobs are in hand; these."""

    async def go():
        hands, stopping = Hands(room, most), asyncio.Event()
        wanted = Wanted(tasks=tasks, tenants=tenants, lease_ms=60_000)
        made = make_scheduler(scheduler, Setting(dice=random.Random(1).random))
        running = asyncio.create_task(Claiming(line, hands, made, wanted).run(stopping, asyncio.Event()))
        await asyncio.to_thread(meanwhile)
        await hands.full.wait()
        stopping.set()
        await running
        return hands.jobs[:most]

    return asyncio.run(go())


def whose(jobs):
    """Their tenants and tasks."""
    return [(job.tenant, job.task) for job in jobs]


def test_tenants_share_and_start_in_turn(line):
    """Whoever came first, and whoever has more; also within one claim."""
    add(line, 50, tenant="whale")
    for tenant in ("x", "y", "z"):
        add(line, 5, tenant=tenant)

    starts = whose(work(line, room=8, most=16))

    assert Counter(starts) == {(tenant, "t"): 4 for tenant in ("whale", "x", "y", "z")}
    assert {tenant for tenant, _ in starts[:4]} == {"whale", "x", "y", "z"}


def test_tasks_share_within_a_tenant_and_priority_holds_within_a_task(line):
    add(line, 50, task="t")
    add(line, 5, task="u", priority=100)
    add(line, 1, task="u", priority=200)

    jobs = work(line, most=8, tenants=("",))

    assert Counter(whose(jobs)) == {("", "t"): 4, ("", "u"): 4}
    assert [job.priority for job in jobs if job.task == "u"] == [200, 100, 100, 100]


def test_first_goes_by_priority_over_all(line):
    """Whoever's turn it is."""
    add(line, 9, tenant="x")
    add(line, 9, tenant="y", priority=900)

    assert whose(work(line, most=12, scheduler="first")) == [("y", "t")] * 9 + [("x", "t")] * 3
    assert all(not claim.picks for claim in line.claims)


def test_with_one_task_of_one_tenant_there_is_nothing_to_choose(line):
    add(line, 9)

    assert whose(work(line, most=4, tasks=("t",), tenants=("",))) == [("", "t")] * 4
    assert all(not claim.picks for claim in line.claims)


def test_only_the_tenants_and_tasks_that_are_asked_for_are_claimed(line):
    add(line, 3, tenant="x")
    add(line, 3, tenant="y")
    add(line, 3, tenant="z")
    add(line, 3, tenant="x", task="unheard-of")

    assert Counter(whose(work(line, most=6, tenants=("x", "z")))) == {("x", "t"): 3, ("z", "t"): 3}


def _unknown(line):
    add(line, 5, task="unheard-of")


def _mocked(line):
    add(line, 5, mock=True)


def _paused(line):
    line.ask(c.Pause(task="t"))
    add(line, 5)


@pytest.mark.parametrize("waiting", [_unknown, _mocked, _paused])
def test_a_worker_beside_what_it_may_not_have_does_not_spin(line, waiting):
    """It makes one claim, which waits, and gets what comes."""
    waiting(line)

    def later():
        # The claim is there: whoever is asked now is asked after it.
        while not any(not claim.picks for claim in line.claims):
            line.ask(c.Upkeep())
        add(line, 1, task="u")

    assert whose(work(line, most=1, meanwhile=later)) == [("", "u")]
    assert len(line.claims) <= 4


def test_what_the_read_cannot_see_is_claimed_all_the_same(line, monkeypatch):
    """Behind more paused tenants than it looks at: then by priority."""
    monkeypatch.setattr(module, "MOST_WINDOW", 1)
    monkeypatch.setattr(module, "LEAST_WINDOW", 1)
    for n in range(20):
        line.ask(c.Pause(tenant=f"a{n:02}"))
        add(line, 1, tenant=f"a{n:02}")
    add(line, 2, tenant="b")

    assert whose(work(line, room=1, most=2)) == [("b", "t")] * 2


def test_the_scheduler_is_told_what_starts_and_stops(line):
    """By what is in hand when it is asked."""
    add(line, 9, tenant="x")
    add(line, 9, tenant="y")
    scheduler = Fair(Setting(dice=random.random))

    async def go():
        hands = Hands(2, 99)
        wanted = Wanted(tasks=("t",), tenants=None, lease_ms=60_000)
        claiming = Claiming(line, hands, scheduler, wanted)
        told = []
        for _ in range(3):
            hands.hand_over(await claiming.claim(asyncio.Event()))
            told.append(dict(scheduler.running))
            hands.jobs = [job for job in hands.jobs if job.tenant == "x"]
        return told

    assert asyncio.run(go()) == [{}, {("x", "t"): 1}, {("x", "t"): 2}]


@pytest.mark.parametrize(
    ("asked", "tenants"),
    [((), ("own",)), (("a", "b", "a"), ("a", "b")), (("*",), None), (("a", "*"), None), (("",), ("",))],
)
def test_whose_jobs_are_claimed(asked, tenants):
    assert chosen_tenants(asked, "own") == tenants


def watched(line, monkeypatch, change, *, room=4):
    """What was asked while a claim waited, after `change` and several looks up."""
    monkeypatch.setattr(module, "LOOK_UP_S", 0.01)

    class Looked(Hands):
        looks = 0

        def space(self):
            self.looks += 1
            if self.looks == 10:
                change(self)
            elif self.looks == 20:
                self.full.set()
            return super().space()

    async def go():
        hands, stopping = Looked(room, 1), asyncio.Event()
        wanted = Wanted(tasks=("t",), tenants=("",), lease_ms=60_000)
        made = make_scheduler("fair", Setting(dice=random.Random(1).random))
        running = asyncio.create_task(Claiming(line, hands, made, wanted).run(stopping, asyncio.Event()))
        await hands.full.wait()
        stopping.set()
        await running

    asyncio.run(go())
    return [command.limit for command in line.claims]


def test_a_claim_that_waits_is_made_once_however_often_the_worker_looks_up(line, monkeypatch):
    """Looking costs the store nothing."""
    assert watched(line, monkeypatch, lambda _hands: None) == [4]


def test_a_claim_that_waits_is_made_anew_where_there_is_another_room(line, monkeypatch):
    """It must neither bring more than can start nor leave a place empty."""

    def change(hands):
        hands.room = 2

    assert watched(line, monkeypatch, change) == [4, 2]


@pytest.mark.parametrize("error", [StoreFull("no space is left"), Unavailable("the server is away")])
def test_a_worker_goes_on_when_its_first_claims_could_not_be_answered(line, monkeypatch, error):
    """A disk that fills up between the start of a worker and its first claim does not end it."""
    monkeypatch.setattr(module, "STORE_PAUSE_S", 0.0)
    add(line, 1)
    asked, tries = line.ask_async, []

    async def failing(command, *, wait_s=0.0):
        tries.append(command)
        if len(tries) <= 2:
            raise error
        return await asked(command, wait_s=wait_s)

    monkeypatch.setattr(line, "ask_async", failing)

    assert len(work(line, most=1)) == 1
    assert len(tries) >= 3
