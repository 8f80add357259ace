"""Takes back jobs that wait too long in an executor, and names the handlers that block executors.

Short jobs are prefetched (`capacity`), and coroutines are delivered before the event loop has time for them.
Jobs that wait behind a slow handler are taken back, for other executors or workers. The executor need not
respond (`start_locks`): its event loop may be blocked, its interpreter lock held, its process stopped.
"""

import asyncio
from collections.abc import Callable

from ...core.worker import Blocker
from .executor_handle import ExecutorHandle, HeldJob
from .executor_pool import ExecutorPool
from .suspects import Suspects

CHECK_S = 0.1


class Rebalancer:
    """Takes back jobs that wait too long in executors, and suspects that wait too long for one."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        give_back: Callable[[list[HeldJob], ExecutorHandle | None], None],
        log: Callable[[str], None],
    ) -> None:
        self._pool, self._suspects, self._give_back, self._log = pool, suspects, give_back, log
        # The handlers that block executors now, by process number.
        self._blockers: dict[int, Blocker] = {}

    async def run(self) -> None:
        """Check periodically."""
        while True:
            await asyncio.sleep(CHECK_S)
            self._check()

    def _check(self) -> None:
        if late := self._suspects.take_late():
            self._give_back(late, None)
        executors = self._pool.executors
        for executor in executors:
            if waiting := executor.waiting_too_long():
                self._pool.take_back(executor, waiting)
            executor.ping()
        found = {one.process.pid: blocker for one in executors if (blocker := one.find_blocker())}
        for pid, blocker in found.items():
            if self._blockers.get(pid) != blocker:
                self._log(f"executor {pid}: {blocker.text()}")
        self._blockers = found

    def blockers(self) -> tuple[Blocker, ...]:
        """The handlers that block executors now."""
        return tuple(self._blockers.values())
