"""`holdfast.work`: a queue's tasks run in the current process, for scripts, tests and small services.

    claim ──▶ waiting ──▶ running ──▶ answering ──▶ done
                │            │            └── its thread waits for the commit; the next job runs meanwhile,
                │            │                so that answers go in one commit
                │            └── at most `threads` of them
                └── some ahead where jobs are short; given back when it stops

Claims and hand-overs happen on one event loop, in a thread of its own for `work` and the caller's for
`work_async`; functions run in threads, coroutines on the loop. Leases are renewed by the queue's renewer, a
thread: a handler that holds the interpreter lock starves it, which is why `holdfast worker` exists.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Generic, TypeVar, cast

from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import CLAIM_JOBS
from ..core.checks import check_whole
from ..core.durations import duration_ms
from ..core.errors import BadInput, NotFound
from ..queue import asks
from ..queue.aio import AsyncClaimedJob, AsyncQueue
from ..queue.asks import Ask
from ..queue.base import BaseQueue
from ..queue.claimed import Holding
from ..queue.connect import shown_url
from ..queue.options import Duration
from ..queue.queue import ClaimedJob, Queue
from ..store.common.clock import monotonic_s
from .pool import Pool
from .signals import stopped_by_signals

T = TypeVar("T")
Q = TypeVar("Q", bound=BaseQueue)

IMPORT_TASKS = "one with tasks: functions under @queue.task; import your task modules first"
MOST_THREADS = 256
MOST_JOBS = 2**53
# How long a claim waits: in general, and where somebody looks whether anything is left to do.
CLAIM_WAIT_S, LOOK_S = 300.0, 0.1
# So much work is claimed ahead, by the durations measured, and never more than so many jobs.
AHEAD_S = 0.05
MOST_AHEAD = 100
# How many threads may wait for their answers' commit while others run.
ANSWERING = 32
# How late a signal may be heard, at worst.
HEARING_S = 0.2
# How much each new duration counts in the average.
SMOOTHING = 0.1


def work(
    queue: Queue,
    *,
    tasks: Iterable[Any] | None = None,
    threads: int = 1,
    until_empty: bool = False,
    seconds: Duration | None = None,
    max_jobs: int | None = None,
    lease: Duration | None = None,
) -> int:
    """Run the jobs of a queue's tasks in this process; how many were run.

    It goes on until Ctrl-C or SIGTERM (in the main thread), for so many `seconds`, until so many jobs were
    run, or with `until_empty` until nothing is left to do. Then what was claimed and has not begun is given
    back, and what runs is waited for. Jobs of tasks that the queue does not know are left waiting. What goes
    wrong with the store is raised; what goes wrong in a handler is its job's outcome.
    """
    if not isinstance(queue, Queue):
        needed = "a queue of holdfast.connect; one of connect_async has `await holdfast.work_async`"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    crew = _Threads(queue, tasks, threads, until_empty, seconds, max_jobs, lease)
    runner = threading.Thread(target=crew.run_in_thread, name="holdfast-work", daemon=True)
    with stopped_by_signals(crew.stop):
        runner.start()
        try:
            # Not for ever: a signal that comes just before the wait would be heard when all is over.
            while runner.is_alive():
                runner.join(HEARING_S)
        except BaseException:
            # A second signal: whatever still runs may run again elsewhere.
            crew.abandon()
            raise
    if crew.error is not None:
        raise crew.error
    return crew.ran


async def work_async(
    queue: AsyncQueue,
    *,
    tasks: Iterable[Any] | None = None,
    threads: int = 1,
    until_empty: bool = False,
    seconds: Duration | None = None,
    max_jobs: int | None = None,
    lease: Duration | None = None,
) -> int:
    """The same for an `AsyncQueue`, on the running loop; `threads` is how many coroutines run at once.

    Cancelling it gives everything back, what runs too; signals are left to whoever owns the loop. A task
    that is a plain function runs on the loop, and holds it up for as long as it takes.
    """
    if not isinstance(queue, AsyncQueue):
        needed = "a queue of holdfast.connect_async; one of connect has `holdfast.work`"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    crew = _Coroutines(queue, tasks, threads, until_empty, seconds, max_jobs, lease)
    await crew.run()
    if crew.error is not None:
        raise crew.error
    return crew.ran


class _Job(ClaimedJob):
    """A claimed job whose place is free for the next one as soon as it answers."""

    crew: "_Threads"

    def _say(self, ask: Ask[T], connection: Any = None) -> T:
        if isinstance(ask.asked, c.Answer | c.Release):
            self.crew.answering(self)
        return super()._say(ask, connection)

    def _await(self, work: Awaitable[Any]) -> Any:
        assert self.crew.loop is not None
        # What handlers return is wrapped in a coroutine before it comes here.
        return asyncio.run_coroutine_threadsafe(cast(Coroutine[Any, Any, Any], work), self.crew.loop).result()


class _AsyncJob(AsyncClaimedJob):
    """The same to await."""

    crew: "_Coroutines"

    async def _say(self, ask: Ask[T], connection: Any = None) -> T:
        if isinstance(ask.asked, c.Answer | c.Release):
            self.crew.answering(self)
        return await super()._say(ask, connection)


J = TypeVar("J", bound=Holding)


class _Crew(Generic[Q, J]):
    """Claims, hands over and counts. Everything but `stop` happens on one loop."""

    def __init__(
        self,
        queue: Q,
        tasks: Iterable[Any] | None,
        threads: int,
        until_empty: bool,
        seconds: Duration | None,
        max_jobs: int | None,
        lease: Duration | None,
    ) -> None:
        check_whole("threads", threads, 1, MOST_THREADS)
        if max_jobs is not None:
            check_whole("max_jobs", max_jobs, 1, MOST_JOBS)
        self._queue, self._threads, self._until_empty = queue, threads, until_empty
        self._tasks = _known(queue, tasks)
        self._lease = queue.lease if lease is None else lease
        self._lease_ms = asks.lease_ms_of(self._lease)
        self._seconds = None if seconds is None else duration_ms(seconds, name="seconds") / 1000
        self._left = max_jobs
        self.ran = 0
        self.error: BaseException | None = None
        self._waiting: deque[J] = deque()
        # Whose handlers run, since when; all that have begun and not answered yet; those that never will.
        self._running: dict[J, float] = {}
        self._alive: dict[asyncio.Future[Any], J] = {}
        self._dropped: list[J] = []
        self._average_s = AHEAD_S
        self._stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Work until it is over; then give back what has not begun, and wait for the rest."""
        self._changed, self._halted = asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()
        halted = self.loop.create_task(self._halted.wait())
        timer = None if self._seconds is None else self.loop.call_later(self._seconds, self.halt)
        try:
            try:
                while not self._stopping and self._left != 0:
                    await self._round(halted)
            except Exception as error:
                # The store's affair. What runs has done nothing wrong, and may yet answer.
                self.error = self.error or error
            await self._drain()
        finally:
            halted.cancel()
            if timer is not None:
                timer.cancel()
            # Cut off: what runs still may run again elsewhere.
            self._dropped += [*self._waiting, *self._alive.values()]
            for alive in list(self._alive):
                alive.cancel()
            await asyncio.shield(self._give_back())

    def halt(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._halted.set()
        self._changed.set()

    def stop(self) -> None:
        """The same from another thread, or from a signal."""
        self._stopping = True
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(self.halt)
            except RuntimeError:
                pass  # it has ended already

    async def _round(self, halted: "asyncio.Task[Any]") -> None:
        """Claim as much as there is room for, and begin it."""
        room = self._room()
        if not room:
            await self._change()
            return
        claimed = await self._claim(room, halted)
        self._waiting += [self._take(one) for one in claimed]
        if self._left is not None:
            self._left -= len(claimed)
        self._begin()
        if not claimed and self._until_empty and not self._alive and not await self._has_unfinished():
            self.halt()

    def _room(self) -> int:
        ahead = min(int(AHEAD_S / max(self._average_s, 1e-4)) * self._threads, MOST_AHEAD)
        room = self._threads + ahead - len(self._waiting) - len(self._running)
        if self._running and room < ahead // 2:
            # One or two at a time would be a commit for each.
            return 0
        return max(min(room, CLAIM_JOBS if self._left is None else self._left), 0)

    async def _claim(self, room: int, halted: "asyncio.Task[Any]") -> list[c.Claimed]:
        """Claim jobs; nothing when it is time to stop, and what the claim would have brought goes back."""
        publisher, tasks = self._queue.publisher, self._queue.task_defaults
        if publisher.has_changes(tasks):
            await publisher.publish_async(self._queue.session.connection, tasks)
        wait = LOOK_S if self._until_empty else CLAIM_WAIT_S
        ask = asks.claim(self._tasks, tenant=self._queue.tenant, limit=room, lease=self._lease, wait=wait)
        assert isinstance(ask.asked, c.Claim)
        command = replace(ask.asked, start=False)
        asking = asyncio.ensure_future(self._queue.session.connection.ask_async(command, wait_s=ask.wait_s))
        try:
            await asyncio.wait([asking, halted], return_when=asyncio.FIRST_COMPLETED)
            return ask.read(asking.result()) if asking.done() else []
        finally:
            if not asking.done():
                # Seen to be gone: what is given back next must not come back to it.
                asking.cancel()
                await asyncio.wait([asking])

    async def _has_unfinished(self) -> bool:
        ask = asks.has_unfinished(self._queue.tenant, self._tasks)
        return ask.read(await self._queue.session.connection.ask_async(ask.asked))

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._threads and not self._stopping:
            if self._running and any(job.record.crowd_limit for job in (*self._running, self._waiting[0])):
                # A suspect runs alone: if it ends this process, nothing else does at that moment.
                return
            job = self._waiting.popleft()
            self._running[job] = monotonic_s()
            alive = (
                asyncio.ensure_future(self._start_suspect(job))
                if job.record.crowd_limit
                else self._run_job(job)
            )
            self._alive[alive] = job
            alive.add_done_callback(self._ended)

    def _run_job(self, job: J) -> "asyncio.Future[Any]":
        job._lease.begun_s = monotonic_s()
        return self._start(job)

    async def _start_suspect(self, job: J) -> Any:
        """Commit the start before the run: should it end this process, its loss is counted."""
        command = replace(job._lease.extension(), ran_ms=0)
        try:
            job._renewed(await self._queue.session.connection.ask_async(command))
        except NotFound as lost:
            job._lease.lose(lost)
            return None
        return await self._run_job(job)

    def _over(self, job: J) -> None:
        """Its handler is over: the next may begin."""
        begun_s = self._running.pop(job, None)
        if begun_s is not None:
            self._average_s += SMOOTHING * (monotonic_s() - begun_s - self._average_s)
            self._begin()
            self._changed.set()

    def _ended(self, alive: "asyncio.Future[Any]") -> None:
        job = self._alive.pop(alive)
        self._over(job)
        self._changed.set()
        if alive.cancelled():
            return
        self.ran += 1
        error = alive.exception()
        if error is not None and not job.answered and not isinstance(error, NotFound):
            # Neither the handler's affair nor that of a claim that was lost: nobody would hear of it.
            self._dropped.append(job)
            self.error = self.error or error
            self.halt()

    async def _drain(self) -> None:
        self._stopping = True
        self._dropped += self._waiting
        self._waiting.clear()
        await self._give_back()
        while self._alive:
            await self._change()
        await self._give_back()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _give_back(self) -> None:
        """Let others have what will not be answered here; where that cannot be said, its lease will end."""
        releases = [job._release().asked for job in self._dropped if not job.answered]
        self._dropped.clear()
        line = self._queue.session.connection
        await asyncio.gather(*(line.ask_async(release) for release in releases), return_exceptions=True)

    def _take(self, claimed: c.Claimed) -> J:
        raise NotImplementedError

    def _start(self, job: J) -> "asyncio.Future[Any]":
        raise NotImplementedError


class _Threads(_Crew[Queue, _Job]):
    """Jobs in threads, the loop in one of its own."""

    def run_in_thread(self) -> None:
        """All of it, from a thread that is nobody else's."""
        self._cut_off = threading.Event()
        self._pool = Pool(self._threads + ANSWERING, "holdfast-job")
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
            self._cut_off.set()

    def abandon(self) -> None:
        """Give everything back now, whatever runs."""
        if self.loop is not None and self._main is not None:
            try:
                self.loop.call_soon_threadsafe(self._main.cancel)
            except RuntimeError:
                return
            self._cut_off.wait()

    def answering(self, job: _Job) -> None:
        """A thread is about to answer, and to wait for that."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._over, job)

    def _take(self, claimed: c.Claimed) -> _Job:
        job = _Job(self._queue, claimed, self._lease_ms, renew=True)
        job.crew = self
        return job

    def _start(self, job: _Job) -> "asyncio.Future[Any]":
        return asyncio.wrap_future(self._pool.submit(job.run), loop=self.loop)


class _Coroutines(_Crew[AsyncQueue, _AsyncJob]):
    """Jobs as tasks of the running loop."""

    def answering(self, job: _AsyncJob) -> None:
        """A coroutine is about to answer, and to wait for that."""
        self._over(job)

    def _take(self, claimed: c.Claimed) -> _AsyncJob:
        job = _AsyncJob(self._queue, claimed, self._lease_ms, renew=True)
        job.crew = self
        return job

    def _start(self, job: _AsyncJob) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(job.run())


def _known(queue: BaseQueue, tasks: Iterable[Any] | None) -> tuple[str, ...]:
    """Which tasks to claim: those of the queue, or some of them. Others wait for somebody who knows them."""
    if not queue.tasks:
        raise BadInput("queue", shown_url(queue.url), needed=IMPORT_TASKS)
    chosen = tuple(queue.tasks) if tasks is None else asks.task_names(tasks)
    unknown = [name for name in chosen or () if name not in queue.tasks]
    if not chosen or unknown:
        found = unknown[0] if unknown else "empty"
        raise BadInput("tasks", found, needed=f"some of {', '.join(sorted(queue.tasks))}")
    return chosen
