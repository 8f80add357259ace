"""Every store keeps the promises of the contract."""

import pytest

from holdfast.testing.clock import MovedClock
from holdfast.testing.store_suite import *  # noqa: F403
from holdfast.testing.stores.making import NOW_MS
from tests.stores import EVERY, opener


@pytest.fixture
def clock():
    """A clock that stands still until it is moved."""
    return MovedClock(NOW_MS)


@pytest.fixture(params=EVERY)
def store(request, clock):
    """A new store of each kind."""
    made = opener(request, clock)()
    yield made
    made.close()
