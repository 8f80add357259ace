"""The queue suite over gRPC: in full in front of SQLite, and in front of PostgreSQL what depends on the store."""

import pytest

from tests.queue_suite import *  # noqa: F403
from tests.remote.served import ServedMaker
from tests.stores import opener
from tests.test_queue_suite import ON_EVERY_STORE, ON_ONE_OF_EACH


def pytest_generate_tests(metafunc):
    """Run each test of the suite in front of the stores that its file asks for."""
    if "open_store" in metafunc.fixturenames:
        file = metafunc.function.__module__.rpartition(".")[2]
        kinds = ["stdlib", "postgres"] if file in ON_EVERY_STORE | ON_ONE_OF_EACH else ["stdlib"]
        metafunc.parametrize("open_store", kinds, indirect=True)


@pytest.fixture
def open_store(request, clock):
    """Opens a server in front of the store under test, one for each queue."""
    return ServedMaker(opener(request, clock))
