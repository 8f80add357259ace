"""Pipelines: stages in a row, each a consumer group with its own progress.

A slow stage delays only the stages after it. A stage that fails stops the pipeline, which raises its error.
Stages of one pipeline may run in different processes: they share state only through the store.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from ..core.errors import BadInput, Timeout, Unavailable
from ..queue.aio import AsyncQueue
from ..queue.options import Duration
from ..queue.queue import Queue
from ..store.common.clock import monotonic_s
from .aio import AsyncConsumerGroup, waited
from .base import OnAdvance
from .group import LATER, ConsumerGroup
from .progress import AsyncProgress, Progress
from .signals import Signal
from .source import AsyncUpTo, IndexedJob, UpTo
from .stages import PATIENCE_S, Stage, as_stages, call_of, consumer_name, is_time_to_trim, items_of, keys_for

G = TypeVar("G")


class BasePipeline(Generic[G]):
    """Consumer groups in a row. `groups` has those of this process, by stage."""

    # What a stage is made of: its group, its progress, and its progress as the next one's source.
    make_group: Any
    make_progress: Any
    make_source: Any
    # What is set when anything has moved.
    make_event: Any

    def __init__(
        self,
        source: Any,
        stages: list[Stage],
        queue: Any,
        *,
        name: str,
        only: set[str],
        trim: bool,
        poll: Duration,
    ) -> None:
        self.name, self.queue, self.poll = name, queue, poll
        self.groups: dict[str, G] = {}
        self.error: BaseException | None = None
        self._ready, self._closed = Signal(), Signal()
        self._moved = self.make_event()
        feed: Any = None
        for one in stages:
            if one.name in only:
                self.groups[one.name] = self._group(source, one, feed if trim else None)
            feed = one.into
            source = feed if feed is not None else self.make_source(source, self._progress(one).processed)
        for group in self._all():
            group.ready().then(self._group_ready)
            group.closed().then(self._group_closed)

    def _all(self) -> list[Any]:
        return list(self.groups.values())

    def _progress(self, one: Stage) -> Any:
        return self.make_progress(self.queue, consumer_name(self.name, one), one.start)

    def _group(self, source: Any, one: Stage, trimmed: Any) -> G:
        group: G = self.make_group(
            source,
            self._progress(one),
            self._worker(one),
            max_processing=one.max_processing,
            max_ahead=one.max_ahead,
            on_advance=self._advanced(one.on_advance, trimmed),
            restart=one.restart,
            poll=self.poll,
        )
        return group

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        raise NotImplementedError

    def _advanced(self, call: OnAdvance | None, trimmed: Any) -> OnAdvance:
        raise NotImplementedError

    def check(self) -> None:
        """There may be new work at the source."""
        for group in self._all():
            group.check()

    def ready(self) -> Signal:
        """Comes when all stages have started."""
        return self._ready

    def closed(self) -> Signal:
        """Comes when all stages have ended, with the first error, if any."""
        return self._closed

    def _group_ready(self) -> None:
        if all(group.ready().is_set() for group in self._all()):
            self._ready.set()

    def _group_closed(self) -> None:
        raise NotImplementedError

    def _first_error(self) -> BaseException | None:
        errors = (group.closed().error for group in self._all())
        return self.error or next((error for error in errors if error is not None), None)

    def _close_if_ended(self) -> None:
        self._moved.set()
        if all(group.closed().is_set() for group in self._all()):
            self._closed.set(self.error)


# How often `drain` looks by itself.
LOOK_S = 0.1


@overload
def pipeline(
    source: Any,
    *stages: Any,
    queue: Queue,
    name: str = ...,
    only: Iterable[str] | None = ...,
    trim: bool = ...,
    poll: Duration = ...,
) -> "Pipeline": ...


@overload
def pipeline(
    source: Any,
    *stages: Any,
    queue: AsyncQueue,
    name: str = ...,
    only: Iterable[str] | None = ...,
    trim: bool = ...,
    poll: Duration = ...,
) -> "AsyncPipeline": ...


def pipeline(
    source: Any,
    *stages: Any,
    queue: Queue | AsyncQueue,
    name: str = "pipeline",
    only: Iterable[str] | None = None,
    trim: bool = True,
    poll: Duration = 1,
) -> "Pipeline | AsyncPipeline":
    """A pipeline over a source: functions, or what `stage` returns. Progress is kept in the queue's store.

    A stage's consumer is called `name.stage`. `only` names the stages that run in this process, by default
    all. `trim` removes the items from a log between two stages that all its readers have passed.
    """
    chosen = as_stages(stages)
    known = {one.name for one in chosen}
    here = known if only is None else set(only)
    if not here <= known:
        raise BadInput("only", min(here - known), needed=f"one of {', '.join(sorted(known))}")
    kind = AsyncPipeline if isinstance(queue, AsyncQueue) else Pipeline
    return kind(source, chosen, queue, name=name, only=here, trim=trim, poll=poll)


class Pipeline(BasePipeline[ConsumerGroup[Any]]):
    """Consumer groups in a row; made by `pipeline`. `groups` has those of this process, by stage."""

    make_group, make_progress, make_source = ConsumerGroup, Progress, UpTo
    make_event = threading.Event

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        super().__init__(*args, **options)

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        work = one.run if one.via is None else lambda job: self._through(one, job)
        if one.into is None:
            return work

        def push(job: IndexedJob[Any]) -> Any:
            result = work(job)
            if result is not LATER:
                items = items_of(one, result)
                one.into.append_many(items, keys_for(one, self.name, job, len(items)))
            return None if result is not LATER else LATER

        return push

    def _through(self, one: Stage, job: IndexedJob[Any]) -> Any:
        """Have a job of a queue do it; what that fails with is an error of this stage."""
        (handle,) = one.via.add_many([call_of(one, self.name, job)])
        stopping = self.groups[one.name].stopping
        while not stopping.is_set():
            try:
                return one.via.result(handle, wait=PATIENCE_S)
            except Timeout:
                continue
        # It goes on without us, and is found again by its key.
        return LATER

    def _advanced(self, call: OnAdvance | None, trimmed: Any) -> OnAdvance:
        def advanced(old: int, new: int) -> None:
            if call is not None:
                call(old, new)
            if trimmed is not None and is_time_to_trim(old, new):
                try:
                    trimmed.trim()
                except Unavailable:
                    pass  # the next time does it too
            self._moved.set()

        return advanced

    def start(self) -> None:
        """Begin, once, with the last stage: who is fed is ready before who feeds."""
        for group in reversed(self.groups.values()):
            group.start()

    def stop(self) -> None:
        """Start no more jobs in any stage, and wait until all running ones have returned."""
        for group in self.groups.values():
            group.stop(wait=False)
        for group in self.groups.values():
            group.stop()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every stage of this process has done all that there is; False when the time is up.

        Raises what stopped the pipeline.
        """
        until = None if timeout is None else monotonic_s() + timeout
        while not self._closed.is_set():
            self._moved.clear()
            # In order: what a stage hands on is there before its own progress says that it is done.
            if all(group.processed >= group.head() for group in self.groups.values()):
                return True
            if until is not None and monotonic_s() >= until:
                return False
            self._moved.wait(LOOK_S)
        self._closed.wait()
        return False

    def _group_closed(self) -> None:
        # One stage alone does not go on: what feeds it would, or what it feeds would wait.
        for group in self.groups.values():
            group.stop(wait=False)
        with self._lock:
            self.error = self._first_error()
        self._close_if_ended()

    def __enter__(self) -> "Pipeline":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self._closed.wait()


