"""Suspects: jobs that were running where a process died. They run apart from all others.

    a crash with 20 running ──▶ limit 10 ──▶ two executors with 10 each ──▶ one finishes
                                                     └── the other crashes ──▶ limit 5 ──▶ …
    alone, and a crash ──▶ a loss; enough of them are a quarantine

Each suspect says in how large a crowd it may run (`Job.crowd_limit`, which halves with each crash).
Executors of their own take them in crowds that respect it, several at once, so that a crash that was
nobody's fault costs little more than the time of one run. The start of a suspect is committed before it is
handed over: should it end the whole worker, its loss is counted.

A suspect whose turn does not come within seconds goes back, for another worker or a later try.
"""

import asyncio
from collections.abc import Callable, Sequence

from ...core import commands as c
from ...core.errors import LeaseLost, NotFound
from ...core.job import Job
from ...engine.connection import Connection
from ...store.common.clock import monotonic_s
from .crew import Crew
from .member import Held, Member

# How long a suspect waits here for its turn, and how long others have theirs after it went back.
TURN_S = 2.0
BACK_MS = 2_000
# No more wait here than this.
MOST_WAITING = 1_000
# How long to wait after an executor that could not be started.
RESTART_S = 0.5


class Suspects:
    """The suspects of a worker, waiting and running."""

    def __init__(
        self, crew: Crew, *, executors: int, lease_ms: int, line_of: Callable[[int], Connection]
    ) -> None:
        self._crew, self._most, self._lease_ms, self._line_of = crew, executors, lease_ms, line_of
        self._waiting: list[Held] = []
        # Those whose start is being committed.
        self._starting: list[Held] = []
        # How many executors there are for them, and how many of these are about to be.
        self._serving = self._hatching = 0

    def held(self) -> list[Held]:
        """Those that no executor has yet."""
        return self._waiting + self._starting

    def add(self, held: Held) -> bool:
        """Have a suspect run when its turn comes; False: there are too many."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append(held)
        # There may be room for it beside others.
        self._crew.look()
        if self._serving < self._most:
            self._serving += 1
            self._crew.track(asyncio.create_task(self._serve()))
        return True

    def renewed(self, job: Job, at: int) -> None:
        """What is known of a job has changed."""
        for held in self.held():
            if (held.at, held.job.id, held.job.claim) == (at, job.id, job.claim):
                held.job = job

    def take_late(self) -> list[Held]:
        """Take away those whose turn did not come in time; an executor on its way may be theirs."""
        if self._hatching:
            return []
        late_s = monotonic_s() - TURN_S
        late = [held for held in self._waiting if held.given_s < late_s]
        self._waiting = [held for held in self._waiting if held.given_s >= late_s]
        return late

    def take_all(self) -> list[Held]:
        """Take away all that no executor has."""
        taken, self._waiting = self._waiting, []
        return taken

    async def _serve(self) -> None:
        """Run suspects in executors of their own until none waits."""
        try:
            while self._waiting and not self._crew.closing:
                await self._serve_one()
        finally:
            self._serving -= 1

    async def _serve_one(self) -> None:
        """Run suspects in one executor for as long as it lives."""
        self._hatching += 1
        try:
            member = await self._crew.start_isolated()
        finally:
            self._hatching -= 1
        if member is None:
            await asyncio.sleep(RESTART_S)
            return
        while self._crew.has_member(member) and not member.condemned:
            if group := self._next_for(member):
                await self._give(member, group)
            elif member.jobs:
                await self._crew.changed()
            else:
                break
        if not member.condemned:
            self._crew.let_go(member)

    def _next_for(self, member: Member) -> list[Held]:
        """Who may join the crowd in an executor, in the order in which they came."""
        crowd = [held.job.crowd_limit for held in member.jobs.values()]
        if self._crew.closing:
            return []
        group: list[Held] = []
        for held in self._waiting:
            joined = [*crowd, held.job.crowd_limit]
            if len(joined) <= min(*joined, held.lane.at_once):
                crowd = joined
                group.append(held)
        self._waiting = [held for held in self._waiting if held not in group]
        return group

    async def _give(self, member: Member, group: Sequence[Held]) -> None:
        """Commit the start of some, then hand them over; what is no longer ours is dropped."""
        self._starting += group
        try:
            replies = await asyncio.gather(
                *(self._line_of(held.at).ask_async(self._start(held.job)) for held in group),
                return_exceptions=True,
            )
        finally:
            self._starting = [held for held in self._starting if held not in group]
        ours = []
        for held, reply in zip(group, replies, strict=True):
            if isinstance(reply, Job):
                held.job = reply
                ours.append(held)
            elif not isinstance(reply, LeaseLost | NotFound):
                # The store is away: its next turn, or its way back, comes later.
                self._waiting.append(held)
        if self._crew.has_member(member) and not member.condemned and not self._crew.closing:
            member.give(ours)
        else:
            self._waiting += ours

    def _start(self, job: Job) -> c.Extend:
        return c.Extend(hold=c.hold_of(job), lease_ms=self._lease_ms, ran_ms=0)
