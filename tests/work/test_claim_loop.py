"""How a worker claims: by turn while somebody waits, by priority when it has to wait itself."""

import asyncio
import random
from collections import Counter
from functools import partial

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.errors import StoreFull, Unavailable
from holdfast.core.handler import Handler, SetHandler
from holdfast.engine.store_connection import StoreConnection
from holdfast.store.memory.store import MemoryStore
from holdfast.work import claim_loop as module
from holdfast.work.capacity import Capacity, TaskDurations
from holdfast.work.claim_loop import ClaimLoop, ClaimScope
from holdfast.work.scheduler import Fair, SchedulerSettings, make_scheduler
from holdfast.work.supervisor.sources import chosen_tenants
from tests.queue_suite.tools import until


class RecordingConnection(StoreConnection):
    """Records the claims."""

    def __init__(self):
        super().__init__(MemoryStore(), rng=random.random)
        self.claims = []

    def ask_async(self, asked, *, wait_s=0.0):
        if isinstance(asked, c.Claim):
            self.claims.append(asked)
        return super().ask_async(asked, wait_s=wait_s)


class Dispatcher(module.Dispatcher):
    """Takes jobs until it has so many, and tells who waits for that."""

    def __init__(self, room, most):
        self.room, self.most = room, most
        self.jobs = []
        self.full = asyncio.Event()

    def capacity(self):
        return Capacity(TaskDurations(), free_slots=self.room)

    def held(self):
        return self.jobs

    def slots(self):
        return self.room, {}

    def in_requests(self, pick):
        return pick

    def dispatch(self, jobs):
        self.jobs += [claimed.job for claimed in jobs]
        if len(self.jobs) >= self.most:
            self.full.set()

    def record_claim(self, error):
        pass

    async def is_finished(self):
        return False


@pytest.fixture
def connection():
    connection = RecordingConnection()
    yield connection
    connection.close()


def add(connection, count, **fields):
    """Add jobs."""
    connection.ask(c.Add(jobs=tuple(c.NewJob(**{"task": "t"} | fields) for _ in range(count))))


def work(
    connection,
    *,
    room=4,
    most,
    tasks=("t", "u"),
    tenants=None,
    handled=False,
    scheduler="fair",
    meanwhile=lambda: None,
):
    """Claim until so many jobs are in hand; these."""

    async def go():
        dispatcher, stopping = Dispatcher(room, most), asyncio.Event()
        scope = ClaimScope(tasks=tasks, tenants=tenants, lease_ms=60_000, handled=handled)
        made = make_scheduler(scheduler, SchedulerSettings(rng=random.Random(1).random))
        running = asyncio.create_task(
            ClaimLoop(connection, dispatcher, made, scope).run(stopping, asyncio.Event())
        )
        await asyncio.to_thread(meanwhile)
        await dispatcher.full.wait()
        stopping.set()
        await running
        return dispatcher.jobs[:most]

    return asyncio.run(go())


def whose(jobs):
    """Their tenants and tasks."""
    return [(job.tenant, job.task) for job in jobs]


def test_tenants_share_and_start_in_turn(connection):
    """Whoever came first, and whoever has more; also within one claim."""
    add(connection, 50, tenant="whale")
    for tenant in ("x", "y", "z"):
        add(connection, 5, tenant=tenant)

    starts = whose(work(connection, room=8, most=16))

    assert Counter(starts) == {(tenant, "t"): 4 for tenant in ("whale", "x", "y", "z")}
    assert {tenant for tenant, _ in starts[:4]} == {"whale", "x", "y", "z"}


def test_tasks_share_within_a_tenant_and_priority_holds_within_a_task(connection):
    add(connection, 50, task="t")
    add(connection, 5, task="u", priority=100)
    add(connection, 1, task="u", priority=200)

    jobs = work(connection, most=8, tenants=("",))

    assert Counter(whose(jobs)) == {("", "t"): 4, ("", "u"): 4}
    assert [job.priority for job in jobs if job.task == "u"] == [200, 100, 100, 100]


@pytest.mark.parametrize("scheduler", ["fair", "first"])
def test_a_worker_of_handlers_names_no_tasks(connection, scheduler):
    """It gets jobs that have a handler, those too whose handler comes while it waits; and no others."""
    add(connection, 9, task="python", priority=900)
    add(connection, 2, task="stored", tenant="x")

    def upload():
        for tenant in ("x", "y"):
            one = Handler(task="stored", tenant=tenant, lang="shell", body="true")
            connection.ask(SetHandler(handler=one))
        add(connection, 2, task="stored", tenant="y")

    jobs = work(connection, most=4, tasks=None, handled=True, scheduler=scheduler, meanwhile=upload)

    assert Counter(whose(jobs)) == {("x", "stored"): 2, ("y", "stored"): 2}
    assert all(claim.handled and claim.tasks is None for claim in connection.claims)


def test_first_goes_by_priority_over_all(connection):
    """Whoever's turn it is."""
    add(connection, 9, tenant="x")
    add(connection, 9, tenant="y", priority=900)

    assert whose(work(connection, most=12, scheduler="first")) == [("y", "t")] * 9 + [("x", "t")] * 3
    assert all(not claim.picks for claim in connection.claims)


def test_with_one_task_of_one_tenant_there_is_nothing_to_choose(connection):
    add(connection, 9)

    assert whose(work(connection, most=4, tasks=("t",), tenants=("",))) == [("", "t")] * 4
    assert all(not claim.picks for claim in connection.claims)


