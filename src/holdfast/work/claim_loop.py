"""The claim loop: claims jobs for the capacity of a worker, of the tasks that the scheduler picks.

    capacity ──▶ list waiting tasks (a read) ──▶ the scheduler picks ──▶ one claim of these picks
                     │ none                                                  │ all gone, or not claimable
                     └────────────▶ a claim by priority, which waits ◀───────┘

The read does not lock anything, so it may be out of date at the claim. After a claim that found nothing the
next claim always waits, so that jobs which this worker may not claim do not keep it busy. That claim may wait
for long: a commit, a notification of the store or the next due time ends it. Meanwhile the worker checks
periodically whether its capacity has changed, which costs the store nothing.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from ..core import commands as c
from ..core import queries as q
from ..core.bounds import CLAIM_JOBS
from ..core.errors import HoldfastError, StoreFull, Unavailable
from ..core.job import Job
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s
from ..store.contract import Pick
from .capacity import Capacity
from .ordering import Rotation, TenantShares, WarmTasks
from .scheduler import Scheduler, choose

# How long a claim waits: in general; with a health file, which tells that the store answers; and where the
# worker ends when the queues are empty.
CLAIM_WAIT_S, HEALTH_WAIT_S, EMPTY_WAIT_S = 300.0, 5.0, 0.1
# How often the capacity is checked while a claim waits.
RECHECK_S = 5.0
# How often waiting jobs are looked for while a tenant has its share of the slots.
SHARE_POLL_S = 0.2
# The delay before the next claim after the store was unavailable.
STORE_PAUSE_S = 1.0
# How many waiting tasks are read for the scheduler.
MIN_WINDOW = 8
# A task of which nothing was measured: it stands for those that have no job yet, where any may come.
ANY_TASK = ""
MAX_WINDOW = 64


class ClaimScope(Struct, frozen=True, kw_only=True):
    """Which jobs to claim, and for how long; `tasks` or `tenants` None: of all of them."""

    tasks: tuple[str, ...] | None
    tenants: tuple[str, ...] | None
    # Only of tasks that have a handler in the store.
    handled: bool = False
    lease_ms: int
    wait_s: float = CLAIM_WAIT_S
    until_empty: bool = False


class Dispatcher:
    """What a claim loop claims for: the executors of a worker, or the threads of `holdfast.work`."""

    def capacity(self) -> Capacity:
        """How many jobs can be taken now."""
        raise NotImplementedError

    def held(self) -> Sequence[Job]:
        """The jobs that were claimed and have not ended."""
        raise NotImplementedError

    def dispatch(self, jobs: Sequence[c.Claimed]) -> None:
        """Take claimed jobs."""
        raise NotImplementedError

    def record_claim(self, error: HoldfastError | None) -> None:
        """Note the result of a claim. It is tried again after an error, unless this raises."""
        raise NotImplementedError

    async def is_finished(self) -> bool:
        """Whether there are no more jobs to run."""
        raise NotImplementedError

    # Of stored handlers alone

    def slots(self) -> tuple[int, dict[str, float]]:
        """How many slots there are, and how many each tenant has with slow jobs."""
        raise NotImplementedError

    def in_requests(self, pick: Pick) -> Pick:
        """A pick of slots as one of jobs."""
        raise NotImplementedError


class ClaimLoop:
    """Claims jobs of one queue and execution mode, until it is stopped."""

    def __init__(
        self,
        connection: Connection,
        dispatcher: Dispatcher,
        scheduler: Scheduler,
        scope: ClaimScope,
        warm: WarmTasks | None = None,
        *,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._connection, self._dispatcher, self._scheduler, self._scope = (
            connection,
            dispatcher,
            scheduler,
            scope,
        )
        self._reported: Counter[tuple[str, str]] = Counter()
        self._warm = warm or WarmTasks()
        self._shares = TenantShares()
        self._rotation = Rotation(rng)
        # Whether the last claim got all jobs that waited: then there is nothing to list.
        self._has_drained = False
        # With one pair of tenant and task there is nothing for the scheduler to choose.
        self._has_one_pair = bool(
            scope.tenants and scope.tasks and len(scope.tenants) * len(scope.tasks) == 1
        )

    async def run(self, stopping: asyncio.Event, capacity_changed: asyncio.Event) -> None:
        """Claim and dispatch until `stopping` is set, or no work is left.

        The caller sets `capacity_changed` when the executors may be able to take more.
        """
        claiming = asyncio.create_task(self._claim_and_dispatch(stopping, capacity_changed))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([claiming, stopped], return_when=asyncio.FIRST_COMPLETED)
            if claiming.done():
                claiming.result()
        finally:
            stopped.cancel()
            # Jobs that it would have claimed are released by the connection.
            claiming.cancel()
            await asyncio.wait([claiming])

    async def _claim_and_dispatch(self, stopping: asyncio.Event, capacity_changed: asyncio.Event) -> None:
        """The loop itself. It is one task: each switch to another would delay the jobs."""
        while not stopping.is_set():
            try:
                jobs = await self.claim(capacity_changed)
                self._dispatcher.record_claim(None)
            except (Unavailable, StoreFull) as error:
                self._dispatcher.record_claim(error)
                await asyncio.sleep(STORE_PAUSE_S)
                jobs = []
            self._dispatcher.dispatch(jobs)
            if not jobs and self._scope.until_empty and await self._dispatcher.is_finished():
                return

    async def claim(self, capacity_changed: asyncio.Event) -> list[c.Claimed]:
        """Claim jobs for the current capacity, in the order in which to start them; perhaps none."""
        capacity_changed.clear()
        capacity = self._dispatcher.capacity()
        drained, self._has_drained = self._has_drained, False
        waiting = [] if drained else await self._list_waiting(capacity)
        if self._scheduler.selects and waiting:
            self._update_scheduler()
            picks = self._choose(waiting, capacity)
            limit = sum(most for _, _, most in picks)
            if picks and (jobs := await self._claim(limit=limit, picks=picks)):
                return interleave_tenants(jobs)
        tasks = {pair.task for pair in waiting} or set(self._scope.tasks or (ANY_TASK,))
        if not (most := self._count_claimable(tasks)):
            await capacity_changed.wait()
            return []
        if self._scope.handled and (most := int(min(most, self._update_shares().room_of_any()))) < 1:
            # A claim that waits might get more jobs of a tenant that has its share.
            await _wait_for(capacity_changed, SHARE_POLL_S)
            return []
        jobs = await self._claim_waiting(tasks, most)
        self._has_drained = 0 < len(jobs) < most and not self._scope.handled
        if jobs and not waiting:
            self._rotation.jump(jobs[-1].job)
        return jobs

    def _choose(self, waiting: Sequence[q.Waiting], capacity: Capacity) -> tuple[Pick, ...]:
        """The jobs to claim, by tenant and task."""
        order = self._rotation.order(waiting)
        if not self._scope.handled:
            picks = choose(self._scheduler, order, replace(capacity))
        else:
            shares = self._update_shares()
            order = self._warm.order(shares.order(order))
            picks = choose(self._scheduler, order, replace(capacity), shares.room)
        if picks and not self._warm.has_passed:
            self._rotation.move(waiting, picks)
        return tuple(map(self._dispatcher.in_requests, picks)) if self._scope.handled else picks

    def _update_shares(self) -> TenantShares:
        self._shares.update(*self._dispatcher.slots(), monotonic_s())
        return self._shares

    def _count_claimable(self, tasks: Collection[str]) -> int:
        """How many jobs may be claimed if they may be of any of these tasks: the capacity for the slowest."""
        capacity = self._dispatcher.capacity()
        return min((capacity.fits(task) for task in tasks), default=0)

    async def _claim_waiting(self, tasks: Collection[str], most: int) -> list[c.Claimed]:
        """Claim with a wait, which ends when the capacity has changed."""
        wait_s = EMPTY_WAIT_S if self._scope.until_empty else self._scope.wait_s
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        timer: asyncio.TimerHandle

        def check_capacity() -> None:
            nonlocal timer
            if self._count_claimable(tasks) == most:
                timer = loop.call_later(RECHECK_S, check_capacity)
            else:
                # Jobs that it would have claimed are released by the connection.
                limit.reschedule(loop.time())

        timer = loop.call_later(RECHECK_S, check_capacity)
        try:
            async with limit:
                return await self._claim(limit=min(most, CLAIM_JOBS), wait_s=wait_s)
        except TimeoutError:
            if not limit.expired():
                raise
            return []
        finally:
            timer.cancel()

    async def _claim(
        self, *, limit: int, picks: tuple[Pick, ...] = (), wait_s: float = 0.0
    ) -> list[c.Claimed]:
        scope = self._scope
        command = c.Claim(
            tasks=scope.tasks,
            tenants=scope.tenants,
            handled=scope.handled,
            limit=limit,
            lease_ms=scope.lease_ms,
            picks=picks,
            start=False,
        )
        jobs: list[c.Claimed] = await self._connection.ask_async(command, wait_s=wait_s)
        return jobs

    async def _list_waiting(self, capacity: Capacity) -> list[q.Waiting]:
        scope = self._scope
        if self._has_one_pair or not capacity.fits_shortest():
            return []
        limit = min(max(capacity.fits_shortest(), MIN_WINDOW), MAX_WINDOW)
        query = q.ListWaiting(
            tenants=scope.tenants,
            tasks=scope.tasks,
            handled=scope.handled,
            limit=limit,
            after_tenant=self._rotation.tenant,
            after_task=self._rotation.task,
        )
        found: list[q.Waiting] = await self._connection.ask_async(query)
        return found

    def _update_scheduler(self) -> None:
        """Tell the scheduler which jobs have started and stopped since the last call.

        Computed from the jobs held now, so that it is right however a job has ended.
        """
        here = Counter((job.tenant, job.task) for job in self._dispatcher.held())
        for pair, count in (here - self._reported).items():
            self._scheduler.jobs_started(pair, count)
        for pair, count in (self._reported - here).items():
            self._scheduler.jobs_stopped(pair, count)
        self._reported = here
        self._warm.record(here)


async def _wait_for(event: asyncio.Event, most_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), most_s)
    except TimeoutError:
        pass


def interleave_tenants(jobs: Sequence[c.Claimed]) -> list[c.Claimed]:
    """Order jobs round-robin by tenant: the first of each, then the second of each."""
    tenants: dict[str, list[c.Claimed]] = {}
    for claimed in jobs:
        tenants.setdefault(claimed.job.tenant, []).append(claimed)
    return [claimed for row in zip_longest(*tenants.values()) for claimed in row if claimed is not None]
