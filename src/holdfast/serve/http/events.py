"""Server-sent events: what changes, as it changes.

    GET /v1/events                `counts`, whenever jobs of any task have come, moved or ended
    GET /v1/jobs/{job_id}/events  `job`, the record at each change, until it has ended

The streams of one tenant share one look at the store a second, however many jobs there are.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...core import queries as q
from ...core.access import Grant, confine
from ...core.errors import HoldfastError, NotFound
from ...core.job import Job, Place
from .exchange import EVENTS, Exchange
from .forms import form_of
from .problems import problem_of
from .values import read_id

LOOK_S = 1.0
# A line that says nothing, so that proxies and the server notice clients that are gone.
HEARTBEAT_S = 15.0
NO_CACHE = {"Cache-Control": "no-cache"}


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def event_response(
    events: AsyncGenerator[bytes, None],
    readmit: Callable[[], Awaitable[None]],
    *,
    headers: dict[str, str] = NO_CACHE,
) -> StreamingResponse:
    """A response of events, as long as the client's token holds: `readmit` raises when it does not."""

    async def while_admitted() -> AsyncIterator[bytes]:
        async with aclosing(events):
            async for one in events:
                try:
                    await readmit()
                except HoldfastError as error:
                    yield _event("problem", problem_of(error))
                    return
                yield one

    return StreamingResponse(while_admitted(), headers=headers, media_type=EVENTS)


class Feeds:
    """The latest replies to queries that have listeners; `write` makes an event of the replies."""

    def __init__(self, exchange: Exchange, write: Callable[..., bytes] | None = None) -> None:
        self._exchange, self._write = exchange, write or _counts_event
        self._feeds: dict[tuple[q.Query, ...], _Feed] = {}

    async def stream(self, *asked: q.Query) -> AsyncGenerator[bytes, None]:
        """The event of the replies, and again whenever it has changed."""
        feed = self._feeds.get(asked)
        if feed is None:
            feed = self._feeds[asked] = _Feed(self._exchange, asked, self._write)
        feed.listeners += 1
        try:
            seen = b""
            while not self._exchange.draining.is_set():
                found = await feed.after(seen)
                if found is None:
                    yield b":\n\n"
                    continue
                seen = found
                yield found
        finally:
            feed.listeners -= 1
            if not feed.listeners:
                feed.stop()
                self._feeds.pop(asked, None)


def _counts_event(overview: q.Overview) -> bytes:
    return _event("counts", msgspec.json.encode({"tasks": overview.tasks}, order="deterministic"))


class _Feed:
    """Polls the store while there are listeners."""

    def __init__(self, exchange: Exchange, asked: tuple[q.Query, ...], write: Callable[..., bytes]) -> None:
        self.listeners = 0
        self._exchange, self._asked, self._write = exchange, asked, write
        self._latest, self._changed = b"", asyncio.Condition()
        self._task = asyncio.create_task(self._look())

    async def after(self, seen: bytes) -> bytes | None:
        """The next event that is another than the one seen; None: there was none for a while."""
        async with self._changed:
            try:
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._latest != seen or self._exchange.draining.is_set()),
                    HEARTBEAT_S,
                )
            except TimeoutError:
                return None
        return self._latest if self._latest != seen else None

    def stop(self) -> None:
        """There are no more listeners."""
        self._task.cancel()

    async def _look(self) -> None:
        while True:
            try:
                replies = [await self._exchange.asking.ask_async(one) for one in self._asked]
                latest = self._write(*replies)
            except HoldfastError as error:
                latest = _event("problem", problem_of(error))
            async with self._changed:
                self._latest = latest
                self._changed.notify_all()
            if self._exchange.draining.is_set():
                return
            await _pause(self._exchange, LOOK_S)


async def _pause(exchange: Exchange, seconds: float) -> None:
    """Wait, but not while the server closes."""
    try:
        await asyncio.wait_for(exchange.draining.wait(), seconds)
    except TimeoutError:
        return


async def job_events(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """A job at each change, until it has ended or is gone."""
    asked = confine(grant, q.GetJob(job_id=read_id(request.path_params["job_id"])))
    # Before the stream begins: an unknown job is a problem, not an event.
    await exchange.asking.ask_async(asked)
    return event_response(job_stream(exchange, asked), partial(exchange.readmit, request))


async def job_stream(exchange: Exchange, asked: q.GetJob) -> AsyncGenerator[bytes, None]:
    """A job at each change, until it has ended or is gone."""
    write: Any = form_of(Job).write
    version, silent_s = 0, 0.0
    while not exchange.draining.is_set():
        try:
            job = await exchange.asking.ask_async(asked)
        except NotFound:
            yield _event("gone", b"{}")
            return
        except HoldfastError as error:
            yield _event("problem", problem_of(error))
            return
        if job.version != version:
            version, silent_s = job.version, 0.0
            yield _event("job", msgspec.json.encode(write(job)))
        elif silent_s >= HEARTBEAT_S:
            silent_s = 0.0
            yield b":\n\n"
        if job.place is Place.DONE:
            return
        silent_s += LOOK_S
        await _pause(exchange, LOOK_S)
