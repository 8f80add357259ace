"""What a worker says to its stores: answers and releases, many in one commit, nobody waiting for each."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..core import commands as c
from ..core.errors import HoldfastError
from ..engine.asking import Committing
from ..engine.ticket import Ticket

# How long a supervisor that stops waits for its last words to be committed.
SETTLING_S = 5.0


class Words:
    """Commands on their way. What is refused is told in the log: there is nobody else to tell."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._unheard = 0
        self._quiet = asyncio.Event()

    def say(self, line: Committing, command: c.Answer | c.Release) -> None:
        """Have a command run."""
        self._unheard += 1
        ticket = Ticket(command)
        ticket.for_callback(asyncio.get_running_loop(), lambda reply: self._heard(command, reply))
        try:
            line.submit(ticket)
        except HoldfastError as error:
            self._heard(command, error)

    def _heard(self, command: c.Answer | c.Release, reply: Any) -> None:
        self._unheard -= 1
        if not self._unheard:
            self._quiet.set()
        if isinstance(reply, BaseException):
            self._log(f"job {command.hold.job_id}: {reply}")

    async def settled(self) -> None:
        """Wait until everything has been heard."""
        try:
            async with asyncio.timeout(SETTLING_S):
                while self._unheard:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            self._log(f"{self._unheard} words were not heard in time")
