"""Suspects: jobs that were running in a process that died. They run apart from all other jobs.

    a crash with 20 running ──▶ limit 10 ──▶ two executors with 10 each ──▶ one finishes
                                                     └── the other crashes ──▶ limit 5 ──▶ …
    alone, and a crash ──▶ a loss; after several losses the job is quarantined

`Job.crowd_limit` says with how many others a suspect may run; it halves with each crash. Isolated executors
run suspects in groups within that limit, several groups at once, so that jobs which kill no process lose
little time. The start of a suspect is committed before it is delivered: if it kills the whole worker, its
loss is counted.

A suspect that does not get an executor within seconds is released, for another worker or a later try.
"""

import asyncio
from collections.abc import Callable, Sequence

from ...core import commands as c
from ...core.errors import LeaseLost, NotFound
from ...core.job import Job
from ...engine.connection import Connection
from ...store.common.clock import monotonic_s
from .executor_handle import ExecutorHandle, HeldJob
from .executor_pool import ExecutorPool

# How long a suspect waits here for an executor, and the delay of its release after that.
WAIT_S = 2.0
RELEASE_DELAY_MS = 2_000
# The most suspects that wait here.
MAX_WAITING = 1_000
# The delay after an executor failed to start, or the store could not take the start of a suspect.
RESTART_S = 0.5


class Suspects:
    """Runs the suspects of a worker in isolated executors."""

    def __init__(
        self, pool: ExecutorPool, *, executors: int, lease_ms: int, connection_of: Callable[[int], Connection]
    ) -> None:
        self._pool, self._max_executors, self._lease_ms, self._connection_of = (
            pool,
            executors,
            lease_ms,
            connection_of,
        )
        self._waiting: list[HeldJob] = []
        # Suspects whose start is being committed.
        self._starting: list[HeldJob] = []
        # How many isolated executors there are, and how many of them are starting.
        self._runners = self._starting_executors = 0

    def held(self) -> list[HeldJob]:
        """The suspects that no executor has yet."""
        return self._waiting + self._starting

    def add(self, held: HeldJob) -> bool:
        """Queue a suspect; False if too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(held)
        # It may fit beside the jobs of a running executor.
        self._pool.notify_change()
        if self._runners < self._max_executors:
            self._runners += 1
            self._pool.track(asyncio.create_task(self._run_suspects()))
        return True

    def update_record(self, job: Job, queue_index: int) -> None:
        """Replace the record of a waiting suspect."""
        for held in self.held():
            if (held.queue_index, held.job.id, held.job.claim) == (queue_index, job.id, job.claim):
                held.job = job

    def take_late(self) -> list[HeldJob]:
        """Remove and return suspects that waited too long; none while an executor for them starts."""
        if self._starting_executors:
            return []
        late_s = monotonic_s() - WAIT_S
        late = [held for held in self._waiting if held.delivered_s < late_s]
        self._waiting = [held for held in self._waiting if held.delivered_s >= late_s]
        return late

    def take_all(self) -> list[HeldJob]:
        """Remove and return all waiting suspects."""
        taken, self._waiting = self._waiting, []
        return taken

    async def _run_suspects(self) -> None:
        """Run suspects in isolated executors until none waits."""
        try:
            while self._waiting and not self._pool.closing:
                await self._run_executor()
        finally:
            self._runners -= 1

    async def _run_executor(self) -> None:
        """Start an isolated executor and run suspects in it until none waits, or it ends."""
        self._starting_executors += 1
        try:
            executor = await self._pool.start_isolated()
        finally:
            self._starting_executors -= 1
        if executor is None:
            await asyncio.sleep(RESTART_S)
            return
        while self._pool.has_executor(executor) and not executor.is_draining:
            if group := self._take_next(executor):
                await self._commit_and_deliver(executor, group)
            elif executor.jobs:
                await self._pool.wait_for_change()
            else:
                break
        if not executor.is_draining:
            self._pool.stop_executor(executor)

    def _take_next(self, executor: ExecutorHandle) -> list[HeldJob]:
        """Remove and return the waiting suspects that may run together in an executor, oldest first."""
        crowd = [held.job.crowd_limit for held in executor.jobs.values()]
        if self._pool.closing:
            return []
        group: list[HeldJob] = []
        for held in self._waiting:
            joined = [*crowd, held.job.crowd_limit]
            if len(joined) <= min(*joined, held.mode.slots) and not executor.is_stalled(held.mode):
                crowd = joined
                group.append(held)
        self._waiting = [held for held in self._waiting if held not in group]
        return group

    async def _commit_and_deliver(self, executor: ExecutorHandle, group: Sequence[HeldJob]) -> None:
        """Commit the start of suspects, then deliver them; those whose claim is lost are dropped."""
        self._starting += group
        try:
            replies = await asyncio.gather(
                *(
                    self._connection_of(held.queue_index).ask_async(self._start_command(held.job))
                    for held in group
                ),
                return_exceptions=True,
            )
        finally:
            self._starting = [held for held in self._starting if held not in group]
        ours, refused = list[HeldJob](), list[HeldJob]()
        for held, reply in zip(group, replies, strict=True):
            if isinstance(reply, Job):
                held.job = reply
                ours.append(held)
            elif not isinstance(reply, LeaseLost | NotFound):
                refused.append(held)
        if self._pool.has_executor(executor) and not executor.is_draining and not self._pool.closing:
            executor.deliver(ours)
        else:
            self._waiting += ours
        if refused:
            # The store is unavailable: try again, or release them, later.
            self._waiting += refused
            await asyncio.sleep(RESTART_S)

    def _start_command(self, job: Job) -> c.Extend:
        return c.Extend(hold=c.hold_of(job), lease_ms=self._lease_ms, ran_ms=0)
