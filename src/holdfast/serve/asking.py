"""Submits requests that several clients make at the same time together.

pass of the event loop    request, request, request ──▶ tickets
next pass                 all tickets at once ──▶ one wake-up of the committer, one commit
"""

from collections.abc import Coroutine
from typing import Any

from ..core.commands import Command
from ..core.queries import Query
from ..engine.connection import Connection
from ..engine.submitter import Submitter
from ..engine.ticket import Ticket


class Asking(Submitter):
    """Asks a connection for what the clients of one event loop want.

    Without it, the first command of many would wake the committer, which then takes turns with the event loop
    at the interpreter lock, and commits a few at a time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tickets: list[Ticket] = []

    def ask_async(self, asked: Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """Run a command or query, awaiting its reply; raises its error."""
        if isinstance(asked, Command):
            return super().ask_async(asked, wait_s=wait_s)
        return self._connection.ask_async(asked)

    def submit(self, ticket: Ticket) -> None:
        """Submit a command of a coroutine in the next pass of its event loop."""
        if not self._tickets:
            assert ticket.loop is not None
            ticket.loop.call_soon(self._submit_all)
        self._tickets.append(ticket)

    def _submit_all(self) -> None:
        tickets, self._tickets = self._tickets, []
        self._connection.submit_all(tickets)

    def give_back(self, ticket: Ticket) -> None:
        """Release the jobs that were claimed for a caller that is gone."""
        self._connection.give_back(ticket)
