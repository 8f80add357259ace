"""Autoscaling: more executors while jobs wait and all are busy, fewer when some are idle."""

import asyncio
from collections.abc import Awaitable, Callable

from ...core.errors import HoldfastError
from ...store.common.clock import monotonic_s
from .executor_handle import ExecutorHandle
from .executor_pool import ExecutorPool

CHECK_S = 0.25


class Scaling:
    """Starts and stops executors, between a minimum and a maximum."""

    def __init__(self, pool: ExecutorPool, *, least: int, most: int, idle_s: float) -> None:
        self._pool, self._least, self._most, self._idle_s = pool, least, most, idle_s

    async def run(self, count_waiting: Callable[[], Awaitable[int]]) -> None:
        """Start executors while jobs wait for one, and stop those that are idle."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._is_saturated():
                try:
                    self._grow(await count_waiting())
                except HoldfastError:
                    # The claim loops get the same error, and log it.
                    continue
            elif executor := self._find_surplus():
                self._pool.stop_executor(executor)

    def _active(self) -> list[ExecutorHandle]:
        return [m for m in self._pool.executors if not (m.is_draining or m.is_isolated)]

    def _is_saturated(self) -> bool:
        """Whether more may be started, none is starting, and all are full."""
        active = self._active()
        return (
            not self._pool.starting
            and len(active) < self._most
            and all(executor.is_full() for executor in active)
        )

    def _grow(self, waiting: int) -> None:
        """Double the executors while jobs wait, up to one for each of them and to the maximum."""
        there = len(self._active())
        for _ in range(min(max(there, 1), self._most - there, waiting)):
            self._pool.start_more()

    def _find_surplus(self) -> ExecutorHandle | None:
        """An executor that has been idle for long, if there are more than the minimum; else None."""
        active = self._active()
        since_s = monotonic_s() - self._idle_s
        idle = [m for m in active if not m.jobs and m.idle_since_s < since_s and not m.is_being_replaced]
        return idle[-1] if idle and len(active) > self._least else None
