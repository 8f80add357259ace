"""The connection of a queue to a server: a `Connection` whose commands and queries a server runs."""

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..core.errors import BadInput, Closed
from ..engine.connection import Connection
from ..engine.makers import ConnectionMaker
from ..engine.ticket import Ticket, deliver
from .address import ServerAddress, parse
from .ask import Ask
from .link import PATIENCE_S, Link

NO_STORE = "absent over grpc://: your transaction is on another connection than the server's"
RETENTION = "absent over grpc://: set it where the server's store is opened"


class RemoteConnection(Connection):
    """Sends commands and queries, of threads and coroutines, to a server."""

    def __init__(self, address: ServerAddress, *, patience_s: float = PATIENCE_S) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._link = Link(address, changed=self._changed, give_back=self.give_back, patience_s=patience_s)

    @property
    def engine(self) -> NoReturn:
        """There is none in this process."""
        raise BadInput("connection", "given", needed=NO_STORE)

    def submit(self, ticket: Ticket) -> None:
        """Send a command or query; its ticket will be answered."""
        self._link.put([Ask(ticket.command, ticket)])

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Send several; after `close` they are answered with the error."""
        try:
            self._link.put([Ask(ticket.command, ticket) for ticket in tickets])
        except Closed as error:
            for ticket in tickets:
                ticket.answer(error)
            deliver(tickets, self.give_back)

    def on_abandoned(self, ticket: Ticket) -> None:
        """Tell the server that the caller no longer waits for the reply."""
        self._link.cancel(ticket)

    def appear(self, name: str) -> bool:
        """False: a server does not see its clients, so workers renew their registration."""
        return False

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed."""
        with self._lock:
            self._listeners = [*self._listeners, listener]
            self._link.listen(True)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            if not self._listeners:
                self._link.listen(False)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        """Wait for the replies to what was sent, and end the session."""
        self._link.close()


class RemoteMaker(ConnectionMaker):
    """Opens connections to the server of an address."""

    def __init__(self, url: str) -> None:
        self._address = parse(url)

    def __call__(self) -> NoReturn:
        """There is no store to open: it is the server's."""
        raise BadInput("store", str(self._address), needed="the address of the store itself, not of a server")

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        """A connection, which is opened by the first call."""
        if retention_ms is not None:
            raise BadInput("retention", retention_ms, needed=RETENTION)
        return RemoteConnection(self._address)
