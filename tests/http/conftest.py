"""An HTTP server for each test, in memory unless a test asks for more."""

import pytest

from holdfast.store.memory.store import MemoryStore
from tests.http.served import Served


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


@pytest.fixture
def served(serve):
    """A server on a fresh store."""
    return serve()


@pytest.fixture
def client(served):
    """A client of it."""
    with served.client() as client:
        yield client
