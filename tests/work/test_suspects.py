"""Suspects while their store cannot be written to."""

import asyncio
import subprocess
from typing import Any

from holdfast.core import commands as c
from holdfast.core.errors import StoreFull
from holdfast.core.job import Job
from holdfast.work.capacity import ExecutionMode, TaskDurations
from holdfast.work.shared_files import SharedStartLocks
from holdfast.work.supervisor.executor_handle import ExecutorHandle, make_held_jobs
from holdfast.work.supervisor.suspects import Suspects


class FullStore:
    """A connection to a store whose disk is full."""

    asked = 0

    async def ask_async(self, _command: Any) -> Any:
        """Fail at once."""
        self.asked += 1
        await asyncio.sleep(0)
        raise StoreFull("the disk is full")


class Pool:
    """A pool that starts one isolated executor."""

    closing = False

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def notify_change(self) -> None:
        """Do nothing."""

    def track(self, task: asyncio.Task[Any]) -> None:
        """Keep a task."""
        self._tasks.append(task)

    async def start_isolated(self) -> ExecutorHandle:
        """An executor without a process."""
        process: Any = subprocess.Popen
        return ExecutorHandle(process, 1, TaskDurations(), SharedStartLocks())

    def has_executor(self, _executor: ExecutorHandle) -> bool:
        """It runs."""
        return True


def test_starts_that_a_full_store_refuses_are_not_repeated_without_a_pause() -> None:
    """The store would be asked thousands of times a second, by the loop that renews the leases too."""
    store, pool = FullStore(), Pool()

    async def run() -> int:
        fakes: Any = {"pool": pool, "connection_of": lambda _index: store}
        suspects = Suspects(**fakes, executors=1, lease_ms=1000)
        claimed = c.Claimed(job=Job(id=7, task="work", claim=1, crowd_limit=1), data="{}")
        (held,) = make_held_jobs([claimed], 0, ExecutionMode("functions", 1))
        suspects.add(held)
        while not store.asked:  # noqa: ASYNC110 (other tasks of this loop ask)
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        return store.asked

    assert asyncio.run(run()) == 1
