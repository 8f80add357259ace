"""Commits the answers and releases of a worker, many in one commit, without waiting for each."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.counting import counted
from ...core.errors import SchemaMismatch, StoreError
from ...core.job import Code, Job, Place, State
from ...engine.connection import Connection
from ...engine.ticket import CallbackTicket

# How long a stopping supervisor waits for its last commits.
COMMIT_WAIT_S = 5.0
# When a command is submitted again that the store could not take.
RETRY_S = 1.0

AnswerCommand = c.AnswerAll | c.Answer | c.Release


class AnswerWriter:
    """Submits answers and releases, again while the store cannot be written to, and logs those that fail."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._unsent: dict[Connection, list[CallbackTicket]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # Commands without a reply.
        self._pending = 0
        self._settled = asyncio.Event()
        # How many jobs have ended by these commands, and how many of them failed.
        self.done = self.failed = 0
        # The last error that was logged of a store that cannot be written to.
        self._store_error = ""

    def put(self, connection: Connection, command: AnswerCommand) -> None:
        """Submit a command, together with all others of this iteration of the event loop."""
        if not self._unsent:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._send)
        assert self._loop is not None
        self._pending += 1
        self._unsent.setdefault(connection, []).append(
            CallbackTicket(command, self._loop, partial(self._on_reply, connection))
        )

    def answer(self, connection: Connection, ended: Sequence[tuple[c.Answer, Job]]) -> None:
        """Submit the answers of jobs, each with the job's last known record."""
        answers, held = zip(*ended, strict=True)
        self.put(connection, c.AnswerAll(answers=answers, held=held))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for connection, tickets in unsent.items():
            connection.submit_all(tickets)

    def _on_reply(self, connection: Connection, ticket: CallbackTicket) -> None:
        self._pending -= 1
        command, reply = ticket.command, ticket.reply
        assert isinstance(command, AnswerCommand)
        if isinstance(reply, SchemaMismatch):
            count = len(command.answers) if isinstance(command, c.AnswerAll) else 1
            self._log(f"{counted(count, 'answer')} not stored, so the jobs will run again: {reply}")
        elif isinstance(reply, StoreError):
            self._submit_later(connection, command, reply)
        elif not isinstance(command, c.AnswerAll):
            self._count_replies([(command, reply)])
        elif not isinstance(reply, BaseException):
            self._on_replies(connection, command, reply)
        else:
            # One of them is at fault: submit each by itself, so that the others are committed.
            for answer, job in zip(command.answers, command.held, strict=True):
                self.put(connection, replace(answer, held=job))
        if not self._pending:
            self._settled.set()

    def _on_replies(self, connection: Connection, command: c.AnswerAll, replies: list[Any]) -> None:
        """Count the replies to many answers; those that could not be committed are submitted again."""
        settled: list[tuple[c.Answer | c.Release, Any]] = []
        for answer, job, reply in zip(command.answers, command.held, replies, strict=True):
            if isinstance(reply, StoreError):
                self._submit_later(connection, replace(answer, held=job), reply)
            else:
                settled.append((answer, reply))
        self._count_replies(settled)

    def _submit_later(self, connection: Connection, command: AnswerCommand, error: StoreError) -> None:
        """Submit a command again in a moment: until another worker claims the job, its answer counts."""
        if str(error) != self._store_error:
            self._log(f"cannot commit answers, and tries again: {error}")
        self._store_error = str(error)
        self._pending += 1
        assert self._loop is not None
        self._loop.call_later(RETRY_S, self._submit_again, connection, command)

    def _submit_again(self, connection: Connection, command: AnswerCommand) -> None:
        self._pending -= 1
        self.put(connection, command)

    def _count_replies(self, replies: list[tuple[c.Answer | c.Release, Any]]) -> None:
        """Count jobs that have ended, and log errors. A repeating job counts after each successful run."""
        for command, reply in replies:
            is_job = type(reply) is Job
            if not is_job and isinstance(reply, BaseException):
                self._log(f"job {command.hold.job_id}: {reply}")
            else:
                self._store_error = ""
                # A job that was lost too often has ended too.
                has_ended = is_job and reply.place is Place.DONE
                self.done += has_ended or (type(command) is c.Answer and command.code is Code.OK)
                self.failed += has_ended and reply.ended is State.FAILED

    async def wait_until_committed(self) -> None:
        """Wait until every command has its reply."""
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                while self._pending:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            pending = counted(self._pending, "answer or release", "answers and releases")
            self._log(f"not committed in time: {pending}")
