"""`holdfast serve`: one process with the servers of one store, until a signal stops it.

    open the store ──▶ start servers ──▶ start workers ──▶ ready ──▶ upkeep, until SIGTERM or SIGINT
                                                                         │
    close the store ◀── drain servers ◀── drain workers ◀────────────────┘

On an address beyond loopback clients need tokens: if the store has none, the server does not start.
"""

import asyncio
import random
import signal
from collections.abc import Callable, Iterator

from ..core import commands as c
from ..core import queries as q
from ..core import redaction
from ..core.errors import BadInput, HoldfastError, StoreMissing, Unavailable
from ..core.token import Token
from ..engine.connection import Connection
from ..engine.makers import open_connection
from ..queue.connect import is_shared, journaled, shown_url, store_maker
from ..work.runners.isolation import find_isolation
from ..work.runners.settings import read_settings
from .config import Options
from .guard import Guard
from .service import DRAIN_S, Service, listen_error
from .worker_process import HandlerProcess, WorkerProcess

# Upkeep runs at least this often, so that readers see due and expired jobs even if no worker claims.
MOST_UPKEEP_S = 5.0
LEAST_UPKEEP_S = 0.1
NO_TOKEN = (
    "a loopback address, as the store has no token that a client could show; make one: "
    "holdfast token create NAME --store {store}"
)

NO_UPLOADS = (
    "this server takes handlers that are code only over loopback, because it cannot confine them: {reason}; "
    "install bubblewrap, or start it with --trust-uploads"
)


class ServerApp:
    """The services of one process."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options, self._log = options, log
        self._open_addresses = options.beyond_loopback()
        redaction.configure(options.hidden_words)
        if options.tls is not None:
            # Errors in its files are raised before anything is opened.
            options.tls.context()
        # A store that needs tokens must already exist, with a token in it.
        maker = store_maker(options.store, join=False, create=not self._open_addresses)
        self._make_store = journaled(maker, options.journal or None)
        self._stopping = asyncio.Event()

    async def run(self, ready: Callable[[list[str]], None]) -> None:
        """Serve until a signal; `ready` gets the addresses once all services have started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            await self._run(ready)
        except StoreMissing:
            raise self._unguarded() from None

    async def _run(self, ready: Callable[[list[str]], None]) -> None:
        connection = open_connection(self._make_store, rng=random.random)
        try:
            await self._serve(connection, ready)
        finally:
            await asyncio.to_thread(connection.close)

    def stop(self) -> None:
        """Begin to stop; running requests finish first."""
        self._stopping.set()

    async def _serve(self, connection: Connection, ready: Callable[[list[str]], None]) -> None:
        await self._check_store(connection)
        await self._check_tokens(connection)
        options = self._options
        no_code = await self._check_isolation() if options.handlers and is_shared(options.store) else ""
        guard = Guard(connection, always=options.token_always, no_code=no_code, rate=options.rate)
        started: list[Service] = []
        upkeep: asyncio.Task[None] | None = None
        try:
            lines: list[str] = []
            for service in (*self._services(connection, guard), *await self._workers(connection)):
                lines += await _opened(service)
                started.append(service)
            ready(lines)
            upkeep = asyncio.create_task(self._upkeep(connection))
            await self._stopping.wait()
            self._log(f"finishing open requests, at most {DRAIN_S:g} s")
        finally:
            if upkeep is not None:
                upkeep.cancel()
            for service in reversed(started):
                await service.drain()

    def _services(self, connection: Connection, guard: Guard) -> Iterator[Service]:
        options = self._options
        if options.http is not None:
            from .http.service import HttpService

            yield HttpService(connection, guard, options)
        if options.grpc is not None:
            from .grpc.service import GrpcService

            yield GrpcService(connection, guard, options.grpc, tls=options.tls)
        if options.bedrock is not None:
            from .bedrock.server import BedrockService

            yield BedrockService(connection, guard, options, self._log)

    async def _workers(self, connection: Connection) -> list[Service]:
        options, store = self._options, self._options.store
        found: list[Service] = [WorkerProcess(names, store=store, log=self._log) for names in options.workers]
        if options.handlers and is_shared(store):
            found.append(
                HandlerProcess(
                    connection,
                    store=store,
                    runners=options.runners,
                    slots=options.handler_slots,
                    private_hosts=options.private_hosts,
                    journal=options.journal,
                    log=self._log,
                )
            )
        return found

    async def _check_isolation(self) -> str:
        """Log how handlers are confined; returns why clients of other machines may upload none, or ""."""
        settings = read_settings(self._options.runners)
        isolation = await asyncio.to_thread(find_isolation, settings)
        self._log(f"handlers: {isolation.describe()}")
        if isolation.bwrap or self._options.trust_uploads:
            return ""
        return NO_UPLOADS.format(reason=isolation.reason)

    async def _check_store(self, connection: Connection) -> None:
        """Check that the store can be used, unless there is a journal to keep jobs meanwhile."""
        try:
            await connection.ask_async(c.Upkeep())
        except Unavailable as error:
            if not self._options.journal:
                raise
            self._log(f"jobs are kept in {self._options.journal} for now: {error}")

    async def _check_tokens(self, connection: Connection) -> None:
        """Refuse to serve an address beyond loopback if the store has no token."""
        if self._open_addresses and not await asyncio.to_thread(_has_token, connection):
            raise self._unguarded()

    def _unguarded(self) -> BadInput:
        name, address = self._open_addresses[0]
        return BadInput(name, str(address), needed=NO_TOKEN.format(store=shown_url(self._options.store)))

    async def _upkeep(self, connection: Connection) -> None:
        while True:
            left_s = MOST_UPKEEP_S
            try:
                next_ms: int | None = await connection.ask_async(c.Upkeep())
                if next_ms is not None:
                    left_s = (next_ms - await connection.ask_async(q.GetTime())) / 1000
            except HoldfastError as error:
                self._log(f"upkeep: {error}")
            except Exception as error:
                # It goes on: without upkeep no delayed job would start. Its type alone: there may be data in
                # its text.
                self._log(f"upkeep failed: {type(error).__name__}")
            await asyncio.sleep(min(max(left_s, LEAST_UPKEEP_S), MOST_UPKEEP_S))


def _has_token(connection: Connection) -> bool:
    tokens: list[Token] = q.ask_all(connection.ask, q.ListTokens())
    now_ms: int = connection.ask(q.GetTime())
    return any(not token.expires_at or token.expires_at > now_ms for token in tokens)


async def _opened(service: Service) -> list[str]:
    """Start a service; raise `BadInput` if it cannot listen."""
    try:
        return await service.start()
    except OSError as error:
        raise listen_error(service.name, service.where, error) from None
