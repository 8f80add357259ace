"""The HTTP server of `holdfast serve`: listens, disconnects slow clients, and drains.

Connections have limits: how many, how large their headers, how slow they may be.

    idle ── first byte ──▶ head ── all headers ──▶ body ── whole ──▶ answered ──▶ idle
             │ HEAD_S, 64 KB       │ LEAST_BYTES_PER_S                  │ nothing read for WRITE_S
             ▼                     ▼                                    ▼
            408, 431              408                                  cut off

The parser and all else is uvicorn's. `sweep` is called once a second for all connections: a timer for each
would cost more than looking.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ...core.bounds import HTTP_HEAD_BYTES
from ...engine.connection import Connection
from ...queue.connect import shown_url
from ...store.common.clock import monotonic_s
from ..config import Options
from ..dashboard.app import Dashboard
from ..dashboard.view import HandlerTrials
from ..guard import Guard
from ..service import DRAIN_S, is_loopback, shown_address
from ..service import has_arrived as arrived
from .api import application
from .exchange import UNLESS_ARRIVED, Exchange
from .problems import TYPE, problem

HEAD_S = 10.0
LEAST_BYTES_PER_S = 1_024
WRITE_S = 30.0
# How long a client that was refused may go on sending: hanging up at once would lose the reply.
LINGER_S = 2.0
# For so long after a reply a reset says that the client has not read it; and how often it is looked for.
SURE_S, ARRIVAL_POLL_S = 5.0, 0.005
_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class LimitedProtocol(HttpToolsProtocol):
    """One client."""

    # The maximum number of connections, set by the service.
    most_connections = 1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        # When the first byte of a request came that is not whole; 0: none is under way.
        self._begun_s = self._stuck_s = 0.0
        # What has come since the last byte of a body: headers or trailers.
        self._head_bytes = self._body_bytes = 0
        self._is_head = self._is_refused = False
        # Gives back what the reply has claimed, until it is known that the reply has arrived.
        self._unsure: Callable[[], None] | None = None
        self._is_unsure_sent, self._unsure_until_s = False, 0.0
        if len(self.connections) > self.most_connections:
            self._refuse(503, "CONNECTIONS", "there are too many connections; wait and connect again")

    def data_received(self, data: bytes) -> None:
        """Bytes came; a client that sends again has read the reply before."""
        if self._is_unsure_sent:
            self._unsure = None
        if self._is_refused or self.transport.is_closing():
            return
        if not self._begun_s:
            self._begun_s, self._is_head = monotonic_s(), True
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HTTP_HEAD_BYTES:
            self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins, perhaps behind another in the same bytes."""
        self._begun_s, self._is_head = self._begun_s or monotonic_s(), True
        super().on_message_begin()
        self.scope[UNLESS_ARRIVED] = self._do_unless_arrived  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header came; one behind the body, a trailer, is dropped: it must not pass for a header."""
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is whole."""
        self._is_head, self._head_bytes, self._body_bytes = False, 0, 0
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > HTTP_HEAD_BYTES:
            self._refuse_head()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body came."""
        self._head_bytes, self._body_bytes = 0, self._body_bytes + len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._begun_s, self._head_bytes = 0.0, 0
        super().on_message_complete()

    # Replies that must arrive

    def _do_unless_arrived(self, give_back: Callable[[], None]) -> None:
        """Have this called if the reply that is sent next does not arrive at the client."""
        if self.transport.is_closing():
            give_back()
            return
        self._unsure, self._is_unsure_sent = give_back, False

    def on_response_complete(self) -> None:
        """A reply was written, which does not mean that it has arrived."""
        self._is_unsure_sent, self._unsure_until_s = self._unsure is not None, monotonic_s() + SURE_S
        super().on_response_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client has closed its sending side: perhaps before it got the reply.

        Linux tells of the end before it tells of a reset, so the connection stays until the reply is
        acknowledged; but one with TLS, which cannot.
        """
        if self._unsure is None or not self._is_unsure_sent or monotonic_s() > self._unsure_until_s:
            return False
        if self.transport.get_extra_info("ssl_object") is None:
            self._await_arrival(monotonic_s() + SURE_S)
            return True
        if not arrived(self.transport):
            self._give_back()
        return False

    def _await_arrival(self, until_s: float) -> None:
        state = arrived(self.transport)
        if state is None and monotonic_s() < until_s:
            self.loop.call_later(ARRIVAL_POLL_S, self._await_arrival, until_s)
            return
        if not state:
            self._give_back()
        self._unsure = None
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone. A reset soon after the reply says that it has not read it."""
        was_sent = self._is_unsure_sent and (exc is None or monotonic_s() > self._unsure_until_s)
        if not was_sent or self.transport.get_write_buffer_size():
            self._give_back()
        self._unsure = None
        super().connection_lost(exc)

    def _give_back(self) -> None:
        if self._unsure is not None:
            self._unsure()
            self._unsure = None

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent."""
        self._stuck_s = monotonic_s()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read."""
        self._stuck_s = 0.0
        super().resume_writing()

    def sweep(self, now_s: float) -> None:
        """Cut the connection off if its client is too slow."""
        if self.transport.is_closing():
            # The client does not read the reply that closes its connection.
            if self._stuck_s and now_s - self._stuck_s > WRITE_S:
                self.transport.abort()
            return
        if self._stuck_s and now_s - self._stuck_s > WRITE_S:
            self.transport.abort()
            return
        if not self._begun_s or self.flow.read_paused:
            return
        late_s = now_s - self._begun_s - HEAD_S - self._body_bytes / LEAST_BYTES_PER_S
        if late_s > 0:
            self._end(408, "TOO_SLOW", "the request came too slowly")

    def _end(self, status: int, code: str, detail: str) -> None:
        """Say why the connection ends, unless a reply is under way already."""
        if self.cycle is not None and not self._is_head and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(status, code, detail)

    def _refuse_head(self) -> None:
        needed = f"at most {HTTP_HEAD_BYTES:,} bytes of headers"
        self._end(431, "TOO_LARGE", f"the headers are too large; the server takes {needed}")

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP."""
        self._refuse(400, "BAD_REQUEST", "this is no HTTP request that the server understands")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused, self._begun_s = True, 0.0
        body = problem(status, code, detail)
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {TYPE}\r\n"
            f"x-content-type-options: nosniff\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()


