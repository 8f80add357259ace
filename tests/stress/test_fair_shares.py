"""Every tenant and every task gets its share, over many rounds of one worker.

Each job adds its own successor, as one that always has just one job does; one tenant has very many besides.
"""

import asyncio
import random
from collections import Counter
from typing import NamedTuple

import pytest

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core.bounds import BATCH_JOBS
from holdfast.engine.makers import open_connection
from holdfast.queue.connect import store_maker
from holdfast.work.capacity import Capacity, TaskDurations
from holdfast.work.claim_loop import ClaimLoop, ClaimScope
from holdfast.work.scheduler import SchedulerSettings, make_scheduler
from tests.doubles import engine_of
from tests.stress.test_fair_cost import Dispatcher


class Size(NamedTuple):
    """How many tenants with ten tasks each, how many starts of each task there are, and the least of one."""

    tenants: int
    starts: int
    least: float


SIZES = [
    pytest.param(Size(tenants=3, starts=10, least=0.25), id="few"),
    pytest.param(Size(tenants=80, starts=10, least=0.25), id="small", marks=pytest.mark.proof),
    pytest.param(Size(tenants=1_000, starts=1, least=0), id="full", marks=pytest.mark.proof),
]


class Slots(Dispatcher):
    """Some free slots, whose jobs have all ended before the next claim."""

    def __init__(self, slots):
        self.free = slots

    def capacity(self):
        return Capacity(TaskDurations(), free_slots=self.free)


async def start(claiming, connection, count):
    """The pairs of so many starts; each job adds its successor."""
    starts: Counter[tuple[str, str]] = Counter()
    while starts.total() < count:
        pairs = [(one.job.tenant, one.job.task) for one in await claiming.claim(asyncio.Event())]
        starts.update(pairs)
        news = [c.NewJob(tenant=tenant, task=task) for tenant, task in pairs]
        await connection.ask_async(c.Add(jobs=tuple(news)))
    return starts


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("slots", [1, 7])
@pytest.mark.parametrize("names", ["the same tasks", "tasks of its own"])
@pytest.mark.parametrize("handled", [False, True], ids=["named", "handled"])
def test_each_has_its_share(size, slots, names, handled, tell):
    """No tenant gets less than half of its share, and no task much less of its own."""
    rng = random.Random(1).random
    connection = open_connection(store_maker("memory://"), rng=rng)
    tenants = [f"tenant{n:04}" for n in range(size.tenants)]
    own = "" if names == "the same tasks" else "-{}"
    pairs = [(tenant, f"t{n}{own.format(tenant)}") for tenant in tenants for n in range(10)]
    whale = [("tenant0000", pairs[0][1])] * 2_000
    news = [c.NewJob(tenant=tenant, task=task) for tenant, task in (*pairs, *whale)]
    for at in range(0, len(news), BATCH_JOBS):
        connection.ask(c.Add(jobs=tuple(news[at : at + BATCH_JOBS])))
    if handled:
        handlers = [h.Handler(tenant=t, task=task, lang="shell", body="true") for t, task in pairs]
        for at in range(0, len(handlers), BATCH_JOBS):
            engine_of(connection).execute(
                [h.SetHandler(handler=one) for one in handlers[at : at + BATCH_JOBS]]
            )
    scope = ClaimScope(tasks=None, tenants=None, lease_ms=600_000, handled=handled)
    scheduler = make_scheduler("fair", SchedulerSettings(rng=rng))
    claiming = ClaimLoop(connection, Slots(slots), scheduler, scope, rng=rng)

    starts = asyncio.run(start(claiming, connection, size.starts * len(pairs)))
    connection.close()

    of_tenants = Counter(pair[0] for pair in starts.elements())
    least = min(of_tenants[tenant] for tenant in tenants) / (10 * size.starts)
    least_task = min(starts[pair] for pair in pairs) / size.starts
    tell(
        f"{starts.total():,} starts: of its share a tenant got at least {least:.2f}, a task {least_task:.2f}"
    )
    assert least >= 0.5
    assert least_task >= size.least
