"""Every store keeps the promises of the contract."""

import pytest

from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.store_suite import *  # noqa: F403
from holdfast.testing.stores.making import NOW_MS


@pytest.fixture
def clock():
    """A clock that stands still until it is moved."""
    return MovedClock(NOW_MS)


@pytest.fixture(params=["memory", "apsw", "stdlib", "postgres"])
def store(request, clock, tmp_path):
    """A new store of each kind."""
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock)
    elif request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("postgres_url"), clock=clock)
    else:
        made = SqliteStore(tmp_path / "jobs.db", driver=request.param, clock=clock)
    yield made
    made.close()
