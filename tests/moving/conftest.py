"""Two empty stores, of every kind, and what tests of moves do with them."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.engine import sysid
from holdfast.store.contract import AnyStore
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import MovedClock
from tests.moving.filled import Two
from tests.queue_suite.fixtures import START_MS
from tests.stores import STORES, opener

T = TypeVar("T")
UNSHARDED = [kind for kind in STORES if kind not in ("sharded", "mixed")]
# To shards, from shards, and from so many to others; by name, or how many files.
SPREAD = [
    ("sqlite", "4"),
    ("4", "2"),
    ("4", "sqlite"),
    ("2", "mixed"),
    ("postgres", "8"),
    ("mixed", "redis"),
    ("redis", "2"),
]
# What is read does not depend on where it is written: each kind is once the source and once the target.
PAIRS = list(pairwise([*UNSHARDED, UNSHARDED[0]]))
# What is there afterwards is tried on all pairs of single stores, and from and to shards; the rest of a move
# is the same code on all of them. `make proof` tests every pair.
ON_EVERY_PAIR = {"test_everything_is_there_as_it_was"}
EVERY_PAIR, FEW_PAIRS = [*PAIRS, *SPREAD[:2]], [("sqlite", "postgres"), ("4", "2")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the pairs of stores that it needs, unless it says which."""
    own = any(mark.args[0] == "two" for mark in metafunc.definition.iter_markers("parametrize"))
    if "two" in metafunc.fixturenames and not own:
        here = EVERY_PAIR if metafunc.definition.name in ON_EVERY_PAIR else FEW_PAIRS
        proof = [pair for pair in [*PAIRS, *SPREAD] if pair not in here]
        pairs = [*here, *(pytest.param(pair, marks=pytest.mark.proof) for pair in proof)]
        metafunc.parametrize("two", pairs, indirect=True, ids="-".join)


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Two:
    """A pair of stores."""
    clock = MovedClock(START_MS)
    first, second = (_opener(request, clock, kind) for kind in request.param)
    return Two(first, second, clock)


def _opener(request: pytest.FixtureRequest, clock: MovedClock, kind: str) -> Callable[[], AnyStore]:
    if not kind.isdecimal():
        return opener(request, clock, kind)
    return shards(request.getfixturevalue("tmp_path") / f"of{kind}", int(kind), clock)


def shards(folder: Path, count: int, clock: MovedClock) -> Callable[[], AnyStore]:
    """So many files as one store."""
    folder.mkdir()

    def file(at: int) -> Opener:
        return Opener(f"{at}", lambda: SqliteStore(folder / f"{at}.db", clock=clock))

    return lambda: ShardedStore([file(at) for at in range(count)])


@pytest.fixture
def files(tmp_path: Path) -> Two:
    """Two files, for what is the same on all stores."""
    clock = MovedClock(START_MS)
    first, second = (partial(SqliteStore, tmp_path / name, clock=clock) for name in ("first.db", "second.db"))
    return Two(first, second, clock)


@pytest.fixture(params=["alone", "4-2"])
def some(request: pytest.FixtureRequest, files: Two, tmp_path: Path) -> Two:
    """Two files, or four and two, for what is the same on all stores but for how many there are."""
    if request.param == "alone":
        return files
    clock = MovedClock(START_MS)
    return Two(shards(tmp_path / "of4", 4, clock), shards(tmp_path / "of2", 2, clock), clock)


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
    monkeypatch.setattr(sysid, "STOPPED_S", 0.0)
