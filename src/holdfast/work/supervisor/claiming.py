"""Claiming: how much this worker can take, whose turn it is, and one claim for both.

    room ──▶ who waits, by turn (a read) ──▶ the scheduler picks ──▶ one claim of these picks
                 │ nobody, or nobody seen                                 │ they were gone, or held
                 └────────────▶ a claim by priority, which waits ◀────────┘

Who waits is read beside the writers, so it may be out of date when the claim comes: what is gone is gone.
Whatever the read shows, a claim that found nothing is followed by one that waits, so that nothing that may
not run, is mocked, or that nobody here knows keeps a worker busy. That one may wait for long: a commit, the
store's word or the next moment ends it. The worker looks up meanwhile, which costs the store nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.bounds import CLAIM_JOBS
from ...core.errors import HoldfastError, StoreFull, Unavailable
from ...core.job import Job
from ...engine.connection import Connection
from ...store.contract import Pick
from ..scheduler import Scheduler, choose
from .pace import Space

# How long a claim waits: in general; where somebody wants to know that the store answers (`health`); and
# where the worker ends when all is done.
CLAIM_WAIT_S, HEALTH_WAIT_S, EMPTY_WAIT_S = 300.0, 5.0, 0.1
# How often a worker whose claim waits looks up: whether there is as much room as when it asked.
LOOK_UP_S = 5.0
# How long a store that cannot be used now is left alone before the next claim.
STORE_PAUSE_S = 1.0
# So many tasks are looked at for each choice.
LEAST_WINDOW = 8
MOST_WINDOW = 64


class Hands(Protocol):
    """Who runs the jobs."""

    def space(self) -> Space:
        """How much they can take now."""

    def held(self) -> Sequence[Job]:
        """What they have."""

    def hand_over(self, jobs: Sequence[c.Claimed]) -> None:
        """Give them jobs, to be started in this order."""

    def note_claim(self, error: HoldfastError | None) -> None:
        """Note that a claim was answered, or why it could not be."""

    async def is_over(self) -> bool:
        """Whether nothing is left to do, here or anywhere else that they work."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Whose jobs a worker claims, and for how long; no `tenants`: anybody's."""

    tasks: tuple[str, ...]
    tenants: tuple[str, ...] | None
    lease_ms: int
    wait_s: float = CLAIM_WAIT_S
    until_empty: bool = False


class Claiming:
    """Claims jobs for the hands of one worker, until it is to stop."""

    def __init__(self, line: Connection, hands: Hands, scheduler: Scheduler, wanted: Wanted) -> None:
        self._line, self._hands, self._scheduler, self._wanted = line, hands, scheduler, wanted
        self._told: Counter[tuple[str, str]] = Counter()
        # Then there is nothing to choose.
        self._only_one = wanted.tenants is not None and len(wanted.tenants) * len(wanted.tasks) == 1

    async def run(self, stopping: asyncio.Event, room: asyncio.Event) -> None:
        """Claim and hand over until `stopping` is set, or nothing is left to do.

        `room` is set, by whoever knows, when there may be more.
        """
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                claiming = asyncio.create_task(self.claim(room))
                await asyncio.wait([claiming, stopped], return_when=asyncio.FIRST_COMPLETED)
                if not claiming.done():
                    # Whatever it would have brought goes back by itself.
                    claiming.cancel()
                    await asyncio.wait([claiming])
                    return
                jobs = await self._brought(claiming, stopped)
                self._hands.hand_over(jobs)
                if not jobs and self._wanted.until_empty and await self._hands.is_over():
                    return
        finally:
            stopped.cancel()

    async def _brought(
        self, claiming: "asyncio.Task[list[c.Claimed]]", stopped: "asyncio.Task[Any]"
    ) -> list[c.Claimed]:
        """The jobs of a claim; none, after a pause, from a store that cannot be used now."""
        try:
            jobs = claiming.result()
        except (Unavailable, StoreFull) as error:
            self._hands.note_claim(error)
            await asyncio.wait([stopped], timeout=STORE_PAUSE_S)
            return []
        self._hands.note_claim(None)
        return jobs

    async def claim(self, room: asyncio.Event) -> list[c.Claimed]:
        """Jobs for the room there is, in the order in which they should start; after a wait perhaps none."""
        room.clear()
        space = self._hands.space()
        waiting = await self._waiting(space)
        if self._scheduler.selects and waiting:
            self._tell()
            picks = choose(self._scheduler, waiting, replace(space))
            limit = sum(most for _, _, most in picks)
            if picks and (jobs := await self._ask(limit=limit, picks=picks)):
                return in_turn(jobs)
        tasks = {lane.task for lane in waiting} or set(self._wanted.tasks)
        if not (most := self._room(tasks)):
            await room.wait()
            return []
        return await self._wait(tasks, most)

    def _room(self, tasks: Collection[str]) -> int:
        """How many may be claimed where any of these may come: of the slowest no more than can start."""
        space = self._hands.space()
        return min((space.fits(task) for task in tasks), default=0)

    async def _wait(self, tasks: Collection[str], most: int) -> list[c.Claimed]:
        """A claim that waits, for as long as it asks for no more and no less than there is room for."""
        wait_s = EMPTY_WAIT_S if self._wanted.until_empty else self._wanted.wait_s
        asking = asyncio.create_task(self._ask(limit=min(most, CLAIM_JOBS), wait_s=wait_s))
        try:
            await asyncio.wait([asking], timeout=LOOK_UP_S)
            while not asking.done() and self._room(tasks) == most:
                await asyncio.wait([asking], timeout=LOOK_UP_S)
            return asking.result() if asking.done() else []
        finally:
            if not asking.done():
                # Whatever it would have brought goes back by itself.
                asking.cancel()
                await asyncio.wait([asking])

    async def _ask(self, *, limit: int, picks: tuple[Pick, ...] = (), wait_s: float = 0.0) -> list[c.Claimed]:
        wanted = self._wanted
        command = c.Claim(
            tasks=wanted.tasks,
            tenants=wanted.tenants,
            limit=limit,
            lease_ms=wanted.lease_ms,
            picks=picks,
            start=False,
        )
        jobs: list[c.Claimed] = await self._line.ask_async(command, wait_s=wait_s)
        return jobs

    async def _waiting(self, space: Space) -> list[q.Waiting]:
        wanted = self._wanted
        if self._only_one or not space.fits_short():
            return []
        limit = min(max(space.fits_short(), LEAST_WINDOW), MOST_WINDOW)
        query = q.ListWaiting(tenants=wanted.tenants, tasks=wanted.tasks, limit=limit)
        found: list[q.Waiting] = await self._line.ask_async(query)
        return found

    def _tell(self) -> None:
        """Tell the scheduler what has started and stopped since it was last told.

        By comparing with what is here, so that no way in which a job can go is ever forgotten.
        """
        here = Counter((job.tenant, job.task) for job in self._hands.held())
        for pair, count in (here - self._told).items():
            self._scheduler.jobs_started(pair, count)
        for pair, count in (self._told - here).items():
            self._scheduler.jobs_stopped(pair, count)
        self._told = here


def in_turn(jobs: Sequence[c.Claimed]) -> list[c.Claimed]:
    """The first of each tenant, then the second of each: so that also within one claim none is last."""
    tenants: dict[str, list[c.Claimed]] = {}
    for claimed in jobs:
        tenants.setdefault(claimed.job.tenant, []).append(claimed)
    return [claimed for row in zip_longest(*tenants.values()) for claimed in row if claimed is not None]
