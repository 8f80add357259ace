"""A queue's session inside an executor: commands of handlers go to the supervisor, which commits them.

It has the interface of `queue.base.QueueSession` and of its connection, so that the verbs of a queue need not
know where they run. Queries, and commands in a transaction of the handler, go to the store directly.
"""

import asyncio
import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core import commands as c
from ...core.queries import Query
from ...engine.connection import Connection
from ...engine.makers import open_connection
from ...engine.submitter import Submitter
from ...engine.ticket import Ticket, deliver
from ...queue.base import Maker
from ...queue.lease import Lease, Renewer
from ...queue.timers import TimerThread
from ...store.common.clock import monotonic_s
from ..messages import CommandReply, CommandRequest, check_fields, read_reply

if TYPE_CHECKING:
    from ...engine.engine import AnyEngine


class SupervisedSession(Submitter):
    """The session of one queue in an executor, and its connection in one.

    A handler may be interrupted while it waits: jobs that were claimed for it are then released.
    """

    def __init__(
        self,
        make_store: Maker,
        send: Callable[[Sequence[CommandRequest]], None],
        *,
        queue_index: int = 0,
    ) -> None:
        self._queue_index = queue_index
        self.pid = os.getpid()
        self.connection = self
        # For jobs that handlers claim. The supervisor renews the leases of those that it has delivered.
        self.renewer = Renewer(self)
        self._send = send
        self._tickets: dict[int, Ticket] = {}
        self._count = 0
        self._lock = threading.Lock()
        self.timers = TimerThread()
        self._make_store = make_store
        self._opened: Connection | None = None
        self._opening = threading.Lock()

    @property
    def engine(self) -> "AnyEngine":
        """Runs commands in transactions of the handler, without the supervisor."""
        return self._store_connection.engine

    @property
    def _store_connection(self) -> Connection:
        """The executor's own connection to the store, opened on first use."""
        with self._opening:
            if self._opened is None:
                self._opened = open_connection(self._make_store, rng=random.random)
            return self._opened

    def submit(self, ticket: Ticket) -> None:
        """Have the supervisor run a command; its ticket will be answered."""
        check_fields(ticket.command)
        with self._lock:
            self._count += 1
            number = self._count
            self._tickets[number] = ticket
        wait_s = max(ticket.deadline_s - monotonic_s(), 0.0) if ticket.deadline_s else 0.0
        self._send([self._make_request(number, ticket.command, wait_s)])

    def _make_request(self, number: int, command: Any, wait_s: float) -> CommandRequest:
        return CommandRequest(number=number, command=command, wait_s=wait_s, queue_index=self._queue_index)

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Return the supervisor's reply to a command, or raise its error. Queries go to the store."""
        if isinstance(asked, Query):
            return self._store_connection.ask(asked)
        return super().ask(asked, wait_s=wait_s)

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """The same for coroutines; none of them needs a thread to wait in."""
        if isinstance(asked, Query):
            return await asyncio.to_thread(self.ask, asked)
        return await super().ask_async(asked, wait_s=wait_s)

    def send(self, command: c.Command) -> None:
        """Have the supervisor run a command without waiting for its reply; errors are ignored."""
        self._send([self._make_request(0, command, 0.0)])

    def on_reply(self, message: CommandReply) -> None:
        """Give a reply of the supervisor to the caller that waits for it."""
        with self._lock:
            ticket = self._tickets.pop(message.number, None)
        if ticket is None:
            return
        try:
            reply = read_reply(ticket.command, message)
        except Exception as error:
            reply = error
        if ticket.answer(reply):
            deliver([ticket], self.give_back)
        else:
            ticket.reply = reply
            self.give_back(ticket)

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Do nothing: the supervisor sends a message when a job should stop."""
        return lambda: None

    def close(self) -> None:
        """Do nothing: the executor closes its socket when it ends."""
