"""Servers in the test's own process: each queue has one to itself, in front of the store that all share.

So whatever is asked goes over gRPC, and a test may still look into the store, and stand in its way.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from holdfast.engine.connection import Connection
from holdfast.engine.engine import AnyEngine
from holdfast.engine.makers import ConnectionMaker
from holdfast.engine.store_connection import StoreConnection
from holdfast.remote.address import ServerAddress as RemoteAddress
from holdfast.remote.connection import RemoteConnection
from holdfast.serve.grpc.service import GrpcService
from holdfast.serve.grpc.stream import Stream
from holdfast.serve.guard import Guard
from holdfast.serve.service import ListenAddress
from holdfast.store.contract import AnyStore

# How long a server may take to start or to end.
PATIENCE_S = 60.0


class _Loop:
    """The event loop of all servers, in a thread: a process of `holdfast serve` has one, too.

    It ends with the last of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = 0

    def start(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
        """Start a server; what is returned is done when the server has ended."""
        with self._lock:
            if not self._servers:
                self._loop, self._last = asyncio.new_event_loop(), asyncio.Event()
                self._thread = threading.Thread(target=self._run, name="holdfast-served")
                self._thread.start()
            self._servers += 1
        return asyncio.run_coroutine_threadsafe(serve(), self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop."""
        self._loop.call_soon_threadsafe(function)

    def end(self) -> None:
        """One server less."""
        with self._lock:
            self._servers -= 1
            if not self._servers:
                self.call(self._last.set)
                self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_last())

    async def _until_last(self) -> None:
        await self._last.wait()


LOOP = _Loop()


class Served:
    """A gRPC server."""

    def __init__(self, connection: Connection, *, always: bool = False, rate: float = 0.0) -> None:
        self.connection, self._always, self._rate = connection, always, rate
        self._guard: Guard | None = None
        self.port = 0
        self._start()

    def _start(self) -> None:
        self._ready, self._stopping = threading.Event(), asyncio.Event()
        self._ended = LOOP.start(self._run)
        assert self._ready.wait(PATIENCE_S)

    async def _run(self) -> None:
        self._guard = Guard(self.connection, always=self._always, rate=self._rate)
        door = self._door = GrpcService(self.connection, self._guard, ListenAddress("127.0.0.1", self.port))
        await door.start()
        self.port = door.port
        self._ready.set()
        await self._stopping.wait()
        await door.drain()

    def forget_tokens(self) -> None:
        """Have tokens looked up anew, as if a second had passed."""
        assert self._guard is not None
        self._guard._known.clear()

    def forget_lent_ids(self) -> None:
        """Know no more which ids were reserved, as a server that has just started."""
        self._door._reservations._by_tenant.clear()

    def waiting_calls(self) -> int:
        """How many unary calls wait."""
        return len(self._door._calls._waiting)

    def pending(self) -> int:
        """How many commands of streams are on their way, or wait."""
        return sum(len(stream._pending) + len(stream.waits) for stream in list(self._door._streams))

    def given_up(self) -> list[Stream]:
        """Streams whose clients do not read."""
        return [stream for stream in list(self._door._streams) if stream._is_given_up]

    def restart(self, port: int) -> None:
        """Drain the server, and start another on its port."""
        self.close()
        self.port = port
        self._start()

    def close(self) -> None:
        """Drain the server; the connection stays open."""
        LOOP.call(self._stopping.set)
        self._ended.result(PATIENCE_S)
        LOOP.end()


class ServedConnection(RemoteConnection):
    """A connection over gRPC to a server of its own, into whose engine a test may look."""

    def __init__(self, served: Served) -> None:
        super().__init__(RemoteAddress("127.0.0.1", served.port))
        self._served = served

    @property
    def engine(self) -> AnyEngine:  # type: ignore[override]
        """The server's."""
        return self._served.connection.engine

    def close(self) -> None:
        """And the server."""
        super().close()
        self._served.close()
        self._served.connection.close()


class ServedMaker(ConnectionMaker):
    """Opens servers in front of one store, each as another process would, and connections to them."""

    def __init__(self, open_store: Callable[[], AnyStore]) -> None:
        self._open_store = open_store

    def __call__(self) -> AnyStore:
        """The store itself."""
        return self._open_store()

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        """A connection to a new server."""
        return ServedConnection(
            Served(StoreConnection(self._open_store(), retention_ms=retention_ms, rng=rng))
        )
