"""What the tests of the Redis store share."""

import pytest

import holdfast
from holdfast.store.redis.connection import RedisConnection
from holdfast.store.redis.store import RedisStore
from tests.programs import or_skip
from tests.queue_suite.tools import complaints, upkeep
from tests.redis_servers import RedisServer, redis_or_skip


@pytest.fixture(scope="session")
def redis_server():
    """A Redis for these tests in this process: they end connections, drop scripts and count commands."""
    server = or_skip(lambda: RedisServer(shared=True), what="ON REDIS")
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def store(redis_url):
    """An empty store."""
    store = RedisStore(redis_url)
    yield store
    store.close()


@pytest.fixture
def queue(redis_url):
    """A queue on an empty store, in which all is right at the end."""
    with holdfast.connect(redis_url) as queue:
        queue.counts()
        yield queue
        upkeep(queue)
        assert complaints(queue) == []


@pytest.fixture
def server(request):
    """A server of the test's own, to be killed and started; settings by the mark of a parameter."""
    server = redis_or_skip(**getattr(request, "param", {}))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def messages(monkeypatch):
    """The messages that this process has sent: of each the commands, and the replies to them."""
    sent = []
    exchange = RedisConnection.exchange

    def noting(connection, commands):
        replies = exchange(connection, commands)
        sent.append((commands, replies))
        return replies

    monkeypatch.setattr(RedisConnection, "exchange", noting)
    return sent
