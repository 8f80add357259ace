"""The supervisor: claims jobs, renews their leases and commits their answers. It never imports user code.

    claim ──▶ deliver to an executor ──▶ JobStarted ──▶ JobEnded ──▶ answer, many in one commit
                        │                    │
                        │ the executor dies  │
                        └── not started:     └── started: a loss if it ran alone, else a suspect
                            released             (`suspects`)

The supervisor renews all leases in one commit, at a third of their length: a handler that holds the
interpreter lock, hangs or crashes never costs a lease.
"""

import asyncio
import logging
import random
import signal
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.errors import AppError, BadInput, HoldfastError, SchemaMismatch
from ...core.job import Code, Job
from ...core.units import counted
from ...core.worker import Blocker
from ...engine import joblog
from ...queue.answers import limit_error, limit_s, stack_s
from ...store.common.clock import monotonic_s, system_clock
from ...store.common.interrupts import import_all
from ..capacity import ExecutionMode
from ..claim_loop import CLAIM_WAIT_S, HEALTH_WAIT_S, ClaimLoop, ClaimScope
from ..health import Health
from ..logs import TRUSTED_ONLY, WORKER
from ..messages import CommandRequest, Hello, make_reply
from ..options import WorkerOptions
from ..ordering import WarmPairs, WarmTasks
from ..scheduler import SchedulerSettings, make_scheduler
from .commits import AnswerWriter, Leases
from .dispatcher import ModeDispatcher, is_empty
from .executor_checks import GRACE_S, ExecutorChecks, check_memory_limit
from .executor_handle import ExecutorEvents, ExecutorHandle, HeldJob
from .executor_pool import ExecutorPool
from .metrics import Listen, WorkerMetrics
from .registry import Registry, new_worker
from .sources import JobSource, JobSources
from .suspects import RELEASE_DELAY_MS, Suspects

# What is needed to open a store.
OF_STORES = ("holdfast.engine.store_connection", "holdfast.engine.transaction", "holdfast.engine.queries")
# How long to wait for killed executors to end.
KILL_WAIT_S = 5.0
# The least number of isolated executors: one for each half of a group of suspects.
MIN_ISOLATED = 2
# `timeout` and some service managers send a signal to the process and to its group: that is one signal.
SAME_SIGNAL_S = 0.5


