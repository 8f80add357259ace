"""`holdfast serve`: one process that opens the doors onto one store, until it is told to stop.

    open the store ──▶ open each door ──▶ start workers ──▶ ready ──▶ upkeep, until SIGTERM or SIGINT
                                                                          │
    close the store ◀── drain each door ◀── drain workers ◀───────────────┘

A door beyond loopback needs clients with tokens: without one in the store the server does not start.
"""

import asyncio
import random
import signal
from collections.abc import Callable, Iterator

from ..core import commands as c
from ..core import queries as q
from ..core.errors import BadInput, HoldfastError, StoreMissing, Unavailable
from ..core.token import Token
from ..engine.connection import Connection, open_connection
from ..queue.connect import is_shared, journaled, shown_url, store_maker
from ..work.runners.isolation import find_isolation
from ..work.runners.settings import read_settings
from .config import Options
from .door import Door
from .guard import Guard
from .worker_process import HandlerProcess, WorkerProcess

# Upkeep runs at least this often, so that readers see due and expired jobs even if no worker claims.
MOST_UPKEEP_S = 5.0
LEAST_UPKEEP_S = 0.1
NO_TOKEN = (
    "a loopback address, as the store has no token that a client could show; make one: "
    "holdfast token create NAME --store {store}"
)


class App:
    """The doors of one process."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options, self._log = options, log
        self._open_addresses = options.beyond_loopback()
        if options.tls is not None:
            # What is wrong with its files is said before anything is opened.
            options.tls.context()
        # A store that is to be guarded must be there already, with a token in it.
        maker = store_maker(options.store, join=False, create=not self._open_addresses)
        self._make_store = journaled(maker, options.journal or None)
        self._stopping = asyncio.Event()

    async def run(self, ready: Callable[[list[str]], None]) -> None:
        """Serve until a signal comes; `ready` is told of the addresses once all doors are open."""
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
        """Begin to stop; what runs comes to its end first."""
        self._stopping.set()

    async def _serve(self, connection: Connection, ready: Callable[[list[str]], None]) -> None:
        await self._check_store(connection)
        await self._check_tokens(connection)
        guard = Guard(connection, always=self._options.token_always, rate=self._options.rate)
        started: list[Door] = []
        upkeep: asyncio.Task[None] | None = None
        try:
            lines: list[str] = []
            for door in (*self._doors(connection, guard), *await self._workers(connection)):
                lines += await _opened(door)
                started.append(door)
            ready(lines)
            upkeep = asyncio.create_task(self._upkeep(connection))
            await self._stopping.wait()
            self._log("draining")
        finally:
            if upkeep is not None:
                upkeep.cancel()
            for door in reversed(started):
                await door.drain()

    def _doors(self, connection: Connection, guard: Guard) -> Iterator[Door]:
        options = self._options
        if options.http is not None:
            from .http.door import HttpDoor

            yield HttpDoor(connection, guard, options)
        if options.grpc is not None:
            from .grpc.door import GrpcDoor

            yield GrpcDoor(connection, guard, options.grpc, tls=options.tls)
        if options.bedrock is not None:
            from .bedrock.door import BedrockDoor

            yield BedrockDoor(connection, guard, options, self._log)

    async def _workers(self, connection: Connection) -> list[Door]:
        options, store = self._options, self._options.store
        found: list[Door] = [WorkerProcess(names, store=store, log=self._log) for names in options.workers]
        if options.handlers and is_shared(store):
            isolation = await asyncio.to_thread(find_isolation, read_settings(options.runners))
            self._log(f"handlers: {isolation.describe()}")
            found.append(
                HandlerProcess(
                    connection,
                    store=store,
                    runners=options.runners,
                    private_hosts=not self._open_addresses,
                    journal=options.journal,
                    log=self._log,
                )
            )
        return found

    async def _check_store(self, connection: Connection) -> None:
        """The store must be there before anybody is told that it is, unless a journal stands in for it."""
        try:
            await connection.ask_async(c.Upkeep())
        except Unavailable as error:
            if not self._options.journal:
                raise
            self._log(f"jobs are kept in {self._options.journal} for now: {error}")

    async def _check_tokens(self, connection: Connection) -> None:
        """Refuse to serve an open door through which no client could come."""
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
            await asyncio.sleep(min(max(left_s, LEAST_UPKEEP_S), MOST_UPKEEP_S))


def _has_token(connection: Connection) -> bool:
    tokens: list[Token] = connection.ask(q.ListTokens())
    now_ms: int = connection.ask(q.GetTime())
    return any(not token.expires_at or token.expires_at > now_ms for token in tokens)


async def _opened(door: Door) -> list[str]:
    """Where a door listens; `BadInput` where it cannot."""
    try:
        return await door.start()
    except OSError as error:
        needed = f"free, and of this machine ({error.strerror or error})"
        raise BadInput(door.name, door.where, needed=needed) from None
