"""An HTTP server for each test, in memory unless a test asks for more."""

import pytest

from holdfast.store.common.clock import system_clock
from holdfast.store.memory.store import MemoryStore
from tests.http.served import Served
from tests.stores import opener


@pytest.fixture
def serve():
    """Servers, closed when the test ends."""
    made = []

    def make(open_store=None, **options):
        made.append(Served(open_store or MemoryStore, **options))
        return made[-1]

    yield make
    for served in made:
        served.close()


# What depends on the store runs on one of each kind: order, waiting, once only, many at once.
KINDS = ["memory", "sqlite", "postgres", "redis"]


def pytest_generate_tests(metafunc):
    """Run tests that are marked `stores` on each kind of store."""
    if metafunc.definition.get_closest_marker("stores"):
        metafunc.parametrize("served", KINDS, indirect=True)


@pytest.fixture
def served(serve, request):
    """A server on a fresh store, in memory unless the test runs on several."""
    if not hasattr(request, "param"):
        yield serve()
        return
    made = Served(opener(request, system_clock))
    yield made
    # Before its store's own fixtures end.
    made.close()


@pytest.fixture
def client(served):
    """A client of it."""
    with served.client() as client:
        yield client
