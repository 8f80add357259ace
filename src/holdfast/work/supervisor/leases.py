"""The leases of a worker: extended from here, whatever its handlers do; and who is to stop hears of it."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import HoldfastError
from ...core.job import Job
from ...store.common.clock import system_clock
from ..messages import Cancelled
from .crew import Crew
from .member import Held
from .sources import Source
from .suspects import Suspects

# How soon a job that runs hears that it is to stop.
WATCH_S = 0.5


class Leases:
    """Keeps the claims of all that executors have."""

    def __init__(
        self,
        crew: Crew,
        suspects: Suspects,
        sources: Sequence[Source],
        lease_ms: int,
        log: Callable[[str], None],
    ) -> None:
        self._crew, self._suspects, self._sources = crew, suspects, sources
        self._lease_ms, self._log = lease_ms, log

    async def renew(self) -> None:
        """Extend all leases in one commit, at a third of their length, again and again."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            await self._extend(self._crew.held() + self._suspects.held())

    async def _extend(self, held: Sequence[Held]) -> None:
        """Extend leases in one commit, and say with it since when each handler runs."""
        jobs = [(one.at, one.job) for one in held]
        for one in held:
            one.marked = bool(one.begun_s)
        asks = (
            self._sources[one.at].line.ask_async(
                c.Extend(hold=c.hold_of(one.job), lease_ms=self._lease_ms, ran_ms=one.ran_ms)
            )
            for one in held
        )
        self._renewed(jobs, await asyncio.gather(*asks, return_exceptions=True))

    def _renewed(self, held: list[tuple[int, Job]], replies: Sequence[Job | BaseException]) -> None:
        failed: list[BaseException] = []
        for (at, job), reply in zip(held, replies, strict=True):
            if isinstance(reply, Job):
                self._crew.renewed(reply, at)
                self._suspects.renewed(reply, at)
                if reply.cancel_requested and not job.cancel_requested:
                    self._crew.send((at, job.id), Cancelled(job=reply, at=at))
            elif self._crew.has((at, job.id), job.claim):
                failed.append(reply)
        if failed:
            # One tells what became of all: a worker that slept has lost everything that it had.
            more = f", and {len(failed) - 1:,} more like it" if failed[1:] else ""
            self._log(f"{failed[0]}{more}")

    async def watch(self) -> None:
        """Have jobs know soon that they are to stop, and the store that they have started.

        One read, and once in the life of a job one write, for all that have been running a while.
        """
        jump = system_clock.jump
        while True:
            await asyncio.sleep(WATCH_S)
            system_clock()
            if system_clock.jump is not jump:
                # Before a process that has not noticed the jump takes the leases for over.
                jump = system_clock.jump
                await self._extend(self._crew.held() + self._suspects.held())
            running = self._crew.running(WATCH_S)
            await self._extend([held for held in running if not held.marked])
            for source in self._sources:
                if mine := [held for held in running if held.at == source.at]:
                    await self._look_after(source, mine)

    async def _look_after(self, source: Source, running: list[Held]) -> None:
        query = q.LoadJobs(job_ids=tuple(held.job.id for held in running))
        try:
            now: dict[int, Job] = (await source.line.ask_async(query)).jobs
        except HoldfastError as error:
            if len(running) > 1:
                # One of several shards may be down: each by itself, then.
                for held in running:
                    await self._look_after(source, [held])
            else:
                self._log(f"cannot look at what runs: {error}")
            return
        for held in running:
            job, live = held.job, now.get(held.job.id)
            if live is None or live.claim != job.claim:
                # Cancelled by force, or lost: it is nobody's work any more.
                stopped = replace(job, cancel_requested=True)
                self._crew.send((held.at, job.id), Cancelled(job=stopped, at=held.at))
            elif live.cancel_requested:
                self._crew.renewed(live, held.at)
                self._crew.send((held.at, job.id), Cancelled(job=live, at=held.at))
