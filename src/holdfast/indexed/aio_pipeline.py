"""Pipelines for asyncio: the same stages over groups for asyncio."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..core.errors import Timeout, Unavailable
from ..queue.options import Duration
from .aio import waited
from .aio_group import AsyncConsumerGroup
from .base import OnAdvance
from .group import LATER
from .progress import AsyncProgress
from .signals import Signal
from .source import AsyncUpTo, IndexedJob
from .stages import PATIENCE_S, Stage, call_of, is_time_to_trim, items_of, keys_for


class AsyncPipeline:
    """Consumer groups in a row, for asyncio; see `Pipeline`."""

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
        self.groups: dict[str, AsyncConsumerGroup[Any]] = {}
        self.error: BaseException | None = None
        self._ready, self._closed = Signal(), Signal()
        self._moved = asyncio.Event()
        feed: Any = None
        for one in stages:
            if one.name in only:
                self.groups[one.name] = self._group(source, one, feed if trim else None)
            feed = one.into
            source = feed if feed is not None else AsyncUpTo(source, self._progress(one).processed)
        for group in self.groups.values():
            group.ready().then(self._group_ready)
            group.closed().then(self._group_closed)

    def _progress(self, one: Stage) -> AsyncProgress:
        return AsyncProgress(self.queue, f"{self.name}.{one.name}", one.start)

    def _group(self, source: Any, one: Stage, trimmed: Any) -> AsyncConsumerGroup[Any]:
        return AsyncConsumerGroup(
            source,
            self._progress(one),
            self._worker(one),
            max_processing=one.max_processing,
            max_ahead=one.max_ahead,
            on_advance=self._advanced(one.on_advance, trimmed),
            restart=one.restart,
            poll=self.poll,
        )

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        async def work(job: IndexedJob[Any]) -> Any:
            result = await (self._through(one, job) if one.via is not None else waited(one.run(job)))
            if one.into is not None and result is not LATER:
                items = items_of(one, result)
                await one.into.append_many(items, keys_for(one, job, len(items)))
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
        """Hand out no more anywhere, and wait until all that runs has returned."""
        for group in self.groups.values():
            group.ask_to_stop()
        for group in self.groups.values():
            await group.stop()

    def check(self) -> None:
        """There may be new work at the source."""
        for group in self.groups.values():
            group.check()

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

    def ready(self) -> Signal:
        """Comes when all stages have started."""
        return self._ready

    def closed(self) -> Signal:
        """Comes when all stages have ended, with the first error, if any."""
        return self._closed

    def _group_ready(self) -> None:
        if all(group.ready().is_set() for group in self.groups.values()):
            self._ready.set()

    def _group_closed(self) -> None:
        for group in self.groups.values():
            group.ask_to_stop()
        errors = [group.closed().error for group in self.groups.values()]
        self.error = self.error or next((error for error in errors if error is not None), None)
        self._moved.set()
        if all(group.closed().is_set() for group in self.groups.values()):
            self._closed.set(self.error)

    async def __aenter__(self) -> "AsyncPipeline":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if kind is None:
            await self._closed
