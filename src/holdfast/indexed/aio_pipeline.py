"""Pipelines for asyncio: the same stages over groups for asyncio."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..core.errors import Timeout, Unavailable
from .aio import waited
from .aio_group import AsyncConsumerGroup
from .base import OnAdvance
from .group import LATER
from .pipeline_base import BasePipeline
from .progress import AsyncProgress
from .source import AsyncUpTo, IndexedJob
from .stages import PATIENCE_S, Stage, call_of, is_time_to_trim, items_of, keys_for


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
