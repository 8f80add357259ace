"""`holdfast.work`: runs a queue's tasks in the current process, for scripts, tests and small services.

    claim ──▶ waiting ──▶ running ──▶ answering ──▶ done
                │            │            └── its thread waits for the commit; the next job runs meanwhile,
                │            │                so that several answers share a commit
                │            └── at most `threads` of them
                └── short jobs are prefetched; released when it stops

Jobs are claimed and started on one event loop: that of the caller for `work_async`, one in a separate thread
for `work`. Functions run in threads, coroutines on the loop. A thread of the queue renews leases; a handler
that holds the interpreter lock starves it, which is why `holdfast worker` exists.
"""

import asyncio
import random
import signal
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from ..core import commands as c
from ..core.checks import check_whole
from ..core.errors import BadInput, HoldfastError, NotFound, Refused
from ..core.job import Code, Job
from ..core.units import duration_ms
from ..engine import joblog
from ..queue import asks
from ..queue.aio import AsyncClaimedJob, AsyncQueue
from ..queue.answers import limit_error, limit_s
from ..queue.asks import QueueRequest
from ..queue.base import BaseQueue
from ..queue.claimed import Holding
from ..queue.connect import shown_url
from ..queue.loop_thread import wait_on
from ..queue.options import Duration, TaskRef
from ..queue.queue import ClaimedJob, Queue
from ..queue.running import as_error
from ..queue.stacks import handler_stack
from ..store.common.clock import monotonic_s
from .capacity import Capacity, TaskDurations, executor_capacity
from .claim_loop import ClaimLoop, ClaimScope, Dispatcher
from .logs import WORKER
from .loop_watch import LoopAlarm
from .scheduler import SchedulerSettings, make_scheduler
from .thread_pool import DaemonThreadPool

T = TypeVar("T")
Q = TypeVar("Q", bound=BaseQueue)

IMPORT_TASKS = "one with tasks: functions under @queue.task; import your task modules first"
MAX_THREADS = 256
MAX_JOBS = 2**53
# The most jobs that are prefetched. A handler that kills this process leaves them leased.
MAX_PREFETCH_JOBS = 100
# How many threads may wait for the commit of an answer while others run jobs.
ANSWERING_THREADS = 32
# How often the main thread checks for signals.
SIGNAL_POLL_S = 0.2
# After how long a worker beside another program is started again after an error of the store.
RESTART_S = 1.0


def work(
    queue: Queue,
    *,
    tasks: Iterable[TaskRef] | None = None,
    threads: int = 1,
    until_empty: bool = False,
    seconds: Duration | None = None,
    max_jobs: int | None = None,
    lease: Duration | None = None,
) -> int:
    """Run the jobs of a queue's tasks in this process; returns how many were run.

    It ends on Ctrl-C or SIGTERM (in the main thread), after `seconds`, after `max_jobs` jobs, or with
    `until_empty` when no job is left. Then claimed jobs that have not started are released, and running ones
    are waited for. Jobs of tasks that the queue does not know are not claimed. Errors of the store are
    raised; errors of a handler are the outcome of its job.
    """
    if not isinstance(queue, Queue):
        needed = "a queue of holdfast.connect; one of connect_async has `await holdfast.work_async`"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    worker = _ThreadWorker(queue, tasks, threads, until_empty, seconds, max_jobs, lease)
    runner = threading.Thread(target=worker.run_in_thread, name="holdfast-work", daemon=True)
    with stopped_by_signals(worker.stop):
        runner.start()
        try:
            # With a timeout: a signal that arrives just before the wait would be handled after it.
            while runner.is_alive():
                runner.join(SIGNAL_POLL_S)
        except BaseException:
            # A second signal: jobs that still run may run again elsewhere.
            worker.abandon()
            raise
    if worker.error is not None:
        raise worker.error
    return worker.ran


