"""Submits requests that several clients make at the same time together.

two passes of the event loop   request, request, … ──▶ tickets; new jobs that differ in their data share one
the third                      all tickets at once ──▶ one wake-up of the committer, one commit
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core.bounds import BATCH_BYTES, BATCH_JOBS, LARGE_READS, READ_AT_ONCE_BYTES
from ..core.commands import Add, Claim, Command, NewJob
from ..core.creating import alike
from ..core.errors import StoreError, Unavailable, Unsettled
from ..core.job import Body, Job
from ..core.queries import Query
from ..engine.commands.adding import is_free
from ..engine.connection import Connection
from ..engine.ticket import CallbackTicket, Submitter, Ticket

T = TypeVar("T")
# How long a client waits for the store, beside the wait that it asks for. A store that is away is tried for
# 30 s, so its own error comes first; one that hangs has none.
ANSWER_S = 35.0


async def reply_in_time(
    ask: Callable[..., Coroutine[Any, Any, T]], asked: Command | Query, *, wait_s: float = 0.0
) -> T:
    """The reply to a command or query; raises `Unavailable` if the store does not answer in `ANSWER_S`.

    A claim that is answered later is released. Other commands may be committed later: `Unsettled`.
    """
    try:
        async with asyncio.timeout(ANSWER_S + wait_s) as limit:
            return await ask(asked, wait_s=wait_s)
    except TimeoutError:
        if not limit.expired():
            raise
    text = f"the store has not answered for {ANSWER_S:g} s"
    raise (
        Unsettled(text) if isinstance(asked, Command) and not isinstance(asked, Claim) else Unavailable(text)
    )


class Decoding:
    """Reads large requests in threads, a few at a time, so that other requests are served meanwhile."""

    def __init__(self) -> None:
        # Not those in which a store is asked, which may all hang.
        self._threads = ThreadPoolExecutor(LARGE_READS, thread_name_prefix="holdfast-decoding")

    async def run(self, size: int, read: Callable[[], T]) -> T:
        """What `read` makes of a request of this many bytes; raises what it raises."""
        if size <= READ_AT_ONCE_BYTES:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def close(self) -> None:
        """End the threads; a request that comes later is not read."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Asking(Submitter):
    """Asks a connection for what the clients of one event loop want.

    Without it, the first command of many would wake the committer, which then takes turns with the event loop
    at the interpreter lock, and commits a few at a time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tickets: list[Ticket] = []

    def ask_async(self, asked: Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """Run a command or query, awaiting its reply; raises its error, or that of `reply_in_time`."""
        return reply_in_time(self._ask, asked, wait_s=wait_s)

    def _ask(self, asked: Command | Query, *, wait_s: float) -> Coroutine[Any, Any, Any]:
        if type(asked) is Add and len(asked.jobs) == 1:
            (new,) = asked.jobs
            if is_free(new) and not asked.more and not asked.ids and asked.hold is None:
                return self._add(new)
        if isinstance(asked, Command):
            return super().ask_async(asked, wait_s=wait_s)
        return self._connection.ask_async(asked)

    async def _add(self, new: NewJob) -> list[int]:
        """Add a job that needs no checks, together with those before it if it is like them."""
        loop = asyncio.get_running_loop()
        last, kind = self._tickets[-1] if self._tickets else None, alike(new)
        if not isinstance(last, SharedAdd) or not last.takes(kind, new.data):
            last = SharedAdd(new, kind, loop, self._answer)
            self.submit(last)
        future: asyncio.Future[int] = loop.create_future()
        last.join(new.data, future)
        return [await future]

    def _answer(self, ticket: Any) -> None:
        """Pass the ids of new jobs on. A client that has gone away gets none."""
        reply, parts = ticket.reply, ticket.parts
        if not isinstance(reply, Exception):
            for (_, future), job_id in zip(parts, reply, strict=True):
                if not future.done():
                    future.set_result(job_id)
        elif isinstance(reply, StoreError) or len(parts) == 1:
            for _, future in parts:
                if not future.done():
                    future.set_exception(reply)
        else:
            # One of the jobs is at fault: add each by itself.
            for data, future in parts:
                alone = SharedAdd(replace(ticket.new, data=data), (), ticket.loop, self._answer)
                alone.join(data, future)
                self.submit(alone)

    def submit(self, ticket: Ticket) -> None:
        """Submit a command of a coroutine with those of this and the next pass of its event loop."""
        if not self._tickets:
            assert ticket.loop is not None
            ticket.loop.call_soon(ticket.loop.call_soon, self._submit_all)
        self._tickets.append(ticket)

    def _submit_all(self) -> None:
        tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            if isinstance(ticket, SharedAdd):
                ticket.close()
        self._connection.submit_all(tickets)

    def release(self, jobs: Iterable[Job], *, was_sent: bool = False) -> None:
        """Release claimed jobs that their client did not get."""
        self._connection.release(jobs, was_sent=was_sent)


class SharedAdd(CallbackTicket):
    """New jobs of several clients that differ in their data alone, added by one command."""

    __slots__ = ("_kind", "_size", "new", "parts")

    def __init__(
        self,
        new: NewJob,
        kind: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        on_reply: Callable[[CallbackTicket], None],
    ) -> None:
        super().__init__(Add(jobs=(new,)), loop, on_reply)
        self.new, self._kind, self._size = new, kind, 0
        # The data of each job, and the future that gets its id.
        self.parts: list[tuple[Body, asyncio.Future[int]]] = []

    def takes(self, kind: tuple[Any, ...], data: Body) -> bool:
        """Whether a job may be added too: it is like the others, and they fit into one transaction."""
        return kind == self._kind and len(self.parts) < BATCH_JOBS and self._size + len(data) <= BATCH_BYTES

    def join(self, data: Body, future: "asyncio.Future[int]") -> None:
        """Add a job with this data."""
        self.parts.append((data, future))
        self._size += len(data)

    def close(self) -> None:
        """Make the command: no other job joins."""
        self.command = Add(jobs=(self.new,), more=tuple([data for data, _ in self.parts[1:]]))
