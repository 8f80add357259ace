"""The unary calls: each decodes, asks once, encodes. `Next` and `Wait` are a claim and an Await that wait."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from msgspec.structs import replace

from ...core import commands as c
from ...core.access import Grant, check_kind
from ...core.bounds import DEFAULT_LEASE_MS, SECOND_MS
from ...core.commands import Command
from ...core.errors import BadInput, HoldfastError
from ...core.ids import IdRange
from ...core.queries import Query
from ...engine.connection import Connection
from ...proto.conversion import BY_NAME, VERBS, Verb, message
from ...queue import tracing
from ..asking import Asking
from .admission import Caller, Reservations, ReservedIds, abort, allowed
from .decoding import decode, parse
from .stream import MOST_WAIT_S

log = logging.getLogger("holdfast.serve")

Call = Callable[[Any, Any], Awaitable[bytes | None]]
MakeCaller = Callable[[Any], Caller]
Read = Callable[[bytes, Grant], tuple[Command | Query, float]]

# How long the message of a call may take to arrive: 68 MB by a slow line.
READ_S = 60.0
# A claim stops waiting so long before its deadline, at most half of its time, that its reply arrives before
# the client gives up. Jobs that come in the last half of that are released.
REPLY_S = 0.5
NextRequest, WaitRequest = message("NextRequest"), message("WaitRequest")


class Calls:
    """The unary calls."""

    def __init__(self, connection: Connection, caller: MakeCaller, reservations: Reservations) -> None:
        self._connection, self._caller, self._reservations = connection, caller, reservations
        # By tenant what its calls have reserved.
        self._reserved: dict[str, ReservedIds] = {}
        self._asking = Asking(connection)
        # The tasks of calls that wait.
        self._waiting: set[asyncio.Task[Any]] = set()
        self._is_draining = False
        self.all: dict[str, Call] = {name: self._call(verb, _reads(verb)) for name, verb in BY_NAME.items()}
        self.all["Next"] = self._call(VERBS[c.Claim], _read_next)
        # Those that send their reply themselves.
        self.senders = ("Claim", "Next")
        self.all["Wait"] = self._call(VERBS[c.Await], _read_wait)

    def _call(self, verb: Verb, read: Read) -> Call:
        async def call(_requests: Any, context: Any) -> bytes | None:
            try:
                # Before the message is read: a client without a token, or without the scope, must not fill
                # the memory.
                caller = self._caller(context)
                grant = await caller.admit()
                check_kind(grant, verb.kind)
                raw = await _message(context)
                kept, wait_s = await caller.decoding.run(
                    len(raw), partial(self._read, raw, read, grant, _traceparent(context))
                )
                reply = await self._ask(context, caller, grant, kept, wait_s)
                encoded: bytes = verb.reply(**verb.encode_reply(reply)).SerializeToString()
                if verb.kind is c.Claim:
                    await self._send_claimed(context, encoded, reply)
                    return None
                return encoded
            except HoldfastError as error:
                await abort(context, error)
            except Exception as error:
                # Its type alone: there may be data in its text.
                log.error("a call failed: %s", type(error).__name__)
                await abort(context, error)

        return call

    def drain(self) -> None:
        """End the calls that wait, with an empty reply."""
        self._is_draining = True
        for task in self._waiting:
            task.cancel()

    def _read(
        self, raw: bytes, read: Read, grant: Grant, traceparent: str | None
    ) -> tuple[Command | Query, float]:
        """What a message asks for, kept to what the client may do, and how long it waits. In any thread."""
        asked, wait_s = read(raw, grant)
        if isinstance(asked, c.Add):
            jobs = tracing.mark(asked.jobs, tracing.traceparent_for(traceparent))
            asked = replace(asked, jobs=jobs)
        return allowed(grant, asked, self._reservations), wait_s

    async def _ask(
        self, context: Any, caller: Caller, grant: Grant, kept: Command | Query, wait_s: float
    ) -> Any:
        left_s = _left_s(context)
        reply_s = min(REPLY_S, left_s / 2) if isinstance(kept, c.Claim) else 0.0
        wait_s = min(wait_s, MOST_WAIT_S, left_s - reply_s)
        reply = await self._wait(context, kept, wait_s) if wait_s > 0 else await self._asking.ask_async(kept)
        if isinstance(kept, c.ReserveIds) and grant.tenant is not None:
            self._note_reserved(grant.tenant, reply)
        try:
            if wait_s > 0:
                await caller.check_token()
            if isinstance(kept, c.Claim) and (context.cancelled() or _left_s(context) < reply_s / 2):
                # The client went away in the moment in which its jobs came, or is about to.
                raise asyncio.CancelledError
        except BaseException:
            if isinstance(kept, c.Claim):
                self._connection.release(one.job for one in reply)
            raise
        return reply

    async def _send_claimed(self, context: Any, encoded: bytes, reply: list[c.Claimed]) -> None:
        """Send claimed jobs, and release them if the client has gone before the call ended.

        The message goes before the status, without which no client takes it: until then a client that goes is
        noticed. What is on its way when it goes is not; docs/grpc.md says so.
        """
        try:
            await context.write(encoded)
            # A cancellation that has come in meanwhile is delivered by the next pass of the event loop.
            await asyncio.sleep(0)
        except BaseException:
            self._connection.release((one.job for one in reply), was_sent=True)
            # Also where it could not be written: the client gets no status.
            raise asyncio.CancelledError from None

    async def _wait(self, context: Any, asked: Command | Query, wait_s: float) -> Any:
        """The reply to a claim or an Await; empty when the server is drained."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await self._asking.ask_async(asked, wait_s=0.0 if self._is_draining else wait_s)
        except asyncio.CancelledError:
            if not self._is_draining or context.cancelled():
                raise
            task.uncancel()
            return [] if isinstance(asked, c.Claim) else None
        finally:
            self._waiting.discard(task)

    def _note_reserved(self, tenant: str, ranges: list[IdRange]) -> None:
        if tenant not in self._reserved:
            self._reserved[tenant] = self._reservations.open(tenant)
        self._reserved[tenant].add(ranges)


