"""The queue suite over gRPC: in full in front of SQLite, and in part in front of PostgreSQL."""

import pytest

from tests.queue_suite import *  # noqa: F403
from tests.remote.served import ServedMaker
from tests.stores import opener
from tests.test_queue_suite import ON_EVERY_STORE, ON_ONE_OF_EACH

SEEN = "a server does not see which workers are there: they say it every few seconds"
FORKED = "the server is in the same process here; test_forks.py has it in one of its own"
LEFT_OUT = {
    "test_no_id_is_wasted_when_the_right_to_make_ids_is_renewed": "a client takes ids by the dozen",
    "test_a_token_is_kept_until_it_is_revoked": "no door tells the hash of a token",
    "test_why_tells_how_many_live_workers_know_the_task": SEEN,
    "test_what_a_worker_says_again_replaces_what_it_said": SEEN,
    "test_a_worker_whose_moment_has_passed_is_gone": SEEN,
    "test_a_worker_with_too_much_to_say_is_refused": SEEN,
    "test_a_queue_works_after_a_fork": FORKED,
    "test_a_queue_that_waits_may_be_forked": FORKED,
}
for name in LEFT_OUT:
    del globals()[name]


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
