"""How commands are put in, by threads and by coroutines: what one lane of commits and several share."""

from collections.abc import Sequence
from typing import Any

from ..core import commands as c
from ..core.errors import HoldfastError
from ..store.common.clock import monotonic_s
from .ticket import Ticket, deliver


class Asking:
    """Asks by tickets; whoever inherits takes them."""

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        raise NotImplementedError

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Put in many; one that cannot be is answered so."""
        for ticket in tickets:
            try:
                self.submit(ticket)
            except HoldfastError as error:
                ticket.answer(error)
                deliver([ticket], self.give_back)

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for somebody who is gone."""
        raise NotImplementedError

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; what it raised is raised here."""
        ticket = Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0)
        self.submit(ticket)
        try:
            reply = ticket.take()
        except BaseException:
            # Interrupted: whatever was claimed for this caller must not wait for its lease to end.
            if not ticket.abandon():
                self.give_back(ticket)
            raise
        if isinstance(reply, BaseException):
            raise reply
        return reply

    async def ask_async(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this event loop; what it raised is raised here."""
        # Not imported above: a program without an event loop does not need it, and it is slow to import.
        import asyncio

        ticket = Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0)
        future = ticket.for_loop(asyncio.get_running_loop())
        self.submit(ticket)
        try:
            return await future
        except asyncio.CancelledError:
            # Answered already: `deliver` finds the future cancelled and gives back what it holds; or it
            # has told the future, in the same moment, and nobody will ever look at that.
            if not ticket.abandon() and future.done() and not future.cancelled():
                self.give_back(ticket)
            raise
