"""The queue suite over gRPC, in front of SQLite and PostgreSQL: in part here, and in full by `make proof`.

What the rules decide is the same whoever asks; `tests/proto` tests how each record is carried.
"""

import pytest

from tests.queue_suite import *  # noqa: F403
from tests.remote.served import ServedMaker
from tests.stores import opener

FORKED = "the server is in the same process here; test_forks.py has it in one of its own"
# The file of the suite in which a server in front of PostgreSQL might differ from one in front of SQLite: two
# servers on one store notify each other.
BEFORE_POSTGRES = {"waiting"}
# Files in which gRPC differs from a store in the same process: common verbs, asyncio, and what waits.
OVER_GRPC = {"aio", "basics", "durable", "functions", "waiting"}
# What of the suite cannot hold over gRPC, and why; test_door.py and test_access.py have the other side of it.
LEFT_OUT = {
    "test_no_id_is_wasted_when_the_right_to_make_ids_is_renewed": "a client takes ids by the dozen",
    "test_a_token_is_kept_until_it_is_revoked": "no door tells the hash of a token: FindToken is refused",
    "test_a_queue_works_after_a_fork": FORKED,
    "test_a_queue_that_waits_may_be_forked": FORKED,
}
for name in LEFT_OUT:
    # A `KeyError` where the suite has no such test any more.
    del globals()[name]


def pytest_generate_tests(metafunc):
    """Run each test of the suite in front of the stores that its file asks for."""
    if "open_store" in metafunc.fixturenames:
        file = metafunc.function.__module__.rpartition(".")[2]
        parts = {"sqlite": file in OVER_GRPC, "postgres": file in BEFORE_POSTGRES}
        kinds = [pytest.param(kind, marks=() if here else pytest.mark.proof) for kind, here in parts.items()]
        metafunc.parametrize("open_store", kinds, indirect=True)


@pytest.fixture
def open_store(request, clock):
    """Opens a server in front of the store under test, one for each queue."""
    return ServedMaker(opener(request, clock))