async def work_async(
    queue: AsyncQueue,
    *,
    tasks: Iterable[TaskRef] | None = None,
    threads: int = 1,
    until_empty: bool = False,
    seconds: Duration | None = None,
    max_jobs: int | None = None,
    lease: Duration | None = None,
) -> int:
    """Run the jobs of an `AsyncQueue` on the running loop; `threads` is how many coroutines run at once.

    Cancelling it releases all jobs, running ones too. It handles no signals. A task that is a plain function
    blocks the loop while it runs.
    """
    if not isinstance(queue, AsyncQueue):
        needed = "a queue of holdfast.connect_async; one of connect has `holdfast.work`"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    worker = _AsyncWorker(queue, tasks, threads, until_empty, seconds, max_jobs, lease)
    await worker.run()
    if worker.error is not None:
        raise worker.error
    return worker.ran


@asynccontextmanager
async def working(queue: Queue | AsyncQueue, *, threads: int = 1) -> AsyncIterator[None]:
    """Run the jobs of a queue's tasks in this process until the block ends; then running ones are waited for.

    After an error of the store, which is logged, the worker starts again.
    """
    background = _Background(queue, threads)
    running = asyncio.create_task(background.run())
    try:
        yield
    finally:
        background.stop()
        await running


class _Background:
    """A worker of a queue that is started again after errors of the store."""

    def __init__(self, queue: Queue | AsyncQueue, threads: int) -> None:
        self._queue, self._threads = queue, threads
        self._worker = self._make()
        self._stopped = asyncio.Event()

    def _make(self) -> "_ThreadWorker | _AsyncWorker":
        options = (None, self._threads, False, None, None, None)
        if isinstance(self._queue, Queue):
            return _ThreadWorker(self._queue, *options)
        return _AsyncWorker(self._queue, *options)

    async def run(self) -> None:
        """Run jobs until stopped."""
        while True:
            await self._worker.run_beside()
            if self._worker.error is not None:
                WORKER.error("the worker in this process starts again: %s", self._worker.error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), RESTART_S)
            if self._stopped.is_set():
                return
            self._worker = self._make()

    def stop(self) -> None:
        """Start no more jobs."""
        self._stopped.set()
        self._worker.stop()


class _ThreadJob(ClaimedJob):
    """A claimed job that frees its slot when it starts to answer."""

    worker: "_ThreadWorker"

    def _say(self, ask: QueueRequest[T], connection: Any = None) -> T:
        if isinstance(ask.asked, c.Answer | c.Release):
            self.worker.on_answering(self)
        return super()._say(ask, connection)

    def _run_handler(self) -> Any:
        try:
            return super()._run_handler()
        except SystemExit as error:
            # One job must not end the worker, and run again each time without an attempt.
            return as_error(error)

    def _await(self, work: Awaitable[Any]) -> Any:
        assert self.worker.loop is not None
        return wait_on(self.worker.loop, work)


class _AsyncJob(AsyncClaimedJob):
    """A claimed job of an `AsyncQueue` that frees its slot when it starts to answer."""

    worker: "_AsyncWorker"

    async def _say(self, ask: QueueRequest[T], connection: Any = None) -> T:
        if isinstance(ask.asked, c.Answer | c.Release):
            self.worker.on_answering(self)
        return await super()._say(ask, connection)

    async def _run_handler(self) -> Any:
        try:
            return await super()._run_handler()
        except SystemExit as error:
            return as_error(error)


J = TypeVar("J", bound=Holding)


class _LocalClaimLoop(ClaimLoop):
    """The claim loop of a worker in the process of its queue, where more tasks may be declared meanwhile."""

    def __init__(self, queue: BaseQueue, dispatcher: Dispatcher, scope: ClaimScope) -> None:
        # By priority over all tasks.
        scheduler = make_scheduler("first", SchedulerSettings(rng=random.random))
        super().__init__(queue.session.connection, dispatcher, scheduler, scope)
        self._queue = queue

    async def claim(self, capacity_changed: asyncio.Event) -> list[c.Claimed]:
        """Publish what the queue has declared if that has changed, then claim."""
        publisher, declared = self._queue.publisher, (self._queue.task_defaults, self._queue.declared)
        if publisher.has_changes(*declared):
            await publisher.publish_async(self._connection, *declared)
        return await super().claim(capacity_changed)


