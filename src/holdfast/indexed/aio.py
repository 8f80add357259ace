"""Consumers and groups for asyncio: the same walk, ledger and progress, with coroutines for workers.

Everything happens in the loop that `start` was awaited in; one task walks, and `check` wakes it from any
thread.

A group has a task for each job, and one that checks for jobs, writes progress and restarts.
"""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

from ..core.bounds import MAX_INDEX
from ..core.checks import check_whole
from ..core.errors import NotFound
from ..core.indexed import Seen
from ..queue.running import as_error, is_cancelled
from .base import AlreadyStarted, BaseConsumer, log
from .group import LATER, TRY_AGAIN_S, BaseGroup
from .log import log_name
from .progress import AsyncProgress
from .scan import drive_async
from .signals import Signal, following
from .source import IndexedJob, checked_head, checked_job

T = TypeVar("T")


class AsyncConsumer(BaseConsumer[T, Any, AsyncProgress]):
    """Works through a source from its progress on; see `Consumer`. `run` may be a coroutine function.

    So may a source's `head` and `at`; a look-up that is awaited when the consumer stops is cancelled.
    """

    def _prepare(self) -> None:
        self.stopping = asyncio.Event()
        self._bell, self._back = asyncio.Event(), asyncio.Event()
        self._saving = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: asyncio.Task[None] | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._finding = False

    async def start(self) -> None:
        """Begin, once: what there is to do is begun before this returns."""
        self._begun()
        self._loop = asyncio.get_running_loop()
        try:
            self._begin_at(await self.progress.initialize(log=log_name(self.source, self.progress.queue)))
        except BaseException:
            self._started = self._running = False
            raise
        self._driver = asyncio.create_task(self._drive(), name=f"holdfast-indexed-{self.progress.name}")
        await self._walked()
        self._ready.set()

    async def stop(self) -> None:
        """Start no more jobs, and wait until every `run` has returned; none is interrupted."""
        if not self._started:
            return
        self._running = False
        self._stopping()
        if asyncio.current_task() in self._workers:
            return  # it would wait for itself
        while self._in_flight:
            self._back.clear()
            await self._back.wait()
        if self._driver is not None:
            # One last walk, for what was reported meanwhile; then it ends.
            self._bell.set()
            await self._driver
        self._end()

    def _stopping(self) -> None:
        self.stopping.set()
        self._bell.set()
        if self._finding and self._driver is not None:
            self._driver.cancel()

    def check(self) -> None:
        """There may be new work: look. From any thread; never raises, and returns at once."""
        if not self._may_look() or self._loop is None:
            return
        self._asked = True
        try:
            self._loop.call_soon_threadsafe(self._bell.set)
        except RuntimeError:
            pass  # its loop is closed, and so is the consumer

    async def done(self, job_id: str, *, connection: Any = None) -> int:
        """A job is done; P as it is then. One that is not running changes nothing.

        With `connection` P is written inside your own transaction; see `Consumer.done`.
        """
        if connection is not None:
            return await self._done_in(job_id, connection)
        await self._settle(job_id)
        if self._report(job_id):
            await self._walked()
        return self.processed

    async def _done_in(self, job_id: str, connection: Any) -> int:
        index = self._index_to_move(job_id)
        if index is not None:
            # Once it is committed the job is not in flight any more.
            await self.progress.move(index, seen=Seen(head=self._head), connection=connection)
            self._tentative.add(job_id)
        return self.processed

    async def _settle(self, job_id: str) -> None:
        """Look whether the P that a worker moved in its own transaction is there, where it did so."""
        if job_id in self._tentative:
            self._tentative.discard(job_id)
            self._settle_at(job_id, await self.progress.processed())

    async def _walked(self) -> None:
        """Until a walk that began after this call has ended."""
        if self._driver is None or self._driver.done():
            await self._turn()
            await self._tell()
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._bell.set()
        await waiter

    async def _drive(self) -> None:
        while True:
            over = self.stopping.is_set() and not self._in_flight
            waiters, self._waiters = self._waiters, []
            if self._asked or waiters or over:
                self._asked = False
                await self._turn()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            await self._tell()
            if over and not self._waiters:
                return
            await self._bell.wait()
            self._bell.clear()

    async def _turn(self) -> None:
        self._take_reports()
        saved = self._ledger.saved
        try:
            found = await drive_async(self._walk(), self._find)
            self._ledger.fold(found)
            if self.max_ahead == 1:
                await self._save()
            for job in self._admit(found.jobs):
                task = asyncio.create_task(self._run_one(job), name=f"holdfast-indexed-{job.index}")
                self._workers.add(task)
                task.add_done_callback(self._workers.discard)
            await self._written()
            if self._is_idle(saved):
                await self.progress.check(self.processed)
            self._end_turn()
        except Exception as error:
            self._in_the_way(error)

    async def _find(self, index: int) -> IndexedJob[T] | None:
        self._finding = True
        try:
            if index > self._head and not self._head_is_fresh:
                self._head, self._head_is_fresh = checked_head(await waited(self.source.head())), True
            if index > self._head:
                return None
            return checked_job(await waited(self._look(index, self.stopping)), index)
        except NotFound:
            return None
        except asyncio.CancelledError as error:
            if not is_cancelled():
                self._source_error = as_error(error)
                return None
            task = asyncio.current_task()
            if not self.stopping.is_set() or task is None or task is not self._driver:
                raise
            task.uncancel()
            return None
        except Exception as error:
            self._source_error = error
            return None
        finally:
            self._finding = False

    async def _written(self) -> None:
        """See to it that P is written: here and now."""
        await self._save()

    async def _save(self) -> None:
        async with self._saving:
            to = self._ledger.folded
            if to > self._ledger.saved:
                if to > self._stored:
                    await self.progress.move(to, seen=self._seen())
                self._saved(to)

    async def _tell(self) -> None:
        try:
            while self._advances:
                advance = self._advances.popleft()
                if self._on_advance is not None:
                    await waited(self._on_advance(*advance))
        except Exception as error:
            self._fail(error)

    async def _run_one(self, job: IndexedJob[T]) -> None:
        try:
            await self._call(job)
        except asyncio.CancelledError as error:
            if is_cancelled():
                self._fail(error)
                raise
            # Of something that the worker awaited: an error like others.
            self._fail(as_error(error))
        except BaseException as error:
            self._fail(error)
        finally:
            self._in_flight -= 1
            self._back.set()
            self._bell.set()
            self._end_if_failed()

    async def _call(self, job: IndexedJob[T]) -> None:
        await waited(self.run(job))


