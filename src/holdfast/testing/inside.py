"""A queue inside the transactions of an application: what they roll back is not there.

Everything runs in the thread of the caller, as another thread has another connection, which does not see what
is not committed. Nothing is remembered between two calls: a transaction may have been rolled back.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from time import sleep
from typing import Any

from ..core import commands as c
from ..core.queries import Query
from ..engine.connection import Connection
from ..engine.ended import find_awaited
from ..engine.engine import Engine
from ..engine.sysid import IdSource
from ..engine.ticket import Ticket, deliver
from ..queue.base import QueueSession
from ..queue.lease import Lease, Renewer
from ..queue.publishing import Declared, Publisher, Tasks
from ..queue.timers import TimerThread
from ..store.common.clock import monotonic_s
from ..store.common.inside import InsideStore

PAUSE_S = 0.02


class InsideConnection(Connection):
    """Runs commands and queries in the thread of the caller, with a new engine for each."""

    def __init__(self, store: InsideStore, *, retention_ms: int | None) -> None:
        self._store, self._retention_ms, self._ids = store, retention_ms, IdSource()
        # What another thread has sent, such as log lines.
        self.later: deque[c.Command] = deque()

    @property
    def engine(self) -> Engine:
        """A new engine; backoffs have no jitter."""
        return Engine(self._store, retention_ms=self._retention_ms, rng=lambda: 0.5, ids=self._ids)

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command or query and return its reply; raises its error."""
        until_s = monotonic_s() + wait_s
        while True:
            reply = self._ask(asked)
            if isinstance(reply, BaseException):
                raise reply
            is_there = reply if isinstance(asked, c.Claim) else reply is not None
            if is_there or monotonic_s() >= until_s:
                return reply
            sleep(PAUSE_S)

    def _ask(self, asked: Any) -> Any:
        engine = self.engine
        while self.later:
            engine.execute([self.later.popleft()])
        if asked.is_query:
            return engine.query(asked)
        if isinstance(asked, c.Await):
            return engine.read(lambda txn: find_awaited(txn, [asked]))[0]
        return engine.execute([asked]).replies[0]

    async def _ask_here(self, asked: c.Command | Query, wait_s: float) -> Any:
        return self.ask(asked, wait_s=wait_s)

    def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """The same on an event loop, which it blocks."""
        return self._ask_here(asked, wait_s)

    def submit(self, ticket: Ticket) -> None:
        """Run a command, and answer its ticket."""
        try:
            reply = self._ask(ticket.command)
        except Exception as error:
            reply = error
        ticket.answer(reply)
        deliver([ticket], self.give_back)

    def appear(self, name: str) -> bool:
        """False: it is not known which processes are running."""
        return False

    def listen(self, listener: Callable[[], None]) -> None:
        """Do nothing: no other process changes anything."""

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the connections are the application's."""


class InsideSession(QueueSession):
    """The session of a queue with such a connection: no thread of it asks anything."""

    def __init__(self, connection: InsideConnection) -> None:
        self.connection = self._inside = connection
        self.renewer = _NoRenewer(connection)
        self.timers = TimerThread()

    def send(self, command: c.Command) -> None:
        """Run a command before the next one of the thread that has the transaction."""
        self._inside.later.append(command)

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Do nothing: no other process can cancel the job."""
        return lambda: None

    def close(self) -> None:
        """End the thread of soft time limits."""
        self.timers.close()


class _NoRenewer(Renewer):
    def watch(self, lease: Lease) -> None:
        """Renew nothing: no worker waits for the end of a lease that it cannot see."""


class EachTimePublisher(Publisher):
    """Publishes with each claim: what was published may have been rolled back."""

    def has_changes(self, tasks: Tasks, declared: Declared) -> bool:
        """Whether there is anything to publish."""
        return bool(tasks or declared)

    def publish(self, connection: Connection, tasks: Tasks, declared: Declared) -> None:
        """Publish what the store does not have."""
        self._published = ({}, {})
        super().publish(connection, tasks, declared)
