"""The connection of a queue on a server: it has the face of `engine.connection.Connection`."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ..core import commands as c
from ..core.errors import BadInput, Closed
from ..core.queries import Query
from ..engine.connection import Connection, ConnectionMaker
from ..engine.ticket import Ticket, deliver
from ..store.common.clock import monotonic_s
from .address import ServerAddress, parse
from .ask import Ask
from .link import PATIENCE_S, Link

NO_STORE = "absent over grpc://: your transaction is on another connection than the server's"
RETENTION = "absent over grpc://: set it where the server's store is opened"


class RemoteConnection(Connection):
    """The way to a server, for threads and coroutines."""

    def __init__(self, address: ServerAddress, *, patience_s: float = PATIENCE_S) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._link = Link(address, changed=self._changed, give_back=self.give_back, patience_s=patience_s)

    @property
    def engine(self) -> NoReturn:
        """There is none in this process."""
        raise BadInput("connection", "given", needed=NO_STORE)

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Have the server run a command or answer a query; what it raised is raised here."""
        ticket = self._ticket(asked, wait_s)
        try:
            self._link.put([Ask(asked, ticket)])
            reply = ticket.wait_for_reply()
        except BaseException:
            self._leave(ticket)
            raise
        if isinstance(reply, BaseException):
            raise reply
        return reply

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """The same in this event loop."""
        ticket = self._ticket(asked, wait_s)
        future = ticket.for_loop(asyncio.get_running_loop())
        self._link.put([Ask(asked, ticket)])
        try:
            return await future
        except asyncio.CancelledError:
            if ticket.abandon():
                self._link.cancel(ticket)
            elif future.done() and not future.cancelled():
                # The reply came at the same moment, and no caller will read it.
                self.give_back(ticket)
            raise

    def _ticket(self, asked: Any, wait_s: float) -> Ticket:
        return Ticket(asked, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0)

    def _leave(self, ticket: Ticket) -> None:
        """The caller was interrupted: what was claimed for it must not wait for its lease to end."""
        if ticket.abandon():
            self._link.cancel(ticket)
        else:
            self.give_back(ticket)

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        self._link.put([Ask(ticket.command, ticket)])

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Put in many; where it is too late they are answered so."""
        try:
            self._link.put([Ask(ticket.command, ticket) for ticket in tickets])
        except Closed as error:
            for ticket in tickets:
                ticket.answer(error)
            deliver(tickets, self.give_back)

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for a caller that went away."""
        if isinstance(ticket.command, c.Claim) and isinstance(ticket.reply, list):
            with suppress(Closed):
                self._link.put([Ask(c.Release(hold=c.hold_of(one.job))) for one in ticket.reply])

    def appear(self, name: str) -> bool:
        """A server does not see which workers are there: they say it now and then."""
        return False

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever progress or a log may have moved: a hint."""
        with self._lock:
            self._listeners = [*self._listeners, listener]
            self._link.listen(True)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            if not self._listeners:
                self._link.listen(False)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        """Wait for the replies to what was put in, and end the session."""
        self._link.close()


class RemoteMaker(ConnectionMaker):
    """Opens connections to the server of an address."""

    def __init__(self, url: str) -> None:
        self._address = parse(url)

    def __call__(self) -> NoReturn:
        """There is no store to open: it is the server's."""
        raise BadInput("store", str(self._address), needed="the address of the store itself, not of a server")

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        """A connection; nothing is sent before something is asked."""
        if retention_ms is not None:
            raise BadInput("retention", retention_ms, needed=RETENTION)
        return RemoteConnection(self._address)
