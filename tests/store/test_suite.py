"""Every store keeps the promises of the contract."""

from contextlib import closing

import pytest

from holdfast.testing.clock import MovedClock
from holdfast.testing.store_suite import *  # noqa: F403
from holdfast.testing.stores.making import NOW_MS
from tests.stores import EVERY, ONE_OF_EACH, SHARDED, here_and_in_proof, opener

UNSHARDED = [kind for kind in EVERY if kind not in SHARDED]
# The other library, and the cluster, have the same code as one of these: `make proof` tests them.
HERE = [kind for kind in UNSHARDED if kind in ONE_OF_EACH]


@pytest.fixture
def clock():
    """A clock that stands still until it is moved."""
    return MovedClock(NOW_MS)


@pytest.fixture(params=here_and_in_proof(HERE, UNSHARDED))
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
