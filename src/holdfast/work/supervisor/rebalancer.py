"""Takes back prefetched jobs that wait behind a slow one, for other executors or workers.

Short jobs are prefetched (`capacity`). An executor in which no job has started or ended for a while is asked
to return the jobs that it has not started. One that cannot answer, because a handler holds its interpreter
lock, starts nothing after `RunJobs.start_by_s`, so after that its jobs are taken back without asking.
"""

import asyncio
from collections.abc import Callable

from ...store.common.clock import monotonic_s
from .executor_handle import ExecutorHandle, HeldJob
from .executor_pool import ExecutorPool
from .suspects import Suspects

CHECK_S = 0.1
# How long no job may start or end in an executor before its waiting jobs are taken back.
STALLED_S = 0.3


class Rebalancer:
    """Takes back jobs that wait too long in executors, and suspects that wait too long for one."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        give_back: Callable[[list[HeldJob], ExecutorHandle | None], None],
    ) -> None:
        self._pool, self._suspects, self._give_back = pool, suspects, give_back
        self._overdue: set[ExecutorHandle] = set()

    async def run(self) -> None:
        """Check periodically."""
        while True:
            await asyncio.sleep(CHECK_S)
            self._check()

    def _check(self) -> None:
        if late := self._suspects.take_late():
            self._give_back(late, None)
        stalled_s = monotonic_s() - STALLED_S
        before, self._overdue = self._overdue, set()
        for executor in self._pool.executors:
            if len(executor.jobs) == executor.running or executor.last_change_s > stalled_s:
                continue
            self._pool.revoke(executor)
            if keys := executor.overdue_keys():
                # Only at the second check: by then all its earlier messages have been read.
                if executor in before:
                    self._give_back(executor.take_back(keys), executor)
                    self._pool.notify_change()
                self._overdue.add(executor)
