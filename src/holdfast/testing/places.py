"""Where a test's jobs are kept: in memory, under a clock that moves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import BadInput
from ..queue.base import BaseQueue, Maker
from ..queue.connect import shown_url, store_maker
from ..queue.options import Moment
from ..queue.queue import Queue
from .clock import Clock

START = "2026-01-01T12:00:00Z"


class ClockedQueue(Queue):
    """A queue in memory, whose `clock` moves when told."""

    clock: Clock


def queue(*, start: Moment = START, **options: Any) -> ClockedQueue:
    """A fresh queue in memory; options as of `holdfast.connect`. A `with` block closes it.

    Waits before another run are not spread: after the first error a second, then two, and so on.
    """
    clock = Clock(start)
    made = ClockedQueue(store_maker("memory://", clock=clock), url="memory://", **options)
    made.clock = clock
    _steady(made)
    return made


@contextmanager
def in_memory(queue: BaseQueue, *, start: Moment = START) -> Iterator[Clock]:
    """Put a queue, such as your application's, into memory until the block ends; the clock that it goes by.

    Its tasks stay, and what it has in its own store is not touched. Schedules are kept in the store: those
    that were made when your application was imported are not in memory.
    """
    clock = Clock(start)
    with placed(queue, store_maker("memory://", clock=clock)):
        _steady(queue)
        yield clock


@contextmanager
def placed(queue: BaseQueue, make_store: Maker) -> Iterator[None]:
    """Have a queue use another store until the block ends."""
    kept = queue._make_store, queue._session, queue._closed
    queue._make_store, queue._session, queue._closed = make_store, None, False
    try:
        yield
    finally:
        session = queue._detach_session()
        queue._make_store, queue._session, queue._closed = kept
        if session is not None:
            session.close()


def clock_of(queue: BaseQueue) -> Clock:
    """The clock of a queue that was made for tests."""
    clock = getattr(queue.connection.engine.store, "_clock", None)
    if not isinstance(clock, Clock):
        needed = "one whose clock moves: testing.queue(), or testing.in_memory(queue)"
        raise BadInput("queue", shown_url(queue.url), needed=needed)
    return clock


def _steady(queue: BaseQueue) -> None:
    queue.connection.engine._rng = lambda: 0.5
