"""Starting a job costs the same however many tenants and tasks wait.

Two stores with as many jobs, in ten pairs of tenant and task and in very many; a worker's own way of
claiming, in turns on both; the processor's time, so that a busy machine has no say in it.
"""

import asyncio
import random
from itertools import cycle, islice
from statistics import median
from time import process_time
from typing import NamedTuple

import pytest

from holdfast.core import commands as c
from holdfast.core.bounds import BATCH_JOBS
from holdfast.engine.makers import open_connection
from holdfast.queue.connect import store_maker
from holdfast.work import claim_loop
from holdfast.work.capacity import Capacity, TaskDurations
from holdfast.work.claim_loop import ClaimLoop, ClaimScope
from holdfast.work.scheduler import SchedulerSettings, make_scheduler

AT_ONCE = 10
TASKS = tuple(f"t{n}" for n in range(5))


class Size(NamedTuple):
    """How much of it, and by how much the second may be dearer."""

    pairs: int
    jobs: int
    trials: int
    within: float


SIZES = [
    pytest.param(Size(pairs=2_000, jobs=6_000, trials=50, within=1.5), id="small"),
    pytest.param(
        Size(pairs=100_000, jobs=200_000, trials=200, within=1.1), id="full", marks=pytest.mark.proof
    ),
]


class Dispatcher(claim_loop.Dispatcher):
    """Always room for ten, and nobody has anything."""

    def __init__(self):
        pass

    def capacity(self):
        return Capacity(TaskDurations(), free_slots=AT_ONCE)

    def held(self):
        return []

    def slots(self):
        return 2 * AT_ONCE, {}

    def in_requests(self, pick):
        return pick

    def dispatch(self, jobs):
        raise AssertionError(jobs)

    def record_claim(self, error):
        assert error is None

    async def is_finished(self):
        return False


class Worker:
    """What claims in a worker, on a store of its own."""

    def __init__(self, path, *, pairs, jobs):
        self.connection = open_connection(store_maker(str(path)), rng=random.random)
        self._fill([f"tenant{n:06}" for n in range(pairs // len(TASKS))], jobs)
        scope = ClaimScope(tasks=TASKS, tenants=None, lease_ms=600_000)
        scheduler = make_scheduler("fair", SchedulerSettings(rng=random.random))
        self.claiming = ClaimLoop(self.connection, Dispatcher(), scheduler, scope)

    def _fill(self, tenants, jobs):
        """As they come: of all pairs in turn."""
        pairs = [(tenant, task) for tenant in tenants for task in TASKS]
        news = [c.NewJob(tenant=tenant, task=task) for tenant, task in islice(cycle(pairs), jobs)]
        for at in range(0, jobs, BATCH_JOBS):
            self.connection.ask(c.Add(jobs=tuple(news[at : at + BATCH_JOBS])))

    async def trial(self):
        """The processor's time for each job of one claim, in µs."""
        started_s = process_time()
        jobs = await self.claiming.claim(asyncio.Event())
        taken_s = process_time() - started_s
        assert len(jobs) == AT_ONCE
        return 1e6 * taken_s / AT_ONCE


@pytest.mark.parametrize("size", SIZES)
def test_starting_a_job_costs_the_same_however_many_wait(tmp_path, size, tell):
    """Ten pairs of tenant and task beside very many."""
    few = Worker(tmp_path / "few.db", pairs=10, jobs=size.jobs)
    many = Worker(tmp_path / "many.db", pairs=size.pairs, jobs=size.jobs)

    async def measure():
        return [(await few.trial(), await many.trial()) for _ in range(size.trials)]

    costs = asyncio.run(measure())
    few.connection.close()
    many.connection.close()

    with_few, with_many = (median(column) for column in zip(*costs, strict=True))
    tell(f"{with_few:.1f} µs with 10 pairs, {with_many:.1f} µs with {size.pairs:,}, a job")
    assert with_many < with_few * size.within