class AsyncPipeline(BasePipeline[AsyncConsumerGroup[Any]]):
    """Consumer groups in a row, for asyncio; see `Pipeline`."""

    make_group, make_progress, make_source = AsyncConsumerGroup, AsyncProgress, AsyncUpTo
    make_event = asyncio.Event

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        async def work(job: IndexedJob[Any]) -> Any:
            result = await (self._through(one, job) if one.via is not None else waited(one.run(job)))
            if one.into is not None and result is not LATER:
                items = items_of(one, result)
                await one.into.append_many(items, keys_for(one, self.name, job, len(items)))
            return result if result is LATER else None

        return work

    async def _through(self, one: Stage, job: IndexedJob[Any]) -> Any:
        (handle,) = await one.via.add_many([call_of(one, self.name, job)])
        while not self.groups[one.name].stopping.is_set():
            try:
                return await one.via.result(handle, wait=PATIENCE_S)
            except Timeout:
                continue
        return LATER

    def _advanced(self, call: OnAdvance | None, trimmed: Any) -> OnAdvance:
        async def advanced(old: int, new: int) -> None:
            if call is not None:
                await waited(call(old, new))
            if trimmed is not None and is_time_to_trim(old, new):
                try:
                    await trimmed.trim()
                except Unavailable:
                    pass  # the next time does it too
            self._moved.set()

        return advanced

    async def start(self) -> None:
        """Begin, once, with the last stage."""
        for group in reversed(self.groups.values()):
            await group.start()

    async def stop(self) -> None:
        """Start no more jobs in any stage, and wait until all running ones have returned."""
        for group in self.groups.values():
            group.ask_to_stop()
        for group in self.groups.values():
            await group.stop()

    async def drain(self) -> None:
        """Wait until every stage of this process has done all that there is, or raise what stopped it."""
        while not self._closed.is_set():
            self._moved.clear()
            for group in self.groups.values():
                if group.processed < await waited(group.source.head()):
                    break
            else:
                return
            try:
                await asyncio.wait_for(self._moved.wait(), 0.1)
            except TimeoutError:
                pass
        await self._closed

    def _group_closed(self) -> None:
        for group in self.groups.values():
            group.ask_to_stop()
        self.error = self._first_error()
        self._close_if_ended()

    async def __aenter__(self) -> "AsyncPipeline":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if kind is None:
            await self._closed
