"""What the tests of the PostgreSQL store share."""

import threading

import pytest

import holdfast
from holdfast.store.postgres.connection import OwnConnection
from holdfast.store.postgres.store import PostgresStore
from tests.queue_suite.tools import complaints, upkeep
from tests.servers import postgres_or_skip


class Messages:
    """How many messages a thread has sent, and waited for the answer of."""

    def __init__(self):
        self.sent = 0
        self._thread = threading.get_ident()

    def count(self, call):
        """How many messages this thread sends for a call."""
        before = self.sent
        call()
        return self.sent - before

    def note(self):
        """A message is sent."""
        self.sent += threading.get_ident() == self._thread


@pytest.fixture
def store(postgres_url):
    """A store in an empty schema."""
    store = PostgresStore(postgres_url)
    # A store begins to count at random, so that not all fold counts at once: here none does by chance.
    store.folding.appended = 0
    yield store
    store.close()


@pytest.fixture
def queue(postgres_url):
    """A queue on an empty schema, in which all is right at the end."""
    with holdfast.connect(postgres_url, follow=False) as queue:
        queue.counts()
        queue.connection.engine.store.folding.appended = 0  # type: ignore[attr-defined]
        yield queue
        upkeep(queue)
        assert complaints(queue) == []


@pytest.fixture
def schema(postgres_url):
    """The name of that schema."""
    return postgres_url.rpartition("schema=")[2]


@pytest.fixture
def connection(postgres, queue):
    """A caller's own, in a transaction."""
    with postgres.connect() as connection:
        connection.execute("BEGIN")
        yield connection
        connection.rollback()


@pytest.fixture
def server():
    """A server of the test's own, to be stopped and started."""
    server = postgres_or_skip()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def messages(monkeypatch):
    """Those of this thread; not of one that notifies other processes."""
    messages, receive = Messages(), OwnConnection.receive

    def spy(self):
        messages.note()
        return receive(self)

    monkeypatch.setattr(OwnConnection, "receive", spy)
    return messages
