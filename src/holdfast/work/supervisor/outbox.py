"""What a worker commits to its stores: answers and releases, many in one commit, nobody waiting for each."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.errors import StoreError
from ...core.job import Code, Job, Place, State
from ...engine.connection import Connection
from ...engine.ticket import CallbackTicket

# How long a supervisor that stops waits for its last commands to be committed.
SETTLING_S = 5.0

Said = c.AnswerAll | c.Answer | c.Release


class Outbox:
    """Commands on their way. What is refused is told in the log: there is nobody else to tell."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._unsent: dict[Connection, list[CallbackTicket]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # How many commands have no reply yet.
        self._open = 0
        self._quiet = asyncio.Event()
        # How many jobs have ended by what was committed, and how many of them failed.
        self.done = self.failed = 0

    def put(self, line: Connection, command: Said) -> None:
        """Have a command run, together with all that are put in during this turn of the loop."""
        if not self._unsent:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._send)
        assert self._loop is not None
        self._open += 1
        self._unsent.setdefault(line, []).append(
            CallbackTicket(command, self._loop, partial(self._heard, line))
        )

    def answer(self, line: Connection, ended: Sequence[tuple[c.Answer, Job]]) -> None:
        """Answer jobs, each with its record as last heard of."""
        answers, held = zip(*ended, strict=True)
        self.put(line, c.AnswerAll(answers=answers, held=held))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for line, tickets in unsent.items():
            line.submit_all(tickets)

    def _heard(self, line: Connection, ticket: CallbackTicket) -> None:
        self._open -= 1
        command, reply = ticket.command, ticket.reply
        if not isinstance(command, c.AnswerAll):
            assert isinstance(command, c.Answer | c.Release)
            self._note([(command, reply)])
        elif not isinstance(reply, BaseException):
            self._note(list(zip(command.answers, reply, strict=True)))
        elif isinstance(reply, StoreError):
            more = f", and {len(command.answers) - 1:,} more like it" if command.answers[1:] else ""
            self._log(f"job {command.answers[0].hold.job_id}: {reply}{more}")
        else:
            # The fault of one of them: the others are answered without it.
            for answer, job in zip(command.answers, command.held, strict=True):
                self.put(line, replace(answer, held=job))
        if not self._open:
            self._quiet.set()

    def _note(self, replies: list[tuple[c.Answer | c.Release, Any]]) -> None:
        """Count what has ended. A run that goes well ends its job, or a round of one that repeats."""
        for command, reply in replies:
            is_job = type(reply) is Job
            if not is_job and isinstance(reply, BaseException):
                self._log(f"job {command.hold.job_id}: {reply}")
            elif type(command) is c.Answer:
                has_ended = is_job and reply.place is Place.DONE
                self.done += has_ended or command.code is Code.OK
                self.failed += has_ended and reply.ended is State.FAILED

    async def settled(self) -> None:
        """Wait until every command has its reply."""
        try:
            async with asyncio.timeout(SETTLING_S):
                while self._open:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            self._log(f"{self._open} answers and releases were not committed in time")
