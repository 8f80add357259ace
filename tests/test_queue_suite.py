"""The queue suite, on every store that there is."""

import pkgutil
from collections import Counter
from importlib import import_module

import pytest

from holdfast.testing import queue_suite
from holdfast.testing.queue_suite import *  # noqa: F403
from tests.stores import STORES, opener


@pytest.fixture(params=STORES)
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
