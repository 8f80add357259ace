"""The base of whatever takes commands: waits for replies in threads and in coroutines."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..core import commands as c
from ..core.errors import HoldfastError
from ..core.job import Job
from ..store.common.clock import monotonic_s
from .ticket import Ticket, deliver


class Submitter:
    """Turns commands into tickets and waits for their replies; subclasses take the tickets."""

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        raise NotImplementedError

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Submit several commands; one that cannot be submitted is answered with the error."""
        for ticket in tickets:
            try:
                self.submit(ticket)
            except HoldfastError as error:
                ticket.answer(error)
                deliver([ticket], self.give_back)

    def give_back(self, ticket: Ticket) -> None:
        """Release the jobs that were claimed for a caller that is gone."""
        if isinstance(ticket.command, c.Claim) and isinstance(ticket.reply, list):
            self.release(claimed.job for claimed in ticket.reply)

    def release(self, jobs: Iterable[Job], *, was_sent: bool = False) -> None:
        """Release claimed jobs that a caller did not get, without waiting for the commit.

        If they were sent, it may have got them: those that must not run twice stay with it until their lease
        ends. `close` commits what was released before it; after `close`, leases expire.
        """
        back = [job for job in jobs if not (was_sent and job.max_losses == 1)]
        if back:
            self.submit_all([Ticket(c.Release(hold=c.hold_of(job))) for job in back])

    def on_abandoned(self, ticket: Ticket) -> None:
        """Called when the caller of a ticket that is not answered is gone."""

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; raises its error."""
        reply = self.ask_ticket(Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0))
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def ask_ticket(self, ticket: Ticket) -> Any:
        """Submit a ticket and wait for its reply in this thread; return it, also if it is an error."""
        try:
            self.submit(ticket)
            return ticket.wait_for_reply()
        except BaseException:
            self._leave(ticket)
            raise

    def reply_of(self, ticket: Ticket) -> Any:
        """Wait for the reply of a submitted ticket in this thread; return it, also if it is an error."""
        try:
            return ticket.wait_for_reply()
        except BaseException:
            self._leave(ticket)
            raise

    def _leave(self, ticket: Ticket) -> None:
        """Interrupted: release what was claimed for this caller now, not when its lease expires."""
        if ticket.abandon():
            self.on_abandoned(ticket)
        else:
            self.give_back(ticket)

    async def ask_async(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this event loop; raises its error."""
        # Imported here because asyncio is slow to import, and many programs do not need it.
        import asyncio

        ticket = Ticket(command, deadline_s=monotonic_s() + wait_s if wait_s > 0 else 0.0)
        future = ticket.for_loop(asyncio.get_running_loop())
        self.submit(ticket)
        try:
            return await future
        except asyncio.CancelledError:
            # If it was answered already, `deliver` finds the future cancelled and releases its jobs; or it
            # has set the future's result just now, which no caller will read.
            if ticket.abandon():
                self.on_abandoned(ticket)
            elif future.done() and not future.cancelled():
                self.give_back(ticket)
            raise
