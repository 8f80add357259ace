"""The queue suite, on every store that there is."""

import pkgutil
from collections import Counter
from importlib import import_module

import pytest

from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import queue_suite
from holdfast.testing.doubles import SharedMemory
from holdfast.testing.queue_suite import *  # noqa: F403


@pytest.fixture(params=["memory", "apsw", "stdlib", "postgres"])
def open_store(request, clock, tmp_path):
    """Opens the store under test, once for each queue."""
    if request.param == "memory":
        return SharedMemory(clock).open
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return lambda: PostgresStore(url, clock=clock)
    return lambda: SqliteStore(tmp_path / "jobs.db", driver=request.param, clock=clock)


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