class Supervisor:
    """One worker: its executors, claim loops and leases."""

    # A store was written by a newer version, which does not let this one write.
    _refused: SchemaMismatch | None = None

    def __init__(
        self, options: WorkerOptions, log: Callable[[str], None], *, listen: Listen | None = None
    ) -> None:
        self._options, self._log = options, log
        # Fail early if the scheduler's name is unknown.
        self._make_scheduler()
        self._pool = ExecutorPool(
            options,
            log,
            on_events=self._on_events,
            on_request=self._on_request,
            on_lost=self._on_executor_lost,
            on_ready=self._wake_claim_loops,
        )
        self._metrics = WorkerMetrics(listen, self._pool.durations, self._counts) if listen else None
        self._writer = AnswerWriter(log, self._metrics.runs.note_lost if self._metrics else None)
        self._suspects = Suspects(
            self._pool,
            executors=max(options.processes, MIN_ISOLATED),
            lease_ms=options.lease_ms,
            connection_of=lambda queue_index: self.sources.all[queue_index].connection,
        )
        self._sources: JobSources | None = None
        self._registry: Registry | None = None
        self._stopping = asyncio.Event()
        # Set to end the claim loops: the worker stops, or starts them again with other tasks.
        self._claims_over = asyncio.Event()
        self._signals = 0
        self._signalled_s: dict[int, float] = {}  # When each came first.
        self._capacity_events: list[asyncio.Event] = []
        self._checks = ExecutorChecks(
            self._pool, self._suspects, options, log, self._count_waiting, self._health
        )
        self._warm_pairs: WarmPairs = OrderedDict()
        self._worker = new_worker(
            processes=options.processes,
            threads=options.at_once,
            health=options.health_file,
            now_ms=system_clock(),
        )

    def _make_scheduler(self) -> Any:
        setting = SchedulerSettings(rng=random.random, weights=self._options.weights)
        return make_scheduler(self._options.scheduler, setting)

    @property
    def done(self) -> int:
        """How many jobs have ended here: finished, failed or cancelled."""
        return self._writer.done

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._writer.failed

    @property
    def sources(self) -> JobSources:
        """The queues of this worker."""
        assert self._sources is not None
        return self._sources

    async def run(self) -> None:
        """Run jobs until a signal, or until no work is left if the options say so."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        try:
            if (hello := await self._start_executors()) is None:
                return
            if not await self._open_stores(hello):
                return
            background = [asyncio.create_task(work) for work in self._background()]
            for task in background:
                task.add_done_callback(self._on_background_end)
            try:
                while not self._stopping.is_set():
                    await self._claim_all()
            except SchemaMismatch as error:
                self._refused = error
            finally:
                await self._drain()
                for task in background:
                    task.cancel()
        finally:
            await self._pool.stop()
            if self._sources is not None:
                await asyncio.to_thread(self._sources.close)

        if self._refused is not None:
            raise self._refused

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, SchemaMismatch):
                self._refused = error
                self._stop()
                return
            self._log(f"a background task has ended: {type(error).__name__}: {error}")

    async def _start_executors(self) -> Hello | None:
        """Start the executors; returns the `Hello` of the first, or None if stopped meanwhile."""
        # While they import the user's modules.
        importing = asyncio.create_task(asyncio.to_thread(import_all, OF_STORES))
        try:
            return await self._pool.start(self._options.processes)
        except AppError:
            if self._stopping.is_set():
                return None
            raise
        finally:
            await importing

    async def _open_stores(self, hello: Hello) -> bool:
        """Open the stores of the queues, and register this worker there; False if stopped meanwhile."""
        options = self._options
        check_memory_limit(self._pool.executors, options.memory_limit)
        self._sources = JobSources(options, hello.queues)
        if self._metrics is not None:
            await self._metrics.start(self._sources.connections)
        self._pool.on_hello, self._pool.on_returned = self._on_hello, self._on_returned
        self._checks.files.add(hello.files)
        self._registry = Registry(self._sources, self._worker, self._log, self._on_asked)
        if not await self._registry.register(wait_s=options.wait_s, stopping=self._stopping):
            return False
        most = f"..{options.most_processes}" if options.most_processes else ""
        at_once = f"{options.processes}{most} × {options.at_once} at once"
        tasks = counted(len(self._sources.tasks), "task")
        WORKER.info("ready: %s on %s, %s", tasks, ", ".join(self._sources.stores), at_once)
        for isolation in dict.fromkeys(queue.isolation for queue in hello.queues if queue.handlers):
            WORKER.log(
                logging.WARNING if TRUSTED_ONLY in isolation else logging.INFO, "handlers: %s", isolation
            )
        return True

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        options, pool = self._options, self._pool
        assert self._registry is not None
        # For each store by itself: one that does not answer holds up no other.
        leases = [
            Leases(pool, self._suspects, self.sources.of(connection), options.lease_ms, self._log)
            for connection in self.sources.connections
        ]
        works = [
            *(one.keep_renewing() for one in leases),
            *(one.watch_running() for one in leases),
            self._checks.run(),
            self._registry.keep_updated(lambda: self._counts() | {"blocked": self._blockers()}),
        ]
        if options.burst_s:
            works.append(self._stop_after(options.burst_s))
        return works

    def _blockers(self) -> tuple[Blocker, ...]:
        """The handlers that block executors, and those that have all slots of a mode."""
        found = list(self._checks.blockers())
        for source in self.sources.all:
            for mode in source.execution_modes() - {source.handlers}:
                if running := self._pool.occupants(mode):
                    job, tasks = running[0].job, source.tasks_of(mode) or ()
                    found.append(
                        Blocker(
                            part="slots",
                            tenant=job.tenant,
                            task=job.task,
                            job_id=job.id,
                            others=len(running) - 1,
                            tasks=tasks,
                            since=job.started_at,
                        )
                    )
        return tuple(found)

    async def _stop_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._stop()

    def _wake_claim_loops(self) -> None:
        for room in self._capacity_events:
            room.set()

    def _on_hello(self, hello: Hello) -> None:
        """Choose the tasks again: a new executor may know others than the last."""
        self._checks.files.add(hello.files)
        if hello.error or self._pool.closing:
            return
        for name in self.sources.moved(hello.queues):
            self._log(f"{name} has another store or tenant now: restart the worker to run its jobs")
        before = [source.modes for source in self.sources.all]
        try:
            self.sources.choose(hello.queues)
        except (AppError, BadInput) as error:
            self._log(str(error))
        assert self._registry is not None
        self._pool.track(asyncio.create_task(self._log_registry_errors(self._registry.publish())))
        if before != [source.modes for source in self.sources.all]:
            self._claims_over.set()
            self._pool.track(asyncio.create_task(self._log_registry_errors(self._registry.update())))

    async def _log_registry_errors(self, update: Coroutine[Any, Any, None]) -> None:
        try:
            await update
        except HoldfastError as error:
            self._log(f"the registry of workers: {error}")

    def _stop(self) -> None:
        self._stopping.set()
        self._claims_over.set()

    def _on_asked(self) -> None:
        """Stop as at the first signal: an operator has asked for it."""
        if not self._stopping.is_set():
            WORKER.info("asked to stop")
            self._stop()

    def _on_signal(self, number: int) -> None:
        now_s = monotonic_s()
        is_same = number in self._signalled_s and now_s - self._signalled_s[number] < SAME_SIGNAL_S
        self._signalled_s.setdefault(number, now_s)
        if is_same:
            return
        self._signals += 1
        self._stop()
        if self._signals > 1 or self._sources is None:
            WORKER.info("stopping now")
            self._pool.kill()
            self._pool.notify_change()

    async def _ask(self, queue_index: int, command: c.Command, wait_s: float = 0.0) -> Any:
        return await self.sources.all[queue_index].connection.ask_async(command, wait_s=wait_s)

    async def _count_waiting(self) -> int:
        return sum(await asyncio.gather(*(source.count_ready() for source in self.sources.all)))

    def _counts(self) -> dict[str, int]:
        executors = self._pool.executors
        running = sum(executor.running for executor in executors)
        there = sum(not executor.is_draining for executor in executors)
        return {"processes": there, "running": running, "done": self.done}

    def _health(self) -> Health:
        counts, sources = self._counts(), self.sources.all
        claimed = [source.claimed_at or self._worker.started_at for source in sources if source.has_tasks]
        return Health(
            pid=self._worker.pid,
            name=self._worker.name,
            written_at=system_clock(),
            # Without tasks, after a reload, there is nothing to claim.
            claimed_at=min(claimed, default=system_clock()),
            full=self._pool.is_full(),
            draining=self._stopping.is_set(),
            executors=len(self._pool.executors),
            running=counts["running"],
            done=counts["done"],
            store_error=next((s.error for s in sources if s.error), ""),
            start_error=self._pool.error,
        )

    # ClaimLoop

    async def _claim_all(self) -> None:
        """Run a claim loop for each queue and execution mode, until `_claims_over` is set."""
        self._claims_over = asyncio.Event()
        if self._stopping.is_set():
            return
        modes = [(source, mode) for source in self.sources.all for mode in source.execution_modes()]
        self._capacity_events = [asyncio.Event() for _ in modes]
        if not modes:
            # The reloaded code declares no task; the next reload may.
            await self._claims_over.wait()
            return
        claims = [
            asyncio.create_task(self._make_claim_loop(source, mode).run(self._claims_over, room))
            for (source, mode), room in zip(modes, self._capacity_events, strict=True)
        ]
        await asyncio.wait(claims, return_when=asyncio.FIRST_EXCEPTION)
        failed = any(claim.done() and claim.exception() for claim in claims)
        if failed or not self._claims_over.is_set():
            # A loop that failed, or found no work left, ends the worker.
            self._stop()
        for claim in claims:
            await claim

    def _make_claim_loop(self, source: JobSource, mode: ExecutionMode) -> ClaimLoop:
        options = self._options
        scope = ClaimScope(
            tasks=source.tasks_of(mode),
            tenants=source.tenants,
            handled=mode == source.handlers,
            lease_ms=options.lease_ms,
            wait_s=HEALTH_WAIT_S if options.health_file else CLAIM_WAIT_S,
            until_empty=options.until_empty,
        )
        dispatcher = ModeDispatcher(
            self._pool, self._suspects, source, mode, self._writer, self._log, self._is_finished
        )
        warm = WarmTasks(self._warm_pairs)
        return ClaimLoop(source.connection, dispatcher, self._make_scheduler(), scope, warm)

    async def _is_finished(self) -> bool:
        if await is_empty(self._held_jobs, self.sources.all):
            self._stop()
        return self._stopping.is_set()

    # Messages of executors

    def _on_events(self, executor: ExecutorHandle, events: ExecutorEvents) -> None:
        for held in events.limited:
            self._start_timeout(executor, held)
        for queue_index, ended in events.ended.items():
            if self._metrics is not None:
                self._metrics.runs.note_answers(ended)
            self._writer.answer(self.sources.all[queue_index].connection, ended)
        self._wake_claim_loops()
        if self._options.max_jobs and executor.jobs_done >= self._options.max_jobs:
            self._pool.recycle(executor)

    def _on_request(self, executor: ExecutorHandle, request: CommandRequest) -> None:
        task = asyncio.create_task(self._reply_to(executor, request))
        self._pool.track(task)
        if request.wait_s:
            executor.add_wait(task)

    def _start_timeout(self, executor: ExecutorHandle, held: HeldJob) -> None:
        left_s = limit_s(held.job) - stack_s(held.job) - (monotonic_s() - held.started_s)
        held.timer = asyncio.get_running_loop().call_later(
            left_s, lambda: self._pool.track(asyncio.create_task(self._end_at_limit(executor, held)))
        )

    async def _end_at_limit(self, executor: ExecutorHandle, held: HeldJob) -> None:
        """Fail a job that has exceeded its time limit, and drain its executor."""
        number, ends_s = held.number, held.started_s + limit_s(held.job)
        stack = await executor.find_stack(held, wait_s=stack_s(held.job))
        await asyncio.sleep(ends_s - monotonic_s())
        job = held.job
        if executor.jobs.get(held.key) is not held or held.number != number:
            # It has just ended, or was delivered again under another claim.
            return
        executor.abandon(held)
        answer = c.Answer(
            hold=c.hold_of(job),
            code=Code.ERROR,
            error=limit_error(job),
            traceback=stack,
            ran_ms=held.ran_ms,
        )
        joblog.ended(job, answer, duration_ms=job.timeout_ms, error=stack or None)
        if self._metrics is not None:
            self._metrics.runs.note_answers([(answer, job)])
        self._writer.put(self.sources.all[held.queue_index].connection, answer)
        self._pool.replace(executor, grace_s=GRACE_S)
        self._wake_claim_loops()

    async def _reply_to(self, executor: ExecutorHandle, request: CommandRequest) -> None:
        try:
            command = _with_record(executor, request)
            reply: Any = await self._ask(request.queue_index, command, request.wait_s)
        except Exception as error:
            reply = error
        if isinstance(reply, Job):
            self._pool.update_record(reply, request.queue_index)
        if request.number:
            executor.send(make_reply(request.number, reply, queue_index=request.queue_index))

    def _on_executor_lost(self, executor: ExecutorHandle) -> None:
        """Release the jobs of an executor that has ended; those that had started become suspects.

        Not if it was killed on purpose, unless for its memory. Then the cause may be a job that has ended
        before, unless one job has always run alone in it.
        """
        # The locks tell which jobs had started, also if the executor could not send that any more.
        unstarted, _ = executor.take_unstarted(list(executor.jobs.values()))
        crowd, how = executor.crowd, executor.death_text(self._options.memory_limit)
        if executor.is_over_memory_limit and not executor.is_running_alone():
            crowd = max(crowd, 2)
        elif executor.was_killed and not executor.is_over_memory_limit:
            crowd = 0
        for held in unstarted + executor.take_back(list(executor.jobs)):
            lost = bool(held.started_s)
            error = how if lost else ""
            release = c.Release(hold=c.hold_of(held.job), lost=lost, crowd=crowd, error=error)
            self._writer.put(self.sources.all[held.queue_index].connection, release)
        self._wake_claim_loops()

    def _on_returned(self, jobs: list[HeldJob], executor: ExecutorHandle | None) -> None:
        """Deliver jobs that were returned to other executors, or release them for other workers."""
        for held in jobs:
            held.started_s = 0.0
        plain = [held for held in jobs if not held.job.crowd_limit]
        suspects = [held for held in jobs if held.job.crowd_limit]
        self._release(plain if self._pool.closing else self._pool.redispatch(plain, excluding=executor))
        self._release(suspects, delay_ms=0 if self._pool.closing else RELEASE_DELAY_MS)
        self._wake_claim_loops()

    # Stopping

    async def _drain(self) -> None:
        """Release jobs that have not started, wait for the others, then kill and release those left."""
        pool = self._pool
        pool.closing = True
        if held := self._held_jobs():
            limit = f"at most {self._options.drain_s:g} s"
            WORKER.info("finishing %s, %s; Ctrl-C again ends it now", counted(len(held), "job"), limit)
            self._release(self._suspects.take_all())
            pool.take_back_all()
            # What the jobs of a store that refuses this version answer cannot be stored.
            drain_s = 0 if self._refused and len(self.sources.connections) == 1 else self._options.drain_s
            await pool.wait_until(lambda: not self._held_jobs() or self._signals > 1, drain_s)
        if pool.held():
            # Kill before releasing, so that no other worker runs a job that still runs here.
            pool.kill()
            await pool.wait_until(lambda: not pool.held(), KILL_WAIT_S)
            self._release(pool.held())
        self._release(self._suspects.take_all())
        await self._writer.wait_until_committed()
        if self._registry is not None:
            # Last: a cancelled claim may have claimed and released jobs until now.
            await self._log_registry_errors(self._registry.unregister())

    def _held_jobs(self) -> list[HeldJob]:
        """All jobs that this worker has claimed."""
        return self._pool.held() + self._suspects.held()

    def _release(self, jobs: list[HeldJob], *, delay_ms: int = 0) -> None:
        for held in jobs:
            begun = bool(held.started_s)
            release = c.Release(hold=c.hold_of(held.job), delay_ms=delay_ms, lost=begun, crowd=0)
            self._writer.put(self.sources.all[held.queue_index].connection, release)


def _with_record(executor: ExecutorHandle, request: CommandRequest) -> Any:
    """What an executor asks; a step with the record of its job, which saves the store a read."""
    command = request.command
    if type(command) is not c.Step:
        return command
    held = executor.jobs.get((request.queue_index, command.hold.job_id))
    return command if held is None else replace(command, held=held.job)
