"""What opens the connection of an address. The engine is imported when a store is connected, not before."""

from collections.abc import Callable

from ..store.contract import AnyStore
from .connection import Connection, Reopen


class ConnectionMaker:
    """Opens the connection of an address."""

    def __call__(self) -> AnyStore:
        """The store of the address alone; `BadInput` where it is a server's."""
        raise NotImplementedError

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        """A new connection."""
        raise NotImplementedError


class StoreMaker(ConnectionMaker):
    """Opens the store of an address."""

    def __init__(self, make: Callable[[], AnyStore], reopen: Reopen | None = None) -> None:
        self._make, self.reopen = make, reopen

    def __call__(self) -> AnyStore:
        """The store of the address."""
        return self._make()

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        """A connection to the store."""
        from .store_connection import StoreConnection

        return StoreConnection(self(), reopen=self.reopen, retention_ms=retention_ms, rng=rng)


def open_connection(
    maker: ConnectionMaker | Callable[[], AnyStore],
    *,
    retention_ms: int | None = None,
    rng: Callable[[], float],
) -> Connection:
    """A connection to what `maker` opens: a store, or what an address leads to."""
    if not isinstance(maker, ConnectionMaker):
        maker = StoreMaker(maker)
    return maker.connect(retention_ms=retention_ms, rng=rng)
