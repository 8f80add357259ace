"""Two empty stores, of every kind, and what tests of moves do with them."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from holdfast.engine import engine as engine_module
from holdfast.testing.clock import MovedClock
from holdfast.testing.queue_suite.fixtures import START_MS
from tests.moving.filled import Two
from tests.stores import STORES, opener

T = TypeVar("T")
ALONE = [kind for kind in STORES if kind not in ("stdlib", "sharded", "mixed")]
PAIRS = [(a, b) for a in ALONE for b in ALONE if a != b]


@pytest.fixture(params=PAIRS, ids="-".join)
def two(request: pytest.FixtureRequest) -> Two:
    """Each pair of stores."""
    clock = MovedClock(START_MS)
    first, second = request.param
    return Two(opener(request, clock, first), opener(request, clock, second), clock)


@pytest.fixture
def files(request: pytest.FixtureRequest) -> Two:
    """Two files, for what is the same on all stores."""
    clock = MovedClock(START_MS)
    return Two(opener(request, clock, "apsw"), opener(request, clock, "stdlib"), clock)


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """Have what is opened closed when the test ends."""
    made: list[Any] = []

    def note(thing: T) -> T:
        made.append(thing)
        return thing

    yield note
    for thing in reversed(made):
        thing.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that stands still is not waited for."""
    monkeypatch.setattr(engine_module, "STOPPED_S", 0.0)
