"""What a worker says to its stores: answers and releases, many in one commit, nobody waiting for each."""

import asyncio
from collections.abc import Callable
from typing import Any

from ...core import commands as c
from ...core.job import Code, Job, Place, State
from ...engine.connection import Connection
from ...engine.ticket import Word

# How long a supervisor that stops waits for its last words to be committed.
SETTLING_S = 5.0


class Words:
    """Commands on their way. What is refused is told in the log: there is nobody else to tell."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._unsaid: dict[Connection, list[Word]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unheard = 0
        self._quiet = asyncio.Event()
        # How many jobs have ended by what was said, and how many of them failed.
        self.done = self.failed = 0

    def say(self, line: Connection, command: c.Answer | c.Release) -> None:
        """Have a command run, together with all that is said in this turn of the loop."""
        if not self._unsaid:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._speak)
        assert self._loop is not None
        self._unheard += 1
        self._unsaid.setdefault(line, []).append(Word(command, self._loop, self._heard))

    def _speak(self) -> None:
        unsaid, self._unsaid = self._unsaid, {}
        for line, words in unsaid.items():
            line.submit_all(words)

    def _heard(self, word: Word) -> None:
        self._unheard -= 1
        if not self._unheard:
            self._quiet.set()
        if isinstance(word.reply, BaseException):
            assert isinstance(word.command, c.Answer | c.Release)
            self._log(f"job {word.command.hold.job_id}: {word.reply}")
        elif isinstance(word.command, c.Answer):
            self._count(word.command, word.reply)

    def _count(self, answer: c.Answer, reply: Any) -> None:
        """A run that goes well ends its job, or a round of one that repeats; one that goes wrong may not."""
        has_ended = isinstance(reply, Job) and reply.place is Place.DONE
        if answer.code is Code.OK or has_ended:
            self.done += 1
            self.failed += has_ended and reply.ended is State.FAILED

    async def settled(self) -> None:
        """Wait until everything has been heard."""
        try:
            async with asyncio.timeout(SETTLING_S):
                while self._unheard:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            self._log(f"{self._unheard} words were not heard in time")
