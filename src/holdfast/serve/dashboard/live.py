"""Live pages: an event whenever what a page shows has changed, and the page is read again.

    GET /live                `changed`, when jobs have come, moved or ended, or a pause has come or gone
    GET /live?of=SECTION     and when something that this page lists was set, changed or removed
    GET /live?job=ID         `changed`, at each change of the job, until it has ended

All pages of one tenant share one read of the store a second, however many are open.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...core import queries as q
from ...core.access import confine
from ..http.events import Feeds, event_response, job_stream
from ..http.exchange import Exchange
from .layout import HEADERS
from .view import View, read_job_id

CHANGED = b"event: changed\ndata: {}\n\n"
# What a page lists besides jobs, by the name of its section.
LISTED: dict[str, Callable[..., q.Query]] = {"limits": q.ListLimits, "schedules": q.ListSchedules}
# A browser that lost its connection comes back after so long.
HELLO = b"retry: 3000\n\n"


class LivePages:
    """The events of one server."""

    def __init__(self, exchange: Exchange, readmit: Callable[[Request], Awaitable[None]]) -> None:
        self._exchange, self._feeds, self._readmit = exchange, Feeds(exchange, _shown_event), readmit

    async def stream(self, view: View) -> Response:
        """The events for one page."""
        if job := view.param("job"):
            of_job = confine(view.grant, q.GetJob(job_id=read_job_id(job)))
            await self._exchange.asking.ask_async(of_job)
            events = job_stream(self._exchange, of_job)
        else:
            asked: list[q.Query] = [q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None)]
            if (listed := LISTED.get(view.param("of"))) is not None:
                asked.append(listed(tenant=view.one_tenant))
            events = self._feeds.stream(*(confine(view.grant, one) for one in asked))
        return event_response(_changes(events), partial(self._readmit, view.request), headers=HEADERS)


def _shown_event(overview: q.Overview, *lists: Any) -> bytes:
    """A text that is another one whenever a page would be; a browser gets only that it has changed."""
    return msgspec.json.encode((overview.tasks, overview.pauses, lists), order="deterministic")


async def _changes(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """An event for each change; the first, which tells how things are, is none."""
    is_first = True
    yield HELLO
    async with aclosing(events):
        async for event in events:
            if event.startswith(b":"):
                yield event
            elif is_first:
                is_first = False
            else:
                yield CHANGED
