"""The fixtures that the suite asks for, all made of one that you give: `open_store`.

`open_store` is a function that opens the store under test by `clock`, each time as another process
would: what one writes the others see.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from holdfast.core.errors import Closed
from holdfast.core.units import moment_ms
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.queue import Queue
from holdfast.store.contract import Store
from holdfast.testing.clock import MovedClock

from .hands import HANDS, Hand
from .tools import complaints

# One o'clock, as in the documents' example of repeats.
START_MS = moment_ms("2026-11-15T13:00:00Z", name="start")

OpenStore = Callable[[], Store]


class MakeQueue(Protocol):
    """Another queue on the store under test; options as of `holdfast.connect`."""

    def __call__(self, **options: Any) -> Queue:
        """Make one; it is closed when the test ends."""


class MakeAsyncQueue(Protocol):
    """A queue for asyncio on the store under test; whoever makes it closes it."""

    def __call__(self, **options: Any) -> AsyncQueue:
        """Make one."""


@pytest.fixture
def clock() -> MovedClock:
    """The time, which stands still at one o'clock until it is moved."""
    return MovedClock(START_MS)


@pytest.fixture
def make_queue(open_store: OpenStore) -> Iterator[MakeQueue]:
    """Queues on one fresh store, each like a process of its own.

    When the test ends what holds at every moment is looked at, and they are closed.
    """
    made: list[Queue] = []

    def make(**options: Any) -> Queue:
        made.append(Queue(open_store, url="the store under test", **options))
        return made[-1]

    yield make
    found = _complaints(made)
    for queue in made:
        queue.close()
    assert found == []


def _complaints(made: list[Queue]) -> list[str]:
    """What is not as it must be, as far as a queue is still open to ask."""
    for queue in made:
        try:
            return complaints(queue)
        except Closed:
            continue
    return []


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    """A queue on a fresh store."""
    return make_queue()


@pytest.fixture
def make_async_queue(open_store: OpenStore) -> MakeAsyncQueue:
    """Queues for asyncio on the store of `queue`."""

    def make(**options: Any) -> AsyncQueue:
        return AsyncQueue(open_store, url="the store under test", **options)

    return make


@pytest.fixture(params=HANDS, ids=lambda kind: kind.name)
def hand(request: pytest.FixtureRequest, queue: Queue) -> Hand:
    """Each way to make and answer jobs: by the queue, and by the job-command port."""
    made: Hand = request.param(queue)
    return made
