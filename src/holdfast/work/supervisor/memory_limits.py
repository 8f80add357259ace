"""Limits on the memory of executors.

above --memory-limit    it gets no new jobs. A job that has always run alone in it is killed and counted as a
                        loss; several get a grace period, and are suspects after it
grown by --max-growth   it is replaced, and finishes its jobs
"""

import asyncio
from collections.abc import Callable, Sequence

from ...core.counting import counted
from ...core.errors import BadInput
from ...core.sizes import size_text
from .executor_handle import ExecutorHandle, resident_bytes
from .executor_pool import ExecutorPool

CHECK_S = 1.0


def check_memory_limit(executors: Sequence[ExecutorHandle], limit: int) -> None:
    """Refuse a limit that executors exceed before they run a job: each job would be counted as lost."""
    size = max((executor.initial_bytes for executor in executors), default=0)
    if 0 < limit <= size:
        needed = f"above the {size_text(size)} that an executor has before it runs a job"
        raise BadInput("memory-limit", size_text(limit), needed=needed)


class MemoryLimits:
    """Checks the memory of the executors, and replaces those above a limit."""

    def __init__(
        self, pool: ExecutorPool, log: Callable[[str], None], *, limit: int, growth: int, grace_s: float
    ) -> None:
        self._pool, self._log = pool, log
        self._limit, self._growth, self._grace_s = limit, growth, grace_s

    async def run(self) -> None:
        """Check all executors periodically."""
        while True:
            self._check()
            await asyncio.sleep(CHECK_S)

    def _check(self) -> None:
        for executor in self._pool.executors:
            now = resident_bytes(executor.process.pid)
            if self._limit and now > self._limit and not executor.is_over_memory_limit:
                self._on_limit_exceeded(executor, now)
            elif self._growth and executor.initial_bytes and now - executor.initial_bytes > self._growth:
                self._on_growth_exceeded(executor, now)

    def _on_growth_exceeded(self, executor: ExecutorHandle, now: int) -> None:
        if not (executor.is_being_replaced or executor.is_draining or executor.is_isolated):
            grown = size_text(now - executor.initial_bytes)
            self._log(f"executor {executor.process.pid} has grown by {grown}: it is replaced")
            self._pool.recycle(executor)

    def _on_limit_exceeded(self, executor: ExecutorHandle, now: int) -> None:
        executor.is_over_memory_limit = True
        above = f"{size_text(now)}, above its limit of {size_text(self._limit)}"
        jobs = counted(len(executor.jobs), "job")
        self._log(f"executor {executor.process.pid} has {above}; it has {jobs}")
        self._pool.replace(executor, grace_s=0.0 if executor.is_running_alone() else self._grace_s)