class _LocalWorker(Dispatcher, Generic[Q, J]):
    """Starts and counts the jobs of a claim loop. All methods but `stop` run on one event loop."""

    def __init__(
        self,
        queue: Q,
        tasks: Iterable[TaskRef] | None,
        threads: int,
        until_empty: bool,
        seconds: Duration | None,
        max_jobs: int | None,
        lease: Duration | None,
    ) -> None:
        check_whole("threads", threads, 1, MAX_THREADS)
        if max_jobs is not None:
            check_whole("max_jobs", max_jobs, 1, MAX_JOBS)
        self._queue, self._threads = queue, threads
        self._scope = ClaimScope(
            tasks=_choose_tasks(queue, tasks),
            tenants=(queue.tenant,),
            lease_ms=asks.lease_ms_of(queue.lease if lease is None else lease),
            until_empty=until_empty,
        )
        self._seconds = None if seconds is None else duration_ms(seconds, name="seconds") / 1000
        self._left = max_jobs
        self.ran = 0
        self.error: BaseException | None = None
        self._waiting: deque[J] = deque()
        # Jobs whose handlers run, since when; all that have started and not ended; those to release.
        self._running: dict[J, float] = {}
        self._alive: dict[asyncio.Future[Any], J] = {}
        self._dropped: list[J] = []
        self._durations = TaskDurations()
        self._stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Run jobs until stopped; then release those that have not started, and wait for the others."""
        hooks = self._queue.hooks
        async with nullcontext() if hooks is None else hooks.started():
            await self._run_jobs()

    async def _run_jobs(self) -> None:
        self._changed, self._has_room, self._stop_event = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._alarm = LoopAlarm(self.loop, self._queue, self._alive)
        timer = None if self._seconds is None else self.loop.call_later(self._seconds, self.stop_on_loop)
        try:
            try:
                if not self._stopping:
                    claims = _LocalClaimLoop(self._queue, self, self._scope)
                    await claims.run(self._stop_event, self._has_room)
                while self._waiting and not self._stopping:
                    # `max_jobs` were claimed; those that wait for a thread are run too.
                    await self._wait_for_change()
            except Exception as error:
                # An error of the store. Running jobs may still be answered.
                self.error = self.error or error
            await self._drain()
        finally:
            if timer is not None:
                timer.cancel()
            # After a cancellation: jobs that still run are released, and may run again elsewhere.
            self._dropped += [*self._waiting, *self._alive.values()]
            for alive in list(self._alive):
                alive.cancel()
            await asyncio.shield(self._release_dropped())
            if self._alive:
                # What `on_start` made for them ends after them.
                await asyncio.wait(list(self._alive))

    def stop_on_loop(self) -> None:
        """Start no more jobs."""
        self._stopping = True
        self._stop_event.set()
        self._changed.set()

    def stop(self) -> None:
        """Start no more jobs; for other threads and signal handlers."""
        self._stopping = True
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(self.stop_on_loop)
            except RuntimeError:
                pass  # it has ended already

    # What the claim loop asks

    def capacity(self) -> Capacity:
        """How many jobs can be taken now: for each thread one, and short ones ahead of time."""
        now_s, queued = monotonic_s(), Counter(job.task for job in self._waiting)
        running = [(job.task, now_s - since_s) for job, since_s in self._running.items()]
        found = executor_capacity(self._durations, self._threads, running, queued, MAX_PREFETCH_JOBS)
        if self._left is not None:
            found.free_slots = min(found.free_slots, self._left)
            found.prefetch_jobs = min(found.prefetch_jobs, self._left - found.free_slots)
        return found

    def held(self) -> list[Job]:
        """The jobs that were claimed and have not ended."""
        return [job.record for job in (*self._waiting, *self._alive.values())]

    def dispatch(self, jobs: Sequence[c.Claimed]) -> None:
        """Start claimed jobs as soon as there is a thread."""
        self._waiting += [self._wrap_claimed(one) for one in jobs]
        if self._left is not None:
            self._left -= len(jobs)
            if not self._left:
                # Claim no more, but run these.
                self._stop_event.set()
        self._start_waiting()

    def record_claim(self, error: HoldfastError | None) -> None:
        """Raise an error of the store."""
        if error is not None:
            raise error

    async def is_finished(self) -> bool:
        """Whether there are no more jobs to run."""
        if self._alive or self._waiting:
            return False
        ask = asks.has_unfinished(self._queue.tenant, self._scope.tasks)
        return not ask.read(await self._queue.session.connection.ask_async(ask.asked))

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._threads and not self._stopping:
            if self._running and any(job.record.crowd_limit for job in (*self._running, self._waiting[0])):
                # A suspect runs alone: if it kills this process, no other job is affected.
                return
            job = self._waiting.popleft()
            self._running[job] = monotonic_s()
            alive = (
                asyncio.ensure_future(self._start_suspect(job))
                if job.record.crowd_limit
                else self._run_job(job)
            )
            self._alive[alive] = job
            alive.add_done_callback(self._on_ended)

    def _run_job(self, job: J) -> "asyncio.Future[Any]":
        self._alarm.arm()
        job._lease.started_s = monotonic_s()
        return asyncio.ensure_future(self._run_limited(job)) if job.record.timeout_ms else self._start(job)

    async def _run_limited(self, job: J) -> Any:
        """Run a job with a time limit. A handler cannot be ended: its slot is free when it returns."""
        running = self._start(job)
        try:
            await asyncio.wait([running], timeout=limit_s(job.record))
            # Once the handler has ended, its answer is on its way.
            if not running.done() and job in self._running:
                await _answer_late(job, handler_stack(job.thread, threading.get_ident(), running))
            return await running
        finally:
            if running.cancel():
                await asyncio.wait([running])

    async def _start_suspect(self, job: J) -> Any:
        """Commit the start, then run: if the job kills this process, its loss is counted."""
        command = replace(job._lease.extension(), ran_ms=0)
        try:
            job._renewed(await self._queue.session.connection.ask_async(command))
        except NotFound as lost:
            job._lease.lose(lost)
            return None
        return await self._run_job(job)

    def _free_slot(self, job: J) -> None:
        """Free the slot of a job whose handler has ended, and start the next."""
        started_s = self._running.pop(job, None)
        if started_s is not None:
            self._durations.add_samples(job.task, [monotonic_s() - started_s])
            self._start_waiting()
            self._changed.set()
            self._has_room.set()

    def _on_ended(self, alive: "asyncio.Future[Any]") -> None:
        job = self._alive.pop(alive)
        self._free_slot(job)
        self._changed.set()
        if alive.cancelled():
            return
        self.ran += 1
        error = alive.exception()
        if error is not None and not job.answered and not isinstance(error, NotFound):
            # Neither an error of the handler nor a lost claim: raise it from `work`.
            self._dropped.append(job)
            self.error = self.error or error
            self.stop_on_loop()

    async def _drain(self) -> None:
        self._stopping = True
        self._dropped += self._waiting
        self._waiting.clear()
        await self._release_dropped()
        while self._alive:
            await self._wait_for_change()
        await self._release_dropped()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _release_dropped(self) -> None:
        """Release the dropped jobs; if that fails, their leases expire."""
        releases = [job._release().asked for job in self._dropped if not job.answered]
        self._dropped.clear()
        connection = self._queue.session.connection
        await asyncio.gather(*(connection.ask_async(release) for release in releases), return_exceptions=True)

    def _wrap_claimed(self, claimed: c.Claimed) -> J:
        raise NotImplementedError

    def _start(self, job: J) -> "asyncio.Future[Any]":
        raise NotImplementedError


class _ThreadWorker(_LocalWorker[Queue, _ThreadJob]):
    """Runs jobs in threads, and the event loop in another thread."""

    async def run_beside(self) -> None:
        """Run in a thread of its own."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def run() -> None:
            self.run_in_thread()
            loop.call_soon_threadsafe(ended.set)

        # No thread of a pool: the interpreter would wait for it if the program ends amid.
        threading.Thread(target=run, name="holdfast-work", daemon=True).start()
        await ended.wait()

    def run_in_thread(self) -> None:
        """Run the event loop until the worker ends."""
        self._ended_event = threading.Event()
        self._pool = DaemonThreadPool(self._threads + ANSWERING_THREADS, "holdfast-job")
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = self.error or error
        self._pool.close()

    async def _run(self) -> None:
        self._main = asyncio.current_task()
        try:
            await self.run()
        finally:
            self._ended_event.set()

    def abandon(self) -> None:
        """Release all jobs now, running ones too."""
        if self.loop is not None and self._main is not None:
            try:
                self.loop.call_soon_threadsafe(self._main.cancel)
            except RuntimeError:
                return
            self._ended_event.wait()

    def on_answering(self, job: _ThreadJob) -> None:
        """Free the slot of a job whose thread is about to commit its answer."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._free_slot, job)

    def _wrap_claimed(self, claimed: c.Claimed) -> _ThreadJob:
        job = _ThreadJob(self._queue, claimed, self._scope.lease_ms, renew=True)
        job.worker = self
        return job

    def _start(self, job: _ThreadJob) -> "asyncio.Future[Any]":
        return asyncio.wrap_future(self._pool.submit(job.run), loop=self.loop)


class _AsyncWorker(_LocalWorker[AsyncQueue, _AsyncJob]):
    """Runs jobs as asyncio tasks of the running loop."""

    async def run_beside(self) -> None:
        """Run on this loop."""
        await self.run()

    def on_answering(self, job: _AsyncJob) -> None:
        """Free the slot of a job whose coroutine is about to commit its answer."""
        self._free_slot(job)

    def _wrap_claimed(self, claimed: c.Claimed) -> _AsyncJob:
        job = _AsyncJob(self._queue, claimed, self._scope.lease_ms, renew=True)
        job.worker = self
        return job

    def _start(self, job: _AsyncJob) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(job.run())


def _choose_tasks(queue: BaseQueue, tasks: Iterable[TaskRef] | None) -> tuple[str, ...]:
    """The tasks to claim: those of the queue, or some of them. Raises on unknown ones."""
    if not queue.tasks:
        raise BadInput("queue", shown_url(queue.url), needed=IMPORT_TASKS)
    chosen = tuple(queue.tasks) if tasks is None else asks.task_names(tasks)
    unknown = [name for name in chosen or () if name not in queue.tasks]
    if not chosen or unknown:
        found = unknown[0] if unknown else "empty"
        raise BadInput("tasks", found, needed=f"some of {', '.join(sorted(queue.tasks))}")
    return chosen


async def _answer_late(job: Holding, stack: str) -> None:
    """Answer for a job of this process that runs past its limit, and tell its handler to stop."""
    try:
        ask = job._answer(Code.ERROR, error=limit_error(job.record), traceback=stack)
        assert isinstance(ask.asked, c.Answer)
        joblog.ended(
            job.record,
            ask.asked,
            duration_ms=job.record.timeout_ms,
            error=stack or None,
            trace_id=job.trace_id,
        )
        ask.read(await job._queue.session.connection.ask_async(ask.asked))
    except (Refused, NotFound):
        return  # its handler has answered meanwhile, or the claim was lost
    job._lease.stop()


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first Ctrl-C or SIGTERM; the second one has its previous handler.

    Python handles signals in the main thread; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Ignored signals stay ignored: the parent process wants that.
    ours = [number for number, old in kept.items() if old not in (None, signal.SIG_IGN)]

    def restore() -> None:
        for number in ours:
            signal.signal(number, kept[number])

    def handle(_number: int, _frame: Any) -> None:
        restore()
        stop()

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
