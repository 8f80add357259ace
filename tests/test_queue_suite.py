"""The queue suite: in full in memory and on SQLite, and on every store what differs between stores.

What the engine and the rules decide alone is the same on all of them: `test_model.py` holds random histories
of all commands on each store against those in memory, and `tests/store/test_suite.py` tests the contract that
the engine stands on. `make proof` runs more of the suite on each kind of store.
"""

import pkgutil
from collections import Counter
from importlib import import_module

import pytest

from tests import queue_suite
from tests.queue_suite import *  # noqa: F403
from tests.stores import ONE_OF_EACH, STORES, here_and_in_proof, opener

# The first two of them: memory, and SQLite.
IN_FULL = ONE_OF_EACH[:2]
# Files of the suite with conflicts and notifications, in which stores differ. `make proof` has them on shards
# of several kinds too.
ON_EVERY_STORE = {"functions", "races", "waiting"}
# And those that depend on order, locks, bounds and shards, for `make proof`.
IN_PROOF = {"basics", "claims", "durable", "families", "groups", "handlers", "history", "limits", "numbers"}
IN_PROOF |= {"tenants", "unique", "workers"}


def pytest_generate_tests(metafunc):
    """Run each test of the suite on the stores that its file asks for."""
    if "open_store" in metafunc.fixturenames:
        file = metafunc.function.__module__.rpartition(".")[2]
        metafunc.parametrize("open_store", stores_for(file), indirect=True)


def stores_for(file):
    """The kinds of stores that a file of the suite runs on."""
    if file in ON_EVERY_STORE:
        return here_and_in_proof(ONE_OF_EACH, STORES)
    return here_and_in_proof(IN_FULL, ONE_OF_EACH if file in IN_PROOF else [])


@pytest.fixture
def open_store(request, clock):
    """Opens the store under test, once for each queue."""
    return opener(request, clock)


def test_no_test_of_the_suite_hides_another():
    """They are gathered in one room, where each needs a name of its own."""
    files = [
        import_module(f"{queue_suite.__name__}.{file.name}")
        for file in pkgutil.iter_modules(queue_suite.__path__)
    ]
    names = [
        name
        for file in files
        for name, test in vars(file).items()
        if name.startswith("test_") and test.__module__ == file.__name__
    ]

    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert set(names) <= vars(queue_suite).keys()
    assert {file.__name__.rpartition(".")[2] for file in files} >= ON_EVERY_STORE | IN_PROOF
