"""Renews the leases of all jobs of a worker, and tells running jobs when they should stop."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import HoldfastError, LeaseLost, NotFound
from ...core.job import Job
from ...queue.lease import RETRY_S
from ...store.common.clock import system_clock
from ..messages import CancelJob
from .executor_handle import HeldJob
from .executor_pool import ExecutorPool
from .sources import JobSource
from .suspects import Suspects

# How often running jobs are checked for cancellation.
STOP_POLL_S = 0.5


class Leases:
    """Renews leases and watches running jobs, of the queues on one store."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        sources: Sequence[JobSource],
        lease_ms: int,
        log: Callable[[str], None],
    ) -> None:
        self._pool, self._suspects = pool, suspects
        self._sources = {source.queue_index: source for source in sources}
        self._lease_ms, self._log = lease_ms, log
        # The last error that was logged of leases that could not be extended.
        self._logged = ""

    async def keep_renewing(self) -> None:
        """Extend all leases in one commit, each time a third of their length has passed.

        After an error soon again: the store may be back just before the leases end.
        """
        pause_s = self._lease_ms / 3000
        is_extended = True
        while True:
            await asyncio.sleep(pause_s if is_extended else min(pause_s, RETRY_S))
            is_extended = await self._extend(self._held())

    def _held(self) -> list[HeldJob]:
        return self._mine(self._pool.held() + self._suspects.held())

    def _mine(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        return [one for one in held if one.queue_index in self._sources]

    async def _extend(self, held: Sequence[HeldJob]) -> bool:
        """Extend leases in one commit, which also stores since when each handler runs.

        False if the store could not be used.
        """
        jobs = [(one.queue_index, one.job) for one in held]
        for one in held:
            one.is_start_committed = bool(one.started_s)
        asks = (
            self._sources[one.queue_index].connection.ask_async(
                c.Extend(hold=c.hold_of(one.job), lease_ms=self._lease_ms, ran_ms=one.ran_ms)
            )
            for one in held
        )
        replies = await asyncio.gather(*asks, return_exceptions=True)
        self._apply_renewals(jobs, replies)
        return all(isinstance(reply, Job | LeaseLost | NotFound) for reply in replies)

    def _apply_renewals(self, held: list[tuple[int, Job]], replies: Sequence[Job | BaseException]) -> None:
        failed: list[BaseException] = []
        for (queue_index, job), reply in zip(held, replies, strict=True):
            if isinstance(reply, Job):
                self._pool.update_record(reply, queue_index)
                self._suspects.update_record(reply, queue_index)
                if reply.cancel_requested and not job.cancel_requested:
                    self._pool.send((queue_index, job.id), CancelJob(job=reply, queue_index=queue_index))
            elif self._pool.has_claim((queue_index, job.id), job.claim):
                failed.append(reply)
        # One line for all: a worker that was suspended has lost all its leases.
        more = f", and {len(failed) - 1:,} more like it" if failed[1:] else ""
        text = str(failed[0]) if failed else ""
        if text and text != self._logged:
            self._log(f"{text}{more}")
        if held:
            self._logged = text

    async def watch_running(self) -> None:
        """Poll for cancelled jobs, and commit the start of jobs that have been running for a while.

        One read for all jobs, and one write in the life of each.
        """
        jump = system_clock.jump
        while True:
            await asyncio.sleep(STOP_POLL_S)
            system_clock()
            if system_clock.jump is not jump:
                # The clock has jumped: renew before another process takes the leases for expired.
                jump = system_clock.jump
                await self._extend(self._held())
            running = self._mine(self._pool.running(STOP_POLL_S))
            await self._extend([held for held in running if not held.is_start_committed])
            for source in self._sources.values():
                if mine := [held for held in running if held.queue_index == source.queue_index]:
                    await self._check_running(source, mine)

    async def _check_running(self, source: JobSource, running: list[HeldJob]) -> None:
        query = q.LoadJobs(job_ids=tuple(held.job.id for held in running))
        try:
            now: dict[int, Job] = (await source.connection.ask_async(query)).jobs
        except HoldfastError as error:
            if len(running) > 1:
                # One of several shards may be down: read each job by itself.
                for held in running:
                    await self._check_running(source, [held])
            else:
                self._log(f"cannot check running jobs: {error}")
            return
        for held in running:
            job, live = held.job, now.get(held.job.id)
            if not self._pool.has_claim((held.queue_index, job.id), job.claim):
                # It has ended meanwhile, and may run here again under another claim.
                continue
            if live is None or live.claim != job.claim:
                # Cancelled by force, or the claim is lost.
                stopped = replace(job, cancel_requested=True)
                self._pool.send(
                    (held.queue_index, job.id), CancelJob(job=stopped, queue_index=held.queue_index)
                )
            elif live.cancel_requested:
                self._pool.update_record(live, held.queue_index)
                self._pool.send((held.queue_index, job.id), CancelJob(job=live, queue_index=held.queue_index))
