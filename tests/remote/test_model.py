"""Random histories over gRPC: a server in front of a store shows what the memory store shows."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.engine.engine import Engine
from holdfast.engine.store_connection import StoreConnection
from holdfast.engine.ticket import Done, Ticket
from holdfast.remote.address import ServerAddress
from holdfast.remote.connection import RemoteConnection
from tests.doubles import engine_of
from tests.model.model import Model, Process
from tests.remote.served import Served
from tests.test_model import PROOF_HISTORIES, SERVED_PROOF_HISTORIES, SERVED_PROOF_PIECES, run, served, sqlite

HISTORIES, PIECES = 2, 2
REMOTE_PROOF_HISTORIES = PROOF_HISTORIES // 20


def reuse_ids(engine: Engine) -> None:
    """Have the second attempt at a batch make the ids of the first again.

    A server repeats a batch also where a job has changed since it was sent to the client; then the ids of the
    first attempt are used up, and all later ids would differ. A third attempt has new ones: one of these may
    be taken.
    """
    execute, transact = engine.execute, engine._transact
    first = attempts = 0

    def begin(commands: Sequence[c.Command], done: Done | None = None) -> Done:
        nonlocal first, attempts
        first, attempts = engine.ids._last, 0
        return execute(commands, done)

    def attempt(*args: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            engine.ids._last = first
        return transact(*args, **options)

    engine.execute, engine._transact = begin, attempt  # type: ignore[method-assign]


class RemoteEngine:
    """Runs commands as a client does, many in one message, and tells what their transaction did."""

    def __init__(self, connection: StoreConnection) -> None:
        self.connection, self.ids = connection, connection.engine.ids
        self.served = Served(connection)
        self.client = RemoteConnection(ServerAddress("127.0.0.1", self.served.port))
        # The memory store makes its ids itself: for these to be the same, so must the server.
        self.client._link._may_be_sent = lambda ask: True  # type: ignore[method-assign]
        # And it has one transaction for all commands of a message, which gives a job one version.
        connection._submitter._waiter._claims_apart = False  # type: ignore[union-attr]
        self._done: list[Done] = []
        engine = engine_of(connection)
        reuse_ids(engine)
        self._execute = engine.execute
        engine.execute = self._noted  # type: ignore[method-assign]

    def _noted(self, commands: Sequence[c.Command], done: Done | None = None) -> Done:
        self._done.append(self._execute(commands, done))
        return self._done[-1]

    def execute(self, commands: Sequence[c.Command]) -> Done:
        """The replies as they came over the network, and the rest of what was done."""
        self._done.clear()
        tickets = [Ticket(command) for command in commands]
        self.client.submit_all(tickets)
        replies = [ticket.wait_for_reply() for ticket in tickets]
        (done,) = self._done
        whole: Any = Done()
        whole.replies, whole.woke, whole.ended, whole.next_ms = replies, done.woke, done.ended, done.next_ms
        return whole  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the session, the server and its threads; the store stays open."""
        self.client.close()
        self.served.close()
        committer: Any = self.connection._submitter
        committer._waiter.close()
        if committer._answers is not None:
            committer._answers.close()


class LocalProcess(Process):
    """The memory store, whose ids are compared with those of a server."""

    def begin(self, retention_ms: int | None, seed: int) -> None:
        """Start the engine."""
        super().begin(retention_ms, seed)
        reuse_ids(self.engine)


class RemoteProcess(Process):
    """A server on the store, and its client."""

    def begin(self, retention_ms: int | None, seed: int) -> None:
        """Start the server."""
        shown = random.Random(seed).random()
        connection = StoreConnection(self.store, retention_ms=retention_ms, rng=lambda: shown)
        self.engine = RemoteEngine(connection)

    def close(self) -> None:
        """End the server, and let go of the store."""
        if self.engine is not None:
            self.engine.close()
        super().close()


def remote(model: type[Model]) -> type[Model]:
    """The same model by way of a server."""
    return type("RemoteMachine", (model,), {"process": RemoteProcess, "memory_process": LocalProcess})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_server_in_front_of_sqlite_shows_what_memory_shows(piece):
    """The same commands, clocks and reopenings: the same replies, and everything that can be seen."""
    run(remote(sqlite()), HISTORIES // PIECES, piece=piece)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_server_in_front_of_postgres_shows_what_memory_shows(piece, postgres_schemas):
    """By way of two servers."""
    run(remote(served(postgres_schemas)), HISTORIES // PIECES, piece=piece)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_a_server_in_front_of_sqlite_shows_what_memory_shows_in_many_histories(piece):
    """Other histories each time."""
    run(remote(sqlite()), REMOTE_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_a_server_in_front_of_postgres_shows_what_memory_shows_in_many_histories(piece, postgres_schemas):
    """Other histories each time."""
    run(remote(served(postgres_schemas)), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)
