"""Connections: commands and queries in, replies out. One to a store goes along where the store has moved.

    command ──▶ the committer of a store, or the lanes of several ──┐
    query   ──▶ a view of the store, in the thread that asks      ──┴─Moved─▶ open the address in the notice
                                                                     it bears the move's token: ask there
                                                                     no, or it is not there: Moved

Nothing can be written to a store that has moved, so whatever is asked again was not done. The process keeps
its number, its claims and its ids, which have moved too. The address in a notice has no password: one's own
is used for the same user on the same server, and never sent anywhere else.
"""

import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from ..core import commands as c
from ..core.errors import Closed, HoldfastError, Moved
from ..core.moving import Notice, Standing, read_notice
from ..core.queries import Query
from ..store.common.clock import monotonic_s
from ..store.contract import ReadTxn, Store
from .asking import Asking
from .committer import Committer
from .engine import Engine
from .queries import ANSWERED
from .ticket import Ticket

if TYPE_CHECKING:
    from .sharding.lanes import Lanes

T = TypeVar("T")
Reopen = Callable[[str], Store | None]
# From one store to the next, and the next: more is a circle.
HOPS = 8
# How long a new store is waited for that is about to be opened.
PATIENCE_S, NAP_S = 30.0, 0.05

log = logging.getLogger("holdfast")


Way = Union[Committer, "Lanes"]


class Connection(Asking):
    """What queues, workers and doors ask, for threads and coroutines: a store, or a server that has one."""

    @property
    def engine(self) -> Engine:
        """The engine of the store as it is now; `BadInput` where there is none in this process."""
        raise NotImplementedError

    @property
    def store(self) -> Store:
        """The store as it is now; `BadInput` where there is none in this process."""
        return self.engine.store

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command, or answer a query, and return its reply; what it raised is raised here."""
        raise NotImplementedError

    def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """The same in this event loop."""
        raise NotImplementedError

    def appear(self, name: str) -> bool:
        """Be seen under a name by all who share the store; False: it cannot tell, see `Store.appear`."""
        raise NotImplementedError

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever progress or a log may have moved: a hint.

        It is called from another thread, must return at once and never raise.
        """
        raise NotImplementedError

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        raise NotImplementedError

    def close(self) -> None:
        """Commit what was put in, and let go of everything."""
        raise NotImplementedError


class ConnectionMaker:
    """Opens the connection of an address."""

    def __call__(self) -> Store:
        """The store of the address alone; `BadInput` where it is a server's."""
        raise NotImplementedError

    def connect(self, *, retention_ms: int | None, dice: Callable[[], float]) -> Connection:
        """A new connection."""
        raise NotImplementedError


class StoreMaker(ConnectionMaker):
    """Opens the store of an address.

    `reopen` opens the store of another address, that this one has moved to; None: it is not there.
    """

    def __init__(self, make: Callable[[], Store], reopen: Reopen | None = None) -> None:
        self._make, self.reopen = make, reopen

    def __call__(self) -> Store:
        """The store of the address."""
        return self._make()

    def connect(self, *, retention_ms: int | None, dice: Callable[[], float]) -> Connection:
        """A connection to the store."""
        return StoreConnection(self(), reopen=self.reopen, retention_ms=retention_ms, dice=dice)


