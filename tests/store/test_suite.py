"""Every store keeps the promises of the contract."""

from contextlib import closing

import pytest

from holdfast.testing.clock import MovedClock
from holdfast.testing.store_suite import *  # noqa: F403
from holdfast.testing.stores.making import NOW_MS
from tests.stores import EVERY, SHARDED, opener


@pytest.fixture
def clock():
    """A clock that stands still until it is moved."""
    return MovedClock(NOW_MS)


@pytest.fixture(params=[kind for kind in EVERY if kind not in SHARDED])
def open_store(request, clock):
    """What opens a new store of each kind, the same one each time."""
    return opener(request, clock)


@pytest.fixture
def store(open_store):
    """A new store of each kind."""
    with closing(open_store()) as made:
        yield made


@pytest.fixture
def another(open_store, store):
    """The same one, opened once more."""
    with closing(open_store()) as made:
        yield made
