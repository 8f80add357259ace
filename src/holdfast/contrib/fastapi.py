"""Holdfast for FastAPI and Starlette: a queue for as long as the application runs. See docs/fastapi.md.

app = FastAPI(lifespan=lifespan(queue))               opens the store at the start, closes it at the end
app = FastAPI(lifespan=lifespan(queue, threads=2))    and runs its jobs, for development
queue: Annotated[Queue, Depends(get_queue)]           the queue in an endpoint, which tests may replace
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from starlette.requests import HTTPConnection

from ..core.checks import check_whole
from ..core.errors import BadInput
from ..queue.aio import AsyncQueue
from ..queue.base import BaseQueue
from ..queue.queue import Queue
from ..work.worker import MAX_THREADS, working

# What `lifespan` calls the queue in the state of requests.
STATE = "holdfast_queue"


def lifespan(
    queue: Queue | AsyncQueue, *, threads: int = 0
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """A lifespan for FastAPI and Starlette, or to be entered in your own, whose state has to have this one.

    The store is opened before the first request, unless it is open, and then closed after the last. With
    `threads` the jobs of the queue's tasks run in this process, where a handler may hold up the application:
    for development.
    """
    if not isinstance(queue, Queue | AsyncQueue):
        raise BadInput("queue", type(queue).__name__, needed="one of holdfast.connect or connect_async")
    check_whole("threads", threads, 0, MAX_THREADS)

    @asynccontextmanager
    async def run(_app: Any) -> AsyncIterator[dict[str, Any]]:
        is_ours = queue._session is None
        try:
            # Creates the tables, too: an add inside a transaction cannot.
            await (asyncio.to_thread(queue.counts) if isinstance(queue, Queue) else queue.counts())
            async with working(queue, threads=threads) if threads else nullcontext():
                yield {STATE: queue}
        finally:
            if is_ours:
                await asyncio.to_thread(_close, queue)

    return run


def _close(queue: BaseQueue) -> None:
    """Close the store of a queue; it is opened again if the queue is used again, such as by another test."""
    session = queue._detach_session()
    if session is not None:
        session.close()
    queue._closed = False


def get_queue(connection: HTTPConnection) -> Any:
    """The queue of the application, for `Depends` of FastAPI; in Starlette call it with the request."""
    queue = getattr(connection.state, STATE, None)
    if queue is None:
        raise RuntimeError("there is no queue: give the application lifespan=lifespan(queue)")
    return queue