SWEEP_S = 1.0
# How long a connection without a request is held.
IDLE_S = 300
HANDSHAKE_S = 10.0


class HttpService:
    """Listens where the options say."""

    name = "http"

    def __init__(self, connection: Connection, guard: Guard, options: Options) -> None:
        assert options.http is not None
        self._options, self._address = options, options.http
        self.where = str(self._address)
        self._exchange = Exchange(
            connection,
            guard,
            loopback=is_loopback(self._address.host),
            max_body_bytes=options.max_body_bytes,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> list[str]:
        """Listen; see `Service`."""
        tls, most = self._options.tls, self._options.max_connections
        router = application(self._exchange)
        shown = shown_url(self._options.store) if self._options.store else ""
        key = self._options.session_key.encode() or None
        options = self._options
        trials = (
            HandlerTrials(options.runners, private_hosts=options.private_hosts) if options.handlers else None
        )
        Dashboard(self._exchange, store=shown, is_tls=tls is not None, key=key, trials=trials).add_to(router)
        # The application says itself what it logs, and needs no start of its own.
        config = Config(
            router,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # Any client could claim to come from another address.
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
        )
        config.load()

        class Protocol(LimitedProtocol):
            most_connections = most

        self._server = await asyncio.get_running_loop().create_server(
            lambda: Protocol(config, self._state, {}),
            self._address.host,
            self._address.port,
            ssl=None if tls is None else tls.context(),
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
            backlog=2_048,
        )
        self._sweeper = asyncio.create_task(self._sweep())
        scheme = "http" if tls is None else "https"
        return [f"{scheme} on {shown_address(one)}" for one in self._server.sockets]

    async def drain(self) -> None:
        """Answer waiting requests, and close; see `Service`."""
        self._exchange.draining.set()
        if self._server is not None:
            self._server.close()
        until_s = monotonic_s() + DRAIN_S
        while self._state.connections and monotonic_s() < until_s:
            for one in list(self._state.connections):
                one.shutdown()
            await asyncio.sleep(0.01)
        for task in list(self._state.tasks):
            task.cancel()
        for one in list(self._state.connections):
            one.transport.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=1.0)
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._exchange.decoding.close()

    async def _sweep(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now_s = monotonic_s()
            for one in list(self._state.connections):
                assert isinstance(one, LimitedProtocol)
                one.sweep(now_s)
            await asyncio.sleep(SWEEP_S)
