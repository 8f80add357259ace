"""Queues in memory for tests, with a clock that tests move."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ..core.errors import BadInput
from ..engine.engine import Engine
from ..queue.base import BaseQueue
from ..queue.connect import shown_url
from ..queue.options import Moment
from ..queue.publishing import Publisher
from ..queue.queue import Queue
from .clock import Clock
from .transactions import maker_of

START = "2026-01-01T12:00:00Z"
# The clocks of test queues.
_clocks: WeakKeyDictionary[BaseQueue, Clock] = WeakKeyDictionary()


class ClockedQueue(Queue):
    """A queue in memory, with a `clock` that tests move."""

    clock: Clock


def queue(*, start: Moment = START, **options: Any) -> ClockedQueue:
    """Return a new queue in memory, with options of `holdfast.connect`. A `with` block closes it.

    Backoffs have no jitter: a second after the first error, then two, and so on.
    """
    clock = Clock(start)
    made = ClockedQueue(maker_of("memory://", clock), url="memory://", **options)
    made.clock = _clocks[made] = clock
    _steady(made)
    return made


@contextmanager
def in_memory(queue: BaseQueue, *, start: Moment = START) -> Iterator[Clock]:
    """Move a queue, such as that of your application, to memory until the block ends; yields its clock.

    Its tasks stay, with the schedules and limits that your modules have declared, and its own store is not
    changed. `connection=` takes connections to any database: the jobs come with the commit.
    """
    if not isinstance(queue, BaseQueue):
        raise BadInput("queue", type(queue).__name__, needed="one of holdfast.connect or connect_async")
    clock = Clock(start)
    with placed(queue, "memory://", clock):
        _steady(queue)
        yield clock


@contextmanager
def placed(queue: BaseQueue, url: str, clock: Clock) -> Iterator[None]:
    """Have a queue use another store, with a clock that tests move, until the block ends."""
    kept = queue._make_store, queue._session, queue._closed, queue.publisher
    kept_clock = _clocks.get(queue)
    make_store = maker_of(url, clock)
    queue._make_store, queue._session, queue._closed, queue.publisher = make_store, None, False, Publisher()
    _clocks[queue] = clock
    try:
        yield
    finally:
        del _clocks[queue]
        if kept_clock is not None:
            _clocks[queue] = kept_clock
        session = queue._detach_session()
        queue._make_store, queue._session, queue._closed, queue.publisher = kept
        if session is not None:
            session.close()


def clock_of(queue: BaseQueue) -> Clock:
    """The clock of a test queue."""
    clock = _clocks.get(queue)
    if clock is None:
        needed = "one whose clock moves: testing.queue(), or testing.in_memory(queue)"
        raise BadInput("queue", shown_url(queue.url), needed=needed)
    return clock


def _steady(queue: BaseQueue) -> None:
    engine = queue.connection.engine
    assert isinstance(engine, Engine)
    engine._rng = lambda: 0.5
