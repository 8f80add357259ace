"""What a supervisor checks about its executors from time to time.

jobs       those that wait too long in an executor, behind a slow handler, are taken back for other executors
           or workers. The executor need not respond (`start_locks`): its event loop may be blocked, its
           interpreter lock held, its process stopped. The handlers that block executors are named
scaling    more executors while jobs wait and all are busy, fewer when some are idle
memory     above --memory-limit an executor gets no new jobs. A job that has always run alone in it is killed
           and counted as a loss; several get a grace period, and are suspects after it. An executor that has
           grown by --max-growth is replaced, and finishes its jobs
reloading  executors are replaced when a file that they have imported changes
health     the health file is written
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from ...core.errors import BadInput, HoldfastError
from ...core.units import counted, size_text
from ...core.worker import Blocker
from ...store.common.clock import monotonic_s
from .. import health
from ..files import WatchedFiles
from ..logs import WORKER, warn_blocked
from ..options import WorkerOptions
from .executor_handle import ExecutorHandle, resident_bytes
from .executor_pool import ExecutorPool
from .suspects import Suspects

# How often each of them is checked.
JOBS_S, SCALING_S, MEMORY_S, RELOAD_S = 0.1, 0.25, 1.0, 0.3
# How long the other jobs of an executor may go on after one has exceeded its time limit, or the memory.
GRACE_S = 10.0


def check_memory_limit(executors: Sequence[ExecutorHandle], limit: int) -> None:
    """Refuse a limit that executors exceed before they run a job: each job would be counted as lost."""
    size = max((executor.initial_bytes for executor in executors), default=0)
    if 0 < limit <= size:
        needed = f"above the {size_text(size)} that an executor has before it runs a job"
        raise BadInput("memory-limit", size_text(limit), needed=needed)


class ExecutorChecks:
    """Checks the executors of a worker."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        options: WorkerOptions,
        log: Callable[[str], None],
        count_waiting: Callable[[], Awaitable[int]],
        describe: Callable[[], health.Health],
    ) -> None:
        self._pool, self._suspects, self._options, self._log = pool, suspects, options, log
        # How many jobs of the worker's stores could start now; and what the health file says.
        self._count_waiting, self._describe = count_waiting, describe
        # The handlers that block executors now, by process number.
        self._blockers: dict[int, Blocker] = {}
        self.files = WatchedFiles()
        # The last error of the health file that was logged.
        self._health_error = ""

    async def run(self) -> None:
        """Check periodically, until the worker ends."""
        options, checks = self._options, [(JOBS_S, self._check_jobs)]
        if options.most_processes > options.processes:
            checks.append((SCALING_S, self._scale))
        if options.memory_limit or options.max_growth:
            checks.append((MEMORY_S, self._check_memory))
        if options.reload:
            checks.append((RELOAD_S, self._check_files))
        if options.health_file:
            checks.append((health.WRITE_S, self._write_health))
        try:
            # Each by itself: a check that waits for a store or a process holds up no other.
            await asyncio.gather(*(_repeat(check, period_s) for period_s, check in checks))
        finally:
            if options.health_file:
                health.remove(Path(options.health_file))

    async def _check_jobs(self) -> None:
        """Take back jobs that wait too long in executors, and suspects that wait too long for one."""
        if late := self._suspects.take_late():
            self._pool.on_returned(late, None)
        executors = self._pool.executors
        for executor in executors:
            if waiting := executor.waiting_too_long():
                self._pool.take_back(executor, waiting)
            executor.ping()
        found = {one.process.pid: (one, blocker) for one in executors if (blocker := one.find_blocker())}
        before, self._blockers = self._blockers, {pid: blocker for pid, (_, blocker) in found.items()}
        for pid, (executor, blocker) in found.items():
            if before.get(pid) != blocker:
                warn_blocked(f"executor {pid}: {blocker.text()}", await executor.blocked_stack(blocker))

    def blockers(self) -> tuple[Blocker, ...]:
        """The handlers that block executors now."""
        return tuple(self._blockers.values())

    # Scaling

    async def _scale(self) -> None:
        """Start executors while jobs wait for one, and stop one that has been idle for long."""
        options, pool = self._options, self._pool
        active = [one for one in pool.executors if one.can_take_jobs]
        room = options.most_processes - len(active)
        if room > 0 and not pool.starting and all(executor.is_full() for executor in active):
            try:
                waiting = await self._count_waiting()
            except HoldfastError:
                # The claim loops get the same error, and log it.
                return
            # Twice as many, but no more than jobs wait.
            for _ in range(min(max(len(active), 1), room, waiting)):
                pool.start_more()
        elif len(active) > options.processes:
            since_s = monotonic_s() - options.shrink_s
            idle = [m for m in active if not m.jobs and m.idle_since_s < since_s and not m.is_being_replaced]
            if idle:
                pool.stop_executor(idle[-1])

    # Memory

    async def _check_memory(self) -> None:
        """Replace the executors that are above a limit."""
        limit, growth = self._options.memory_limit, self._options.max_growth
        for executor in self._pool.executors:
            now = resident_bytes(executor.process.pid)
            if limit and now > limit and not executor.is_over_memory_limit:
                self._on_limit_exceeded(executor, now)
            elif growth and executor.initial_bytes and now - executor.initial_bytes > growth:
                self._on_growth_exceeded(executor, now)

    def _on_growth_exceeded(self, executor: ExecutorHandle, now: int) -> None:
        if not (executor.is_being_replaced or executor.is_draining or executor.is_isolated):
            grown = size_text(now - executor.initial_bytes)
            self._log(f"executor {executor.process.pid} has grown by {grown}: it is replaced")
            self._pool.recycle(executor)

    def _on_limit_exceeded(self, executor: ExecutorHandle, now: int) -> None:
        executor.is_over_memory_limit = True
        above = f"{size_text(now)}, above its limit of {size_text(self._options.memory_limit)}"
        jobs = counted(len(executor.jobs), "job")
        self._log(f"executor {executor.process.pid} has {above}; it has {jobs}")
        # It tells late that a job has started.
        self._pool.take_back(executor)
        self._pool.replace(executor, grace_s=0.0 if executor.is_running_alone() else GRACE_S)

    # Files

    async def _check_files(self) -> None:
        """Reload after a change. If new executors fail to start, log that and keep the old ones."""
        if changed := self.files.changed():
            names = ", ".join(sorted(Path(file).name for file in changed))
            if await self._pool.reload():
                WORKER.info("reloaded after a change of %s", names)
            else:
                self._log(f"not reloaded after a change of {names}: {self._pool.error}")

    async def _write_health(self) -> None:
        path, text = self._options.health_file, ""
        try:
            health.write(Path(path), self._describe())
        except OSError as error:
            # The reader will find an old file, and take the worker for unhealthy.
            text = f"the health file {path} cannot be written: {error.strerror}"
            if text != self._health_error:
                self._log(text)
        self._health_error = text


async def _repeat(check: Callable[[], Awaitable[None]], period_s: float) -> None:
    while True:
        await check()
        await asyncio.sleep(period_s)
