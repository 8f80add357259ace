"""A job-command port for each test, on every store, by a clock that stands still until it is moved."""

import pytest

from holdfast.core.durations import moment_ms
from holdfast.testing.clock import MovedClock
from tests.serve.clients import Served
from tests.stores import ONE_OF_EACH, opener

# One o'clock, as in the documents' example of repeats.
START_MS = moment_ms("2026-11-15T13:00:00Z", name="start")


@pytest.fixture
def clock():
    """The time of the store."""
    return MovedClock(START_MS)


@pytest.fixture(params=ONE_OF_EACH)
def open_store(request, clock):
    """Opens the store under test, each time as another process would."""
    return opener(request, clock)


@pytest.fixture
def serve(open_store):
    """Servers on the store, closed when the test ends."""
    made = []

    def make(**options):
        made.append(Served(open_store, **options))
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
