"""What the two streams share: commands on their way, messages to be sent, jobs that may not have arrived.

read ──▶ decode ──▶ submit, many at once ──▶ committed ──▶ outbox ──▶ one message of all that are there
                                                │
the stream ends: waiting claims are given up, jobs that the client has not said it received are released,
but for those that were sent and must not run twice
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import grpc
from msgspec.structs import replace

from ...core import commands as c
from ...core.access import Grant, check_kind
from ...core.bounds import SECOND_MS
from ...core.commands import Command
from ...core.errors import HoldfastError, RateLimited, Unavailable
from ...core.job import Job
from ...core.queries import Query
from ...engine.connection import Connection
from ...engine.ticket import CallbackTicket, Ticket
from ...store.common.clock import monotonic_s
from ..asking import reply_in_time
from .admission import Caller, abort

# How long a claim or an Await may wait at the most; the client asks again.
MOST_WAIT_S = 3_600.0
# With this many pending requests, or unread replies, of a client the server stops reading from it. In
# commands, or about as many KB; a query counts as several, because its reply may be a page of jobs.
MOST_PENDING = 20_000
QUERY_WEIGHT = 1_000
# How many claimed jobs the server remembers for a client; the oldest are forgotten.
MOST_HELD = 20_000
# Claims and Awaits of a client that wait at the same time.
MOST_WAITS = 100_000
# Asks, answers or acknowledgements in one message.
MESSAGE_ASKS = 10_000
# A client that does not read a message for so long is cut off.
WRITE_S = 30.0
# The largest message, unless a single reply is larger.
MESSAGE_REPLIES = 1_000
MESSAGE_BYTES = 4 * 1024 * 1024
# How long the last commands of a stream that is drained are waited for.
SETTLING_S = 5.0


class StreamTicket(CallbackTicket):
    """A command of a client, on its way. `note` is what the stream wants to know when it is answered."""

    __slots__ = ("abandoned", "deadline_s", "note")

    def __init__(self, command: Command, stream: "Stream", note: Any, *, wait_s: float = 0.0) -> None:
        super().__init__(command, stream.loop, stream.on_reply)
        self.note, self.abandoned = note, False
        self.deadline_s = monotonic_s() + wait_s if wait_s > 0 else 0.0

    def answer(self, reply: Any) -> bool:
        """Set the reply; False when the client no longer wants it."""
        return Ticket.answer(self, reply)


class Stream:
    """One stream of one client."""

    def __init__(self, connection: Connection, caller: Caller, context: Any) -> None:
        self._connection, self._caller, self._context = connection, caller, context
        self.loop = asyncio.get_running_loop()
        self._draining = asyncio.Event()
        # Commands on their way; and claims and Awaits that wait, of which a client may have many while it
        # goes on with what ends them.
        self._pending: dict[StreamTicket, None] = {}
        self.waits: dict[StreamTicket, None] = {}
        self._queries: set[asyncio.Task[None]] = set()
        # Set when there is something to send, and when more may be read.
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()
        # The last known records of jobs that were claimed here: an answer with its record saves the store a
        # read.
        self.held: dict[int, Job] = {}
        # Jobs that were sent, by the number or id that the client will name when they have arrived.
        self.unreceived: dict[int, list[Job]] = {}
        # How much the outbox has that was not sent, in KB or replies; see `weight_of`.
        self.unsent = 0
        self._ended = self._is_given_up = False
        self._failure: Exception | None = None

    # What a stream is made of

    # Only clients that may ask for this may open it; None: all that have a token.
    kind: type[Command] | None = None

    async def handle_message(self, raw: bytes, grant: Grant) -> None:
        """Do what a message asks for."""
        raise NotImplementedError

    def put_reply(self, note: Any, reply: Any) -> None:
        """Put a reply into the outbox; `note` is what was said when it was asked for."""
        raise NotImplementedError

    def next_message(self) -> tuple[bytes, bool] | None:
        """The next message of the outbox, and whether it has what was waited for; None: there is none."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what the stream has beside its commands; release the jobs in the outbox."""

    def on_all_sent(self) -> None:
        """The outbox is empty, and the client has room for more."""

    # Its life

    async def run(self) -> None:
        """Serve until the client ends the stream, is cut off, or the server is drained."""
        try:
            # Before anything is read: a client without a token must not fill the memory.
            grant = await self._caller.check_token()
            if self.kind is not None:
                check_kind(grant, self.kind)
        except HoldfastError as error:
            await abort(self._context, error)
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        draining = asyncio.create_task(self._draining.wait())
        tasks = (reading, writing, draining)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            if reading.done():
                reading.result()
            await self._settle(writing)
            if self._failure is not None:
                await abort(self._context, self._failure)
        except HoldfastError as error:
            await abort(self._context, error)
        finally:
            for task in tasks:
                task.cancel()
            self._end()

    def drain(self) -> None:
        """Accept no more requests, answer the running ones, and end the stream; the client reconnects."""
        self._draining.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error."""
        self._failure = error
        self._draining.set()

    async def _settle(self, writing: "asyncio.Task[None]") -> None:
        """Answer the running requests; waiting ones are dropped, and the client repeats them elsewhere."""
        self._abandon(list(self.waits))
        until_s = monotonic_s() + SETTLING_S
        while self._is_busy() and monotonic_s() < until_s:
            if writing.done():
                return
            await asyncio.sleep(0.005)

    def _is_busy(self) -> bool:
        return bool(self._pending or self.waits or self._queries or self._has_news.is_set())

    def _end(self) -> None:
        self._ended = True
        self.close()
        self._abandon([*self._pending, *self.waits])
        for task in self._queries:
            task.cancel()
        sent = [job for jobs in self.unreceived.values() for job in jobs]
        self.unreceived.clear()
        self.held.clear()
        self._connection.release(sent, was_sent=True)

    def _abandon(self, tickets: Iterable[StreamTicket]) -> None:
        for ticket in tickets:
            # A command that waits for nothing is carried out: its client only does not hear of it.
            if ticket.abandon():
                self._forget(ticket)

    def _forget(self, ticket: StreamTicket) -> None:
        (self.waits if ticket.deadline_s else self._pending).pop(ticket, None)

    # Reading

    async def _read(self) -> None:
        while (raw := await self._context.read()) is not grpc.aio.EOF:
            await self.handle_message(raw, await self._admit())
            while self._is_full() or self._is_given_up:
                self._has_room.clear()
                await self._has_room.wait()

    async def _admit(self) -> Grant:
        """What the client may do. One that sends too much is slowed down: no message is refused as a whole.

        Beside its requests a message says which jobs have arrived; without that they would run twice.
        """
        while True:
            try:
                return await self._caller.admit()
            except RateLimited as error:
                await asyncio.sleep(error.after_s)

    def _is_full(self) -> bool:
        return len(self._pending) + QUERY_WEIGHT * len(self._queries) + self.unsent > MOST_PENDING

    def submit(self, tickets: Sequence[StreamTicket]) -> None:
        """Have commands run; `put_reply` is called for each."""
        for ticket in tickets:
            (self.waits if ticket.deadline_s else self._pending)[ticket] = None
        self._connection.submit_all(tickets)

    def query(self, asked: Query, note: Any) -> None:
        """Have a query answered; `put_reply` is called."""

        async def ask() -> None:
            try:
                reply = await reply_in_time(self._connection.ask_async, asked)
            except HoldfastError as error:
                reply = error
            if not self._ended:
                self.put_reply(note, reply)
                self.wake()

        def done(task: asyncio.Task[None]) -> None:
            self._queries.discard(task)
            self._has_room.set()

        task = asyncio.create_task(ask())
        self._queries.add(task)
        task.add_done_callback(done)

    def on_reply(self, ticket: CallbackTicket) -> None:
        """A command was committed, or refused. On the event loop."""
        assert isinstance(ticket, StreamTicket)
        self._forget(ticket)
        self._has_room.set()
        reply = ticket.reply
        if self._ended:
            if isinstance(ticket.command, c.Claim) and isinstance(reply, list):
                self._connection.release(one.job for one in reply)
            return
        self._update_held(ticket.command, reply)
        self.put_reply(ticket.note, reply)
        self.wake()

    def _update_held(self, command: Command, reply: Any) -> None:
        if isinstance(command, c.Claim) and isinstance(reply, list):
            self.held |= {one.job.id: one.job for one in reply}
            # Also those that were lost, and are never answered here.
            for job_id in list(islice(self.held, max(len(self.held) - MOST_HELD, 0))):
                del self.held[job_id]
        elif isinstance(command, c.AnswerAll):
            for one in command.answers:
                self.held.pop(one.hold.job_id, None)
        elif isinstance(command, c.Answer | c.Release):
            self.held.pop(command.hold.job_id, None)
        elif isinstance(reply, Job) and reply.id in self.held:
            self.held[reply.id] = reply

    def with_held(self, asked: Command) -> Command:
        """An answer with the record of the claim, if the job was claimed here."""
        if type(asked) is c.AnswerAll:
            held = [self._held_of(one.hold) for one in asked.answers]
            known = [job for job in held if job is not None]
            return replace(asked, held=tuple(known)) if len(known) == len(held) else asked
        if type(asked) is c.Answer:
            return replace(asked, held=self._held_of(asked.hold))
        return asked

    def _held_of(self, hold: c.Hold) -> Job | None:
        job = self.held.get(hold.job_id)
        return job if job is not None and (job.owner, job.claim) == (hold.owner, hold.claim) else None

    # Writing

    def wake(self) -> None:
        """There is something to send."""
        self._has_news.set()

    async def _write(self) -> None:
        while True:
            await self._has_news.wait()
            while (found := self.next_message()) is not None:
                raw, was_awaited = found
                if was_awaited and self._caller.secret:
                    await self._caller.check_token()
                await self._send(raw)
                self._has_room.set()
            self._has_news.clear()
            self.on_all_sent()

    async def _send(self, raw: bytes) -> None:
        timer = self.loop.call_later(WRITE_S, self._give_up)
        try:
            await self._context.write(raw)
        finally:
            timer.cancel()
        if self._is_given_up:
            raise Unavailable("the client has not read for too long; what it claimed was released")

    def _give_up(self) -> None:
        """Let go of a client that does not read. Its status can be sent only once it has read again."""
        self._is_given_up = True
        self._end()


def weight_of(reply: Any) -> int:
    """About how many KB a reply takes, one at least."""
    if isinstance(reply, list):
        return 1 + len(reply) + sum(len(one.data) for one in reply if isinstance(one, c.Claimed)) // 1_000
    body = reply.result if isinstance(reply, c.Ended) else reply
    return 1 + len(body) // 1_000 if isinstance(body, str | bytes) else 1


def wait_s_of(wait_ms: int) -> float:
    """How long an ask waits, in seconds."""
    return min(max(wait_ms, 0) / SECOND_MS, MOST_WAIT_S)