async def waited(value: Any | Awaitable[Any]) -> Any:
    """A value, or what a coroutine makes of itself."""
    return await value if inspect.isawaitable(value) else value


class _Tasked(AsyncConsumer[T]):
    """A consumer whose jobs are done when they return, and whose progress is written by its group."""

    def __init__(self, *args: Any, moved: asyncio.Event, **options: Any) -> None:
        super().__init__(*args, **options)
        self._moved = moved

    async def done(self, job_id: str, *, connection: Any = None) -> int:
        await super().done(job_id, connection=connection)
        if connection is None:
            await self.save()
        return self.processed

    async def save(self) -> bool:
        try:
            await self._save()
            await self._tell()
        except Exception as error:
            self._in_the_way(error)
            return False
        return True

    def _stopping(self) -> None:
        super()._stopping()
        self._moved.set()

    async def _written(self) -> None:
        if self._ledger.folded > self._ledger.saved:
            self._moved.set()

    async def _call(self, job: IndexedJob[T]) -> None:
        if self.stopping.is_set():
            return
        if await waited(self.run(job)) is LATER:
            return
        await self._settle(job.id)
        if self._report(job.id):
            self._bell.set()


class AsyncConsumerGroup(BaseGroup[T, Any, AsyncProgress, _Tasked[T]]):
    """A consumer that looks for work by itself, with a task for each job; see `ConsumerGroup`."""

    def _prepare(self) -> None:
        self._moved, self._stop = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def _made(self) -> _Tasked[T]:
        return _Tasked(self.source, self.progress, self._run, moved=self._moved, **self._options)

    async def _advanced(self, old: int, new: int) -> None:
        if self._on_advance is not None:
            await waited(self._on_advance(old, new))
        self._milestones.passed(new)

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the group stops: for workers that wait for something."""
        return self._consumer.stopping

    async def start(self) -> None:
        """Start, once; returns after the first check for jobs."""
        if self._task is not None:
            raise AlreadyStarted("this group was started before; make another to start again")
        self._task = asyncio.create_task(self._supervise(), name=f"holdfast-consumer-{self.progress.name}")
        ready = asyncio.ensure_future(_until(self._ready))
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

    def ask_to_stop(self) -> None:
        """Start no more jobs; `closed()` completes when the group has stopped."""
        self._stop.set()
        self._consumer._stopping()

    async def stop(self) -> None:
        """Start no more jobs, wait until every `run` has returned, write the progress."""
        if self._task is None:
            return
        self.ask_to_stop()
        here = asyncio.current_task()
        if here is not self._task and here not in self._consumer._workers:
            await asyncio.wait({self._task})

    def check(self) -> None:
        """There may be new work. From any thread, at any time; returns at once."""
        if self._consumer._started:
            self._consumer.check()

    async def done(self, job_id: str, *, connection: Any = None) -> int:
        """Report a job that was left for `LATER`, or whose worker writes P itself; see `Consumer.done`."""
        return await self._consumer.done(job_id, connection=connection)

    async def wait(self, *, until: int) -> None:
        """Wait until P is at an index or above; see `ConsumerGroup.wait`."""
        check_whole("until", until, 0, MAX_INDEX)
        await self._milestones.at(until)

    async def drained(self) -> None:
        """Wait until all that the source has now is processed; see `ConsumerGroup.drained`."""
        await self._milestones.at(checked_head(await waited(self.source.head())))

    async def __aenter__(self) -> "AsyncConsumerGroup[T]":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if kind is None:
            await self._closed

    async def _supervise(self) -> None:
        error: BaseException | None
        try:
            with following(self.progress.queue, self.check):
                error = await self._lives()
        except BaseException as unforeseen:
            error = unforeseen
        self._milestones.close(error)
        self._closed.set(error)

    async def _lives(self) -> BaseException | None:
        failures, reached = 0, -1
        error = await self._live()
        while error is not None and self._restart is not None and not self._stop.is_set():
            failures = 1 if self._consumer.processed > reached else failures + 1
            reached = self._consumer.processed
            delay_s = self._restart.delay_s(error, failures)
            if delay_s is None or await _set_within(self._stop, delay_s):
                break
            self.restarts += 1
            log.warning("consumer %s starts again, restart %d", self.progress.name, self.restarts)
            self._consumer = self._made()
            error = await self._live()
        return error

    async def _live(self) -> BaseException | None:
        consumer = self._consumer
        try:
            await consumer.start()
        except Exception as error:
            return error
        self._milestones.passed(consumer.processed)
        self._ready.set()
        poller = asyncio.create_task(self._poll(consumer))
        try:
            while not self._stop.is_set() and not consumer.stopping.is_set():
                saved = await consumer.save()
                await _set_within(self._moved, None if saved else TRY_AGAIN_S)
                self._moved.clear()
        finally:
            poller.cancel()
            await consumer.stop()
            await consumer.save()
        return consumer.error

    async def _poll(self, consumer: _Tasked[T]) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            consumer.check()


async def _until(signal: Signal) -> None:
    await signal


async def _set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