class StoreConnection(Connection):
    """The way to a store."""

    def __init__(
        self,
        store: Store,
        *,
        reopen: Reopen | None = None,
        retention_ms: int | None = None,
        dice: Callable[[], float],
    ) -> None:
        self._reopen, self._dice = reopen, dice
        self._listeners: list[Callable[[], None]] = []
        self._names: list[str] = []
        self._left: list[Way] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._way = self._open(store, retention_ms)

    def _open(self, store: Store, retention_ms: int | None) -> "Way":
        engine = open_engine(store, retention_ms=retention_ms, dice=self._dice)
        if store.capabilities.is_sharded:
            # Not imported by those who have one store, whose first add must not wait for it.
            from .sharding.lanes import Lanes

            return Lanes(cast(Any, engine), self if self._reopen else None)
        return Committer(engine, divert=partial(self._divert, engine) if self._reopen else None)

    @property
    def engine(self) -> Engine:
        """The engine of the store as it is now."""
        return self._way.engine

    @property
    def store(self) -> Store:
        """The store as it is now."""
        return self._way.engine.store

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command, or answer a query, and return its reply; what it raised is raised here."""
        if type(asked) in ANSWERED:
            return self._query(asked)  # type: ignore[arg-type]
        return self._way.ask(asked, wait_s=wait_s)  # type: ignore[arg-type]

    def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """The same in this event loop; a query is answered in a thread, as others wait for the loop."""
        if type(asked) in ANSWERED:
            import asyncio

            return asyncio.to_thread(self._query, asked)  # type: ignore[arg-type]
        return Asking.ask_async(self, asked, wait_s=wait_s)  # type: ignore[arg-type]

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        self._way.submit(ticket)

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Put in many; one that cannot be is answered so."""
        self._way.submit_all(tickets)

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for a caller that went away."""
        self._way.give_back(ticket)

    def _query(self, query: Query) -> Any:
        """The reply to a query, asked again where the store has moved."""
        for _ in range(HOPS):
            engine = self._way.engine
            try:
                return engine.query(query)
            except Moved as moved:
                self.go(engine, moved)
        return self._way.engine.query(query)

    def appear(self, name: str) -> bool:
        """See `Store.appear`; in the next store too."""
        with self._lock:
            self._names.append(name)
        return self.store.appear(name)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever progress or a log may have moved: a hint; in the next store too."""
        with self._lock:
            self._listeners.append(listener)
            self._way.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            self._way.unlisten(listener)

    def close(self) -> None:
        """Commit what was put in, and let go of all stores."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            ways = [self._way, *self._left]
        for way in ways:
            way.close()

    # Where the store has moved

    def _divert(self, engine: Engine, ticket: Ticket, error: Exception) -> bool:
        return isinstance(error, Moved) and self.take(ticket, error, by=engine)

    def take(self, ticket: Ticket, moved: Moved, *, by: Engine) -> bool:
        """Put a command in anew which an engine has answered `Moved`; False: there is no way."""
        try:
            self.go(by, moved)
            self.submit(ticket)
        except (Moved, Closed):
            return False
        return True

    def ask_there(self, command: c.Command, moved: Moved, *, by: Engine) -> Any:
        """The reply to a command which an engine has answered `Moved`."""
        self.go(by, moved)
        return self.ask(command)

    def go(self, left: Engine, moved: Moved) -> None:
        """Leave the way of an engine, if it is the one in use; raises `moved` if there is no other."""
        with self._lock:
            if self._way.engine is not left:
                # Another thread was faster.
                return
            if self._is_closed:
                raise moved
            way = self._open(self._found(moved), None)
            way.engine.ids.go_on(left.ids)
            for name in self._names:
                way.engine.store.appear(name)
            for listener in self._listeners:
                self._way.unlisten(listener)
                way.listen(listener)
            # Not closed: another thread may be at it, or wait there.
            self._left.append(self._way)
            self._way, before = way, self._way
        before.engine.store.interrupt()

    def _found(self, moved: Moved) -> Store:
        """The store that this one has moved to, or raise `moved`."""
        try:
            found = self._reopen(moved.address) if self._reopen else None
        except HoldfastError:
            found = None
        if found is None:
            raise moved
        if not _is_the_one(found, moved):
            found.close()
            raise moved
        log.warning("the store has moved to %s, and is used there; change its address", moved.address)
        return found


def open_engine(store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> Engine:
    """The engine of a store."""
    if store.capabilities.is_sharded:
        from .sharding.sharded import ShardedEngine

        return ShardedEngine(cast(Any, store), retention_ms=retention_ms, dice=dice)
    return Engine(store, retention_ms=retention_ms, dice=dice)


def open_connection(
    maker: ConnectionMaker | Callable[[], Store],
    *,
    retention_ms: int | None = None,
    dice: Callable[[], float],
) -> Connection:
    """A connection to what `maker` opens: a store, or what an address leads to."""
    if not isinstance(maker, ConnectionMaker):
        maker = StoreMaker(maker)
    return maker.connect(retention_ms=retention_ms, dice=dice)


def _is_the_one(store: Store, moved: Moved) -> bool:
    """Whether a store was filled by that move; one that is about to be opened is waited for."""
    until_s = monotonic_s() + PATIENCE_S
    doors = cast(Any, store).shards if store.capabilities.is_sharded else (store,)
    return all(_is_filled(door, moved, until_s) for door in doors)


def _is_filled(store: Store, moved: Moved, until_s: float) -> bool:
    while True:
        try:
            notice = store.read(_notice)
        except HoldfastError:
            return False
        if notice is None or not moved.token:
            return False
        if notice.standing is not Standing.FILLING:
            return notice.origin == moved.token
        if notice.token != moved.token or monotonic_s() >= until_s:
            return False
        sleep(NAP_S)


def _notice(txn: ReadTxn) -> Notice | None:
    raw = txn.notice()
    return read_notice(raw) if raw else None
