"""To schedule a job of a handler costs the same however many tenants have handlers.

What a worker does for each claim: it lists whose turn it is, claims jobs of these tasks, and asks whether its
handlers are still the newest. Calls of functions in all threads are counted, and statements of SQLite: a busy
machine has no say in them.
"""

import asyncio
import random
import sys
import threading
from collections import Counter
from typing import NamedTuple

import pytest

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core.bounds import BATCH_JOBS, HANDLERS_FOUND
from holdfast.engine.makers import open_connection
from holdfast.queue.connect import store_maker
from holdfast.store.sqlite.connection import SqliteConnection
from holdfast.work.claim_loop import ClaimLoop, ClaimScope
from holdfast.work.scheduler import SchedulerSettings, make_scheduler
from tests.doubles import engine_of
from tests.stress.test_fair_cost import AT_ONCE, Dispatcher

TASKS = tuple(f"t{n}" for n in range(10))
# Of this task no tenant has a handler, and it stands before the others.
STUCK = "a"


class Size(NamedTuple):
    """How many tenants, and how many claims are measured."""

    few: int
    many: int
    claims: int


SIZES = [
    pytest.param(Size(few=10, many=100, claims=8), id="small"),
    pytest.param(Size(few=100, many=10_000, claims=100), id="full", marks=pytest.mark.proof),
]


class Counts:
    """Counts calls of functions, of Python and of C, and statements, while it is on."""

    def __init__(self, monkeypatch):
        self.calls = self.statements = 0
        self._is_on = False
        for name in ("value", "rows", "change"):
            monkeypatch.setattr(SqliteConnection, name, self._counted(getattr(SqliteConnection, name)))
        # For threads that are started from now on.
        threading.setprofile(self._hear)

    def _counted(self, method):
        def call(*args, **kwargs):
            self.statements += self._is_on
            return method(*args, **kwargs)

        return call

    def _hear(self, _frame, event, _arg):
        self.calls += self._is_on and event in ("call", "c_call")

    def __enter__(self):
        sys.setprofile(self._hear)
        self.calls = self.statements = 0
        self._is_on = True

    def __exit__(self, *_):
        self._is_on = False
        sys.setprofile(None)


class HandlerWorker:
    """What claims in a worker of handlers, on a store of its own."""

    def __init__(self, path, *, tenants, stuck):
        self.connection = open_connection(store_maker(str(path)), rng=random.random)
        names = [f"tenant{n:06}" for n in range(tenants)]
        pairs = [(tenant, task) for task in TASKS for tenant in names]
        self._fill([*pairs, *((tenant, STUCK) for tenant in names if stuck)])
        self._set_handlers(pairs)
        scope = ClaimScope(tasks=None, tenants=None, lease_ms=600_000, handled=True)
        scheduler = make_scheduler("fair", SchedulerSettings(rng=random.random))
        self.claiming = ClaimLoop(self.connection, Dispatcher(), scheduler, scope)
        self.served: Counter[str] = Counter()

    def _fill(self, pairs):
        # More than are claimed, so that as many tasks wait in the end.
        news = [c.NewJob(tenant=tenant, task=task) for _ in range(3) for tenant, task in pairs]
        for at in range(0, len(news), BATCH_JOBS):
            self.connection.ask(c.Add(jobs=tuple(news[at : at + BATCH_JOBS])))

    def _set_handlers(self, pairs):
        handlers = [h.Handler(tenant=tenant, task=task, lang="shell", body="true") for tenant, task in pairs]
        for at in range(0, len(handlers), BATCH_JOBS):
            some = [h.SetHandler(handler=one) for one in handlers[at : at + BATCH_JOBS]]
            engine_of(self.connection).execute(some)

    async def claim(self):
        """One claim, and the look at its handlers."""
        jobs = await self.claiming.claim(asyncio.Event())
        assert len(jobs) == AT_ONCE
        pairs = tuple({h.KnownHandler(one.job.tenant, one.job.task) for one in jobs})
        found = await self.connection.ask_async(h.FindHandlers(pairs=pairs[:HANDLERS_FOUND]))
        assert len(found) == len(pairs)
        self.served.update(one.job.tenant for one in jobs)


async def measure(worker, counts, claims):
    """Calls and statements for each job."""
    await worker.claim()
    with counts:
        for _ in range(claims):
            await worker.claim()
    return counts.calls / claims / AT_ONCE, counts.statements / claims / AT_ONCE


@pytest.mark.parametrize("stuck", [False, True], ids=["alone", "beside tasks without a handler"])
@pytest.mark.parametrize("size", SIZES)
def test_scheduling_costs_the_same_however_many_tenants_have_handlers(
    tmp_path, size, stuck, tell, monkeypatch
):
    """Ten tasks each. Every tenant has its turn before any has its second."""
    counts = Counts(monkeypatch)
    try:
        costs = []
        for tenants in (size.few, size.many):
            worker = HandlerWorker(tmp_path / f"{tenants}.db", tenants=tenants, stuck=stuck)
            costs.append(asyncio.run(measure(worker, counts, size.claims)))
            worker.connection.close()
            turns = max(worker.served.values()) - min(worker.served.values())
            assert turns <= 1 or tenants < AT_ONCE
    finally:
        threading.setprofile(None)

    (few_calls, few_statements), (many_calls, many_statements) = costs
    tell(
        f"{few_calls:.0f} calls and {few_statements:.2f} statements a job with {size.few:,} tenants, "
        f"{many_calls:.0f} and {many_statements:.2f} with {size.many:,}"
    )
    assert many_calls <= few_calls * 1.1
    assert many_statements <= few_statements * 1.1
