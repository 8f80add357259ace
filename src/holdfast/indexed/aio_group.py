"""The group for asyncio: a task for each job, and one that checks for jobs, writes progress and restarts."""

import asyncio
from typing import Any, TypeVar

from ..core.bounds import MAX_INDEX
from ..core.checks import check_whole
from .aio import AsyncConsumer, waited
from .base import AlreadyStarted, log
from .group import LATER, TRY_AGAIN_S, BaseGroup
from .progress import AsyncProgress
from .signals import Signal, following
from .source import IndexedJob, checked_head

T = TypeVar("T")


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