def test_a_worker_that_got_all_that_came_lists_nothing_before_it_waits_again(connection):
    asked = []
    ask = connection.ask_async

    def recorded(one, **fields):
        asked.append(type(one))
        return ask(one, **fields)

    connection.ask_async = recorded

    def has_claimed(times):
        return asked.count(c.Claim) == times

    def bring():
        for claims, jobs in ((1, 1), (2, 4)):
            until(partial(has_claimed, claims))
            add(connection, jobs)

    work(connection, room=4, most=5, meanwhile=bring)

    assert asked[:4] == [q.ListWaiting, c.Claim, c.Claim, q.ListWaiting]


def test_only_the_tenants_and_tasks_that_are_asked_for_are_claimed(connection):
    add(connection, 3, tenant="x")
    add(connection, 3, tenant="y")
    add(connection, 3, tenant="z")
    add(connection, 3, tenant="x", task="unheard-of")

    assert Counter(whose(work(connection, most=6, tenants=("x", "z")))) == {("x", "t"): 3, ("z", "t"): 3}


def _unknown(connection):
    add(connection, 5, task="unheard-of")


def _mocked(connection):
    add(connection, 5, mock=True)


def _paused(connection):
    connection.ask(c.Pause(task="t"))
    add(connection, 5)


@pytest.mark.parametrize("waiting", [_unknown, _mocked, _paused])
def test_a_worker_beside_what_it_may_not_have_does_not_spin(connection, waiting):
    """It makes one claim, which waits, and gets what comes."""
    waiting(connection)

    def later():
        # The claim is there: whoever is asked now is asked after it.
        while not any(not claim.picks for claim in connection.claims):
            connection.ask(c.Upkeep())
        add(connection, 1, task="u")

    assert whose(work(connection, most=1, meanwhile=later)) == [("", "u")]
    assert len(connection.claims) <= 4


def test_what_the_read_cannot_see_is_claimed_all_the_same(connection, monkeypatch):
    """Behind more paused tenants than it looks at: then by priority."""
    monkeypatch.setattr(module, "MAX_WINDOW", 1)
    monkeypatch.setattr(module, "MIN_WINDOW", 1)
    for n in range(20):
        connection.ask(c.Pause(tenant=f"a{n:02}"))
        add(connection, 1, tenant=f"a{n:02}")
    add(connection, 2, tenant="b")

    assert whose(work(connection, room=1, most=2)) == [("b", "t")] * 2


def test_the_scheduler_is_told_what_starts_and_stops(connection):
    """By what is in hand when it is asked."""
    add(connection, 9, tenant="x")
    add(connection, 9, tenant="y")
    scheduler = Fair(SchedulerSettings(rng=random.random))

    async def go():
        dispatcher = Dispatcher(2, 99)
        scope = ClaimScope(tasks=("t",), tenants=None, lease_ms=60_000)
        claiming = ClaimLoop(connection, dispatcher, scheduler, scope)
        told = []
        for _ in range(3):
            dispatcher.dispatch(await claiming.claim(asyncio.Event()))
            told.append(dict(scheduler.running))
            dispatcher.jobs = [job for job in dispatcher.jobs if job.tenant == "x"]
        return told

    assert asyncio.run(go()) == [{}, {("x", "t"): 1}, {("x", "t"): 2}]


@pytest.mark.parametrize(
    ("asked", "tenants"),
    [((), ("own",)), (("a", "b", "a"), ("a", "b")), (("*",), None), (("a", "*"), None), (("",), ("",))],
)
def test_whose_jobs_are_claimed(asked, tenants):
    assert chosen_tenants(asked, "own") == tenants


def watched(connection, monkeypatch, change, *, room=4):
    """What was asked while a claim waited, after `change` and several looks up."""
    monkeypatch.setattr(module, "RECHECK_S", 0.01)

    class Looked(Dispatcher):
        looks = 0

        def capacity(self):
            self.looks += 1
            if self.looks == 10:
                change(self)
            elif self.looks == 20:
                self.full.set()
            return super().capacity()

    async def go():
        dispatcher, stopping = Looked(room, 1), asyncio.Event()
        scope = ClaimScope(tasks=("t",), tenants=("",), lease_ms=60_000)
        made = make_scheduler("fair", SchedulerSettings(rng=random.Random(1).random))
        running = asyncio.create_task(
            ClaimLoop(connection, dispatcher, made, scope).run(stopping, asyncio.Event())
        )
        await dispatcher.full.wait()
        stopping.set()
        await running

    asyncio.run(go())
    return [command.limit for command in connection.claims]


def test_a_claim_that_waits_is_made_once_however_often_the_worker_looks_up(connection, monkeypatch):
    """Looking costs the store nothing."""
    assert watched(connection, monkeypatch, lambda _dispatcher: None) == [4]


def test_a_claim_that_waits_is_made_anew_where_there_is_another_room(connection, monkeypatch):
    """It must neither bring more than can start nor leave a place empty."""

    def change(dispatcher):
        dispatcher.room = 2

    assert watched(connection, monkeypatch, change) == [4, 2]


@pytest.mark.parametrize("error", [StoreFull("no capacity is left"), Unavailable("the server is away")])
def test_a_worker_goes_on_when_its_first_claims_could_not_be_answered(connection, monkeypatch, error):
    """A disk that fills up between the start of a worker and its first claim does not end it."""
    monkeypatch.setattr(module, "STORE_PAUSE_S", 0.0)
    add(connection, 1)
    asked, tries = connection.ask_async, []

    async def failing(command, *, wait_s=0.0):
        tries.append(command)
        if len(tries) <= 2:
            raise error
        return await asked(command, wait_s=wait_s)

    monkeypatch.setattr(connection, "ask_async", failing)

    assert len(work(connection, most=1)) == 1
    assert len(tries) >= 3
