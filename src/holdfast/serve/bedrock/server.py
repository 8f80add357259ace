"""The job-command port: connections, one request after the other on each, replies in order.

    bytes ──▶ Parser ──▶ requests waiting ──▶ one, or a run of like ones (`next_run`) ──▶ replies
                                                    │
             the client disconnects ────────────────┴──▶ a waiting claim is cancelled; jobs whose reply did
                                                         not arrive are released at once

A client that only closes its sending side (`printf … | nc`) still gets its replies, except for a waiting
GetJob, as it cannot be told from a client that has disconnected. A reply with jobs counts as arrived once the
client's machine has acknowledged it and the connection was not reset within `SURE_S`: a program that dies
before it has read the reply resets it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ...core import commands as c
from ...core.bounds import PORT_BUFFERED_BYTES, PORT_CONNECTIONS, PORT_PIPELINED, PORT_PIPELINED_BYTES
from ...engine.connection import Connection
from ...store.common.clock import monotonic_s
from ..config import Options
from ..guard import Guard
from ..service import has_arrived as arrived
from ..service import is_loopback, shown_address
from ..service import watch_peer as watch
from . import parameters as p
from .commands import NOTHING_TO_SAY, PortReply, carry_out, is_claim
from .parameters import NOTHING
from .port import Port, PortGuard
from .wire import Broken, Parser, Request, reply_bytes

CLOSE = (("Connection", "close"),)
SURE_S = 5.0
# How long a client that has closed its sending side may take to acknowledge the last reply.
LAST_WORD_S = 10.0
# How long a client whose request was refused may continue to send before the connection is closed.
LINGER_S = 2.0
DRAIN_S = 10.0
# How long a request may take to arrive: the largest by a slow line. A client without a token could otherwise
# fill the memory for requests that are not whole, and keep it.
READ_S = 60.0
FULL = "503 Too many connections"
BUSY = "503 Too much is being sent"
TOO_SLOW = "408 Request too slow"


class PortServer:
    """A listening port. `start`, and later `drain`."""

    def __init__(self, port: Port, log: Callable[[str], None], guard: PortGuard | None = None) -> None:
        self.port, self.log, self.guard = port, log, guard
        self.connections: set[PortConnection] = set()
        self.buffered = 0
        self.draining = False
        self._server: asyncio.Server | None = None
        self._forgotten: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    async def start(self, host: str, number: int) -> list[str]:
        """Listen; the addresses."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: PortConnection(self), host, number, backlog=1_024)
        return [shown_address(found) for found in self._server.sockets]

    async def drain(self) -> None:
        """Stop listening, finish running requests, answer waiting ones, close all connections."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.drain()
        await self._all_gone()
        for connection in list(self.connections):
            connection.abort()
        await self._all_gone()

    async def _all_gone(self) -> None:
        self._left()
        try:
            await asyncio.wait_for(self._empty.wait(), DRAIN_S)
        except TimeoutError:
            return

    def came(self, connection: "PortConnection") -> None:
        """A client has come."""
        self.connections.add(connection)
        self._empty.clear()

    def went(self, connection: "PortConnection") -> None:
        """A client has gone."""
        self.connections.discard(connection)
        self._left()

    def _left(self) -> None:
        if not self.connections and not self._forgotten:
            self._empty.set()

    def forget(self, request: Request) -> None:
        """Carry out a command whose client does not wait for its end."""
        task = asyncio.get_running_loop().create_task(self._carry_out_unheard(request))
        self._forgotten.add(task)
        self._empty.clear()
        task.add_done_callback(self._done)

    async def _carry_out_unheard(self, request: Request) -> None:
        try:
            answered = await self.carried_out(request)
        except p.PortRefusal:
            return
        self.port.give_back(answered.claimed)

    async def carried_out(self, request: Request) -> PortReply:
        """Execute a request. An unexpected error fails only this request, and is logged."""
        try:
            answered = await carry_out(self.port, request.verb, request.headers)
            if answered.claimed and "wait" in p.connection(request.headers):
                await self._check_again(request, answered)
            return answered
        except p.PortRefusal:
            raise
        except Exception as error:
            # Without its text, which may contain data.
            self.log(f"a command failed: {type(error).__name__}")
            raise p.PortRefusal("500 Unhandled Exception") from error

    async def _check_again(self, request: Request, answered: PortReply) -> None:
        """Refuse a request that has waited, and release its jobs, if its token was revoked meanwhile."""
        if self.guard is None:
            return
        try:
            await self.guard.grant(request.headers, "")
        except BaseException:
            self.port.give_back(answered.claimed)
            raise

    def _done(self, task: asyncio.Task[None]) -> None:
        self._forgotten.discard(task)
        self._left()


class PortConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: PortServer) -> None:
        self._server = server
        self._parser = Parser()
        self._waiting: deque[Request | Broken] = deque()
        self._task: asyncio.Task[None] | None = None
        # Running claims of GetJob; jobs whose reply may not have arrived, and until when that is checked.
        self._claims: list[asyncio.Task[PortReply]] = []
        self._unsure: tuple[c.Claimed, ...] = ()
        self._unsure_until_s = 0.0
        self._half_closed = self._lost = self._closing = self._is_waiting = False
        self._reading, self._writable = True, asyncio.Event()
        self._writable.set()
        # Set when the client has closed its sending side.
        self._ended = asyncio.Event()
        # Bytes that are buffered, and those of complete requests without a reply yet.
        self._buffered = self._ahead = 0
        # Replies to be written together.
        self._outgoing: list[tuple[bytes, tuple[c.Claimed, ...]]] = []
        # The task that decides whether a long head may go on, or has decided that it may.
        self._admission: asyncio.Task[None] | None = None
        # Ends a connection whose request does not become whole.
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        # `pause_writing` and `resume_writing` are called whenever data is unsent, and when none is.
        transport.set_write_buffer_limits(high=0)
        watch(transport)
        if len(self._server.connections) >= PORT_CONNECTIONS:
            self._refuse(FULL)
            return
        self._server.came(self)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; a client that sends again has read the replies before."""
        if self._closing:
            return
        if self._task is None:
            self._unsure = ()
        before, waiting = self._parser.size, len(self._waiting)
        self._waiting.extend(self._parser.feed(data))
        self._time_request(is_next=len(self._waiting) > waiting)
        if self._waiting:
            self._ahead += before + len(data) - self._parser.size
        self._count_buffered(self._parser.size + self._ahead)
        if self._server.buffered > PORT_BUFFERED_BYTES and self._buffered > len(data):
            self._refuse(BUSY)
            return
        is_ahead = len(self._waiting) > PORT_PIPELINED or self._ahead > PORT_PIPELINED_BYTES
        if (is_ahead or self._is_stopped(is_next=len(self._waiting) > waiting)) and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._go_on()

    def eof_received(self) -> bool:
        """The client has closed its sending side: answer its requests, except waiting ones."""
        self._half_closed = True
        self._ended.set()
        if self._is_waiting:
            self._withdraw()
        if self._task is None and self._unsure:
            # Linux tells of the end before it tells of a reset: `_last_word` finds out.
            self._task = asyncio.get_running_loop().create_task(self._serve())
        return self._task is not None

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone."""
        self._lost = self._closing = True
        self._stop_timer()
        self._ended.set()
        self._server.went(self)
        self._count_buffered(0)
        self._waiting.clear()
        self._withdraw()
        was_reset = error is not None and monotonic_s() < self._unsure_until_s
        if self._unsure and (was_reset or isinstance(error, TimeoutError) or not self._writable.is_set()):
            self._give_back()
        self._writable.set()

    def pause_writing(self) -> None:
        """Something is left unsent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """All is on its way."""
        self._unsure_until_s = monotonic_s() + SURE_S
        self._writable.set()

    # One request after the other.

    def _go_on(self) -> None:
        if self._task is None and self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._waiting and not self._closing:
                run = next_run(self._waiting)
                await (self._answer(run[0]) if len(run) == 1 else self._answer_all(run))
                self._claims = []
                self._flush()
                await self._writable.wait()
                if not self._waiting:
                    self._caught_up()
            if self._half_closed or self._closing or self._server.draining:
                await self._last_word()
                if self._parser.over:
                    await self._linger()
                self._transport.close()
        except Exception as error:
            self._server.log(f"a connection failed: {type(error).__name__}")
            self._transport.abort()
        finally:
            self._task = None

    def _caught_up(self) -> None:
        self._ahead = 0
        self._count_buffered(self._parser.size)
        is_stopped = self._admission is not None and not self._admission.done()
        if not self._reading and not self._closing and not is_stopped:
            self._reading = True
            self._transport.resume_reading()

    async def _answer(self, item: Request | Broken) -> None:
        if isinstance(item, Broken):
            self._say(item.status, close=item.final)
            return
        words = p.connection(item.headers)
        if (refusal := await self._refusal(item)) is not None:
            self._say(refusal.status, close="close" in words, detail=refusal.detail)
            return
        if "forget" in words:
            self._server.forget(item)
            self._say("202 Successfully queued", close=True)
            return
        self._is_waiting = is_claim(item.verb) and "wait" in words
        if self._is_waiting and (self._half_closed or self._server.draining):
            self._say(NOTHING)
            return
        command = self._begun(item) if is_claim(item.verb) else self._server.carried_out(item)
        await self._answer_with(command, close="close" in words)

    async def _answer_all(self, run: Sequence[Request | Broken]) -> None:
        """Start all requests of a run before the first is done; their replies are written together."""
        self._is_waiting = False
        requests = [item for item in run if isinstance(item, Request)]
        # Access is checked for all before the first is started, so that they take effect in order.
        refusals = [await self._refusal(item) for item in requests]
        tasks = [
            self._begun(item) if refusal is None else None
            for item, refusal in zip(requests, refusals, strict=True)
        ]
        for at, (task, refusal) in enumerate(zip(tasks, refusals, strict=True)):
            more = at + 1 < len(tasks)
            if task is not None:
                await self._answer_with(task, more=more)
            elif refusal is not None:
                self._say(refusal.status, more=more, detail=refusal.detail)

    async def _refusal(self, request: Request, *, is_counted: bool = True) -> p.PortRefusal | None:
        """The refusal of a request that is not allowed, or None."""
        if self._server.guard is None:
            return None
        try:
            guard, peer = self._server.guard, self._peer
            await guard.check(request.verb, request.headers, peer, is_counted=is_counted)
        except p.PortRefusal as refusal:
            return refusal
        return None

    def _is_stopped(self, *, is_next: bool) -> bool:
        """Whether no more is read until a long head is allowed: a client without a token must not send it."""
        if is_next:
            self._admission = None
        if self._admission is None and self._server.guard is not None and (begun := self._parser.begun):
            self._admission = asyncio.get_running_loop().create_task(self._admit(begun))
        return self._admission is not None and not self._admission.done()

    async def _admit(self, begun: Request) -> None:
        refusal = await self._refusal(begun, is_counted=False)
        if self._closing:
            return
        if refusal is not None:
            self._parser.end()
            self._count_buffered(self._ahead)
            self._waiting.append(Broken(refusal.status, final=True))
        if self._task is None:
            asyncio.get_running_loop().call_soon(self._caught_up if refusal is None else self._go_on)

    def _begun(self, request: Request) -> asyncio.Task[PortReply]:
        task = asyncio.get_running_loop().create_task(self._server.carried_out(request))
        if is_claim(request.verb):
            self._claims.append(task)
        return task

    async def _answer_with(
        self, command: Awaitable[PortReply], *, close: bool = False, more: bool = False
    ) -> None:
        try:
            answered = await command
        except p.PortRefusal as refusal:
            self._say(refusal.status, close=close, more=more, detail=refusal.detail)
        except asyncio.CancelledError:
            if not isinstance(command, asyncio.Task) or not command.cancelled():
                raise
            # Cancelled, because the client has disconnected or the server is closing.
            self._say(NOTHING, close=close, more=more)
        else:
            self._say("200 OK", answered, close=close, more=more)

    def _withdraw(self) -> None:
        """Cancel the claims of a client that has disconnected."""
        for task in self._claims:
            task.cancel()

    def _say(
        self,
        status: str,
        answered: PortReply = NOTHING_TO_SAY,
        *,
        close: bool = False,
        more: bool = False,
        detail: str = "",
    ) -> None:
        """Add a reply to the next `_flush`; `more`: another reply of the same run follows."""
        close = close or (self._server.draining and not more)
        headers = CLOSE if close else ()
        if detail:
            headers = (("error", " ".join(detail.split())), *headers)
        self._outgoing.append((reply_bytes(status, answered.body, headers), answered.claimed))
        self._closing = self._closing or close

    def _flush(self) -> None:
        """Write the replies; release jobs of replies that cannot be sent."""
        outgoing, self._outgoing = self._outgoing, []
        claimed = tuple(one for _, jobs in outgoing for one in jobs)
        if self._lost or self._transport.is_closing():
            self._server.port.give_back(claimed)
            return
        now_s = monotonic_s()
        self._unsure = (*self._unsure, *claimed) if now_s < self._unsure_until_s else claimed
        self._unsure_until_s = now_s + SURE_S
        self._transport.write(b"".join(reply for reply, _ in outgoing))

    async def _last_word(self) -> None:
        """Before closing the connection, wait until the client has received the replies."""
        until_s = monotonic_s() + LAST_WORD_S
        while self._unsure and not self._lost:
            state = arrived(self._transport)
            if state is None and monotonic_s() < until_s:
                await asyncio.sleep(0.005)
                continue
            if state is not True:
                self._give_back()
                # The jobs were released, so the client must not get them any more.
                self._transport.abort()
            self._unsure = ()

    async def _linger(self) -> None:
        """Read and discard what a client still sends after its request was refused.

        Closing with bytes unread would reset the connection, and the client might never see the reply.
        """
        if self._lost or self._transport.is_closing():
            return
        self._transport.write_eof()
        if not self._reading:
            self._transport.resume_reading()
        try:
            await asyncio.wait_for(self._ended.wait(), LINGER_S)
        except TimeoutError:
            return

    def _give_back(self) -> None:
        claimed, self._unsure = self._unsure, ()
        self._server.port.give_back(claimed, was_sent=True)

    # Bounds and the end.

    def _time_request(self, *, is_next: bool) -> None:
        """Limit the time of a request that is not whole; `is_next`: the one before it has just become so."""
        if is_next or not self._parser.is_inside:
            self._stop_timer()
        if self._timer is None and self._parser.is_inside:
            self._timer = asyncio.get_running_loop().call_later(READ_S, self._end_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_slow(self) -> None:
        self._timer = None
        if self._closing:
            return
        if self._task is not None or not self._reading:
            # A request before it is executed, and its reply comes first.
            self._time_request(is_next=False)
            return
        self._refuse(TOO_SLOW)

    def _count_buffered(self, size: int) -> None:
        self._server.buffered += size - self._buffered
        self._buffered = size

    def _refuse(self, status: str) -> None:
        self._waiting.clear()
        self._say(status, close=True)
        self._flush()
        self._transport.close()

    def drain(self) -> None:
        """The server is closing: withdraw a claim that waits, close at once where nothing runs."""
        if self._is_waiting:
            self._withdraw()
        if self._task is None:
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever runs."""
        self._transport.abort()


# Pipelined requests that may be executed together, with one commit and one write for all of them. They are
# consecutive, have the same verb, and are submitted without a read before, so they take effect in the order
# in which they arrived. A request with a `Connection` header, or one that may read first, is executed alone.

# By verb: the parameters with which it reads first.
_READS_BY = {
    "createjob": frozenset(("parentjobid", "repeat", "priority")),
    "getjob": frozenset[str](),
    "getjobs": frozenset[str](),
    "finishjob": frozenset(("data",)),
}


def next_run(waiting: deque[Request | Broken]) -> list[Request | Broken]:
    """Remove and return the first request, and those behind it that may be executed with it."""
    run = [waiting.popleft()]
    if kind := _kind(run[0]):
        while waiting and len(run) < PORT_PIPELINED and _kind(waiting[0]) == kind:
            run.append(waiting.popleft())
    return run


def _kind(item: Request | Broken) -> str:
    """The verb by which requests may be executed together; "" for one that is executed alone."""
    if isinstance(item, Broken) or "connection" in item.headers:
        return ""
    verb = item.verb.lower()
    reads_by = _READS_BY.get(verb)
    return verb if reads_by is not None and reads_by.isdisjoint(item.headers) else ""


class BedrockService:
    """Listens where the options say, for one tenant."""

    name = "bedrock"

    def __init__(
        self, connection: Connection, guard: Guard, options: Options, log: Callable[[str], None]
    ) -> None:
        assert options.bedrock is not None
        self._address, tenant = options.bedrock, options.bedrock_tenant
        self.where = str(self._address)
        port = Port(connection, tenant=tenant, lease_ms=options.bedrock_lease_ms)
        loopback = is_loopback(self._address.host)
        self._server = PortServer(port, log, PortGuard(guard, tenant=tenant, loopback=loopback))

    async def start(self) -> list[str]:
        """Listen; see `Service`."""
        addresses = await self._server.start(self._address.host, self._address.port)
        return [f"job commands on {address}" for address in addresses]

    async def drain(self) -> None:
        """Answer waiting requests, and close; see `Service`."""
        await self._server.drain()
