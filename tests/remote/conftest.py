"""A gRPC server for each test that asks for one."""

from collections.abc import Iterator

import pytest

from holdfast.engine.store_connection import StoreConnection
from holdfast.store.memory.store import MemoryStore
from tests.remote.served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    """A server in front of a store in memory."""
    connection = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    made = Served(connection)
    yield made
    made.close()
    connection.close()
