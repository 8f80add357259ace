"""The queue suite, on every store that there is."""

import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.doubles import SharedMemory
from holdfast.testing.queue_suite import *  # noqa: F403


@pytest.fixture(params=["memory", "apsw", "stdlib"])
def open_store(request, clock, tmp_path):
    """Opens the store under test, once for each queue."""
    if request.param == "memory":
        return SharedMemory(clock).open
    return lambda: SqliteStore(tmp_path / "jobs.db", driver=request.param, clock=clock)
