"""A job-command port for each test, by a clock that stands still until it is moved.

On every store what waits, races and answers many at once; in memory and on SQLite what the port alone reads,
refuses and translates.
"""

import pytest

from holdfast.core.units import moment_ms
from holdfast.testing.clock import MovedClock
from tests.serve.clients import Served
from tests.stores import ONE_OF_EACH, here_and_in_proof, opener

# One o'clock, as in the documents' example of repeats.
START_MS = moment_ms("2026-11-15T13:00:00Z", name="start")


@pytest.fixture
def clock():
    """The time of the store."""
    return MovedClock(START_MS)


# Files about requests and replies: what becomes of them is decided by the port and the rules. The others run
# on three kinds of stores, and by `make proof` on each: the suite of queues tests what differs.
OF_THE_PORT = {"test_answering", "test_creating", "test_getting", "test_slow", "test_states"}


def pytest_generate_tests(metafunc):
    """Run each test on the stores that its file asks for."""
    if "open_store" in metafunc.fixturenames:
        file = metafunc.module.__name__.rpartition(".")[2]
        here = ONE_OF_EACH[: 2 if file in OF_THE_PORT else 3]
        rest = () if file in OF_THE_PORT else ONE_OF_EACH
        metafunc.parametrize("open_store", here_and_in_proof(here, rest), indirect=True)


@pytest.fixture
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
