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


@pytest.fixture  # type: ignore[no-redef]
def open_store(request):
    """Opens a server in front of a file, one for each queue."""
    return ServedMaker(opener(request, system_clock, "sqlite"))
