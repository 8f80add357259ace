"""Indexed consumers, logs and pipelines over gRPC: their own tests, in front of SQLite."""

import pytest

from holdfast.store.common.clock import system_clock
from tests.indexed.conftest import *  # noqa: F403
from tests.indexed.test_consumer import *  # noqa: F403
from tests.indexed.test_group import *  # noqa: F403
from tests.indexed.test_log import *  # noqa: F403
from tests.indexed.test_pipeline import *  # noqa: F403
from tests.indexed.test_progress import *  # noqa: F403
from tests.indexed.test_waiting import *  # noqa: F403
from tests.remote.served import ServedMaker
from tests.stores import opener

# What stands on consumers and logs, and asks a server for nothing else.
IN_PROOF = {"test_group", "test_pipeline"}


def pytest_generate_tests(metafunc):  # type: ignore[no-redef]
    """Run each test in front of SQLite, some of them by `make proof` alone."""
    if "open_store" in metafunc.fixturenames:
        file = metafunc.function.__module__.rpartition(".")[2]
        marks = pytest.mark.proof if file in IN_PROOF else ()
        metafunc.parametrize("open_store", [pytest.param("sqlite", marks=marks)], indirect=True)


@pytest.fixture  # type: ignore[no-redef]
def open_store(request):
    """Opens a server in front of a file, one for each queue."""
    return ServedMaker(opener(request, system_clock))