def _left_s(context: Any) -> float:
    """How long the client waits for the reply at the most, in seconds."""
    left_s: float | None = context.time_remaining()
    return float("inf") if left_s is None else left_s


async def _message(context: Any) -> bytes:
    """The message of a call; one that comes too slowly, or not at all, is refused."""
    try:
        async with asyncio.timeout(READ_S):
            raw: bytes = await context.read()
    except TimeoutError:
        raise BadInput("message", f"not whole after {READ_S:g} s", needed="sent faster") from None
    if raw is grpc.aio.EOF:
        raise BadInput("message", None, needed="one message")
    return raw


def _traceparent(context: Any) -> str | None:
    sent = dict(context.invocation_metadata() or ()).get("traceparent")
    return sent if isinstance(sent, str) else None


def _reads(verb: Verb) -> Read:
    def read(raw: bytes, grant: Grant) -> tuple[Command | Query, float]:
        return decode(verb, parse(verb.request, raw), grant), 0.0

    return read


def _read_next(raw: bytes, _grant: Grant) -> tuple[Command, float]:
    sent = parse(NextRequest, raw)
    claim = c.Claim(
        tasks=tuple(sent.tasks) or None,
        tenant=sent.tenant,
        limit=sent.limit or 1,
        lease_ms=sent.lease_ms or DEFAULT_LEASE_MS,
    )
    return claim, sent.wait_ms / SECOND_MS


def _read_wait(raw: bytes, _grant: Grant) -> tuple[Command, float]:
    sent = parse(WaitRequest, raw)
    tenant = sent.tenant if sent.HasField("tenant") else None
    return c.Await(job_id=sent.job_id, tenant=tenant), sent.wait_ms / SECOND_MS
