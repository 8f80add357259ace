"""The HTTP server of `holdfast serve`: listens, disconnects slow clients, and drains."""

import asyncio
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.server import ServerState

from ...engine.connection import Connection
from ...queue.connect import shown_url
from ...store.common.clock import monotonic_s
from ..config import Options
from ..dashboard.app import Dashboard
from ..dashboard.view import HandlerTrials
from ..guard import Guard
from ..service import DRAIN_S, is_loopback, shown_address
from .api import application
from .exchange import Exchange
from .protocol import LimitedProtocol

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
