"""A connection to a store in this process. It follows its store when that has moved.

    command ──▶ the committer of a store, or the router of shards ──┐
    query   ──▶ a read of the store, in the caller's thread       ──┴─Moved─▶ open the address in the notice
                                                                     it has the move's token: ask there
                                                                     no, or it does not exist: Moved

Nothing can be written to a store that has moved, so a command that is asked again was not executed. The
process keeps its sysid, its claims and its ids, which have moved too. The address in a notice has no
password: the own one is used for the same user on the same server, and never sent elsewhere.
"""

import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, Union

from ..core import commands as c
from ..core.errors import Closed, HoldfastError, Moved
from ..core.moving import Standing
from ..core.queries import Query
from ..store.common.clock import monotonic_s
from ..store.contract import AnyStore, Store
from .committer import Committer
from .connection import OWN_THREADS, Connection, Reopen
from .engine import AnyEngine, Engine
from .records import find_notice
from .ticket import Ticket

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from .metrics import CommitMeter
    from .sharding.router import ShardRouter

# The most moves that are followed in a row: more would be a circle.
HOPS = 8
# How long to wait for a new store that is about to open.
PATIENCE_S, NAP_S = 30.0, 0.05

log = logging.getLogger("holdfast")


StoreSubmitter = Union[Committer, "ShardRouter"]


class StoreConnection(Connection):
    """A connection to a store in this process."""

    def __init__(
        self,
        store: AnyStore,
        *,
        reopen: Reopen | None = None,
        retention_ms: int | None = None,
        rng: Callable[[], float],
    ) -> None:
        self._reopen, self._rng = reopen, rng
        self._listeners: list[Callable[[], None]] = []
        self._names: list[str] = []
        self._meter: CommitMeter | None = None
        self._left: list[StoreSubmitter] = []
        # Not `_lock`, which is held while another store is opened: coroutines take this one.
        self._pools_lock = threading.Lock()
        self._pools: dict[type, ThreadPoolExecutor] = {}
        self._is_closed = False
        self._lock = threading.Lock()
        self._submitter = self._open(store, retention_ms)

    def _open(self, store: AnyStore, retention_ms: int | None) -> "StoreSubmitter":
        if len(store.shards) > 1:
            # Imported here, so that the first add on a single store does not wait for it.
            from .sharding.router import ShardRouter
            from .sharding.sharded import ShardedEngine

            shards = ShardedEngine(store, retention_ms=retention_ms, rng=self._rng)
            return ShardRouter(shards, self if self._reopen else None)
        engine = Engine(store.shards[0], retention_ms=retention_ms, rng=self._rng)
        return Committer(engine, divert=partial(self._divert, engine) if self._reopen else None)

    @property
    def engine(self) -> AnyEngine:
        """The engine of the store as it is now."""
        return self._submitter.engine

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command or query and return its reply; raises its error."""
        if asked.is_query:
            return self._query(asked)  # type: ignore[arg-type]
        return self._submitter.ask(asked, wait_s=wait_s)  # type: ignore[arg-type]

    def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """Run a command or query, awaiting its reply; a query runs in a thread, to not block the loop."""
        if type(asked) in OWN_THREADS:
            return self._query_in_pool(asked)  # type: ignore[arg-type]
        if asked.is_query:
            import asyncio

            return asyncio.to_thread(self._query, asked)  # type: ignore[arg-type]
        return super().ask_async(asked, wait_s=wait_s)

    async def _query_in_pool(self, query: Query) -> Any:
        """Run a query in the threads of its type."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        kind = type(query)
        with self._pools_lock:
            if self._is_closed:
                raise Closed
            if kind not in self._pools:
                name = f"holdfast-{kind.__name__}"
                self._pools[kind] = ThreadPoolExecutor(OWN_THREADS[kind], thread_name_prefix=name)
            asked = self._pools[kind].submit(self._query, query)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if asked.cancelled() and self._is_closed and task is not None and not task.cancelling():
                raise Closed from None
            raise

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        self._submitter.submit(ticket)

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Submit several commands; one that cannot be submitted is answered with the error."""
        self._submitter.submit_all(tickets)

    def _query(self, query: Query) -> Any:
        """Run a query, again on the new store if this one has moved; returns its reply."""
        for _ in range(HOPS):
            engine = self._submitter.engine
            try:
                return engine.query(query)
            except Moved as moved:
                self.switch_store(engine, moved)
        return self._submitter.engine.query(query)

    def appear(self, name: str) -> bool:
        """See `Store.appear`; in the next store too."""
        with self._lock:
            self._names.append(name)
        return self.store.appear(name)

    def measure(self, meter: "CommitMeter") -> None:
        """Have commits measured, also after a move."""
        with self._lock:
            self._meter = meter
            self._submitter.engine.measure(meter)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed; also after a move."""
        with self._lock:
            self._listeners.append(listener)
            self._submitter.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            self._submitter.unlisten(listener)

    def close(self) -> None:
        """Commit what is pending, and close all stores."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            submitters = [self._submitter, *self._left]
        with self._pools_lock:
            pools = [*self._pools.values()]
        # Their queries may try a store that is down, until it is closed.
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for submitter in submitters:
            submitter.close()
        for pool in pools:
            pool.shutdown()

    # After a move of the store

    def _divert(self, engine: Engine, ticket: Ticket, error: Exception) -> bool:
        return isinstance(error, Moved) and self.resubmit(ticket, error, by=engine)

    def resubmit(self, ticket: Ticket, moved: Moved, *, by: AnyEngine) -> bool:
        """Submit a command again that an engine has answered with `Moved`; False if there is no submitter.

        If the new store refuses it, such as a job that belongs to two of its shards, it is answered so.
        """
        try:
            self.switch_store(by, moved)
        except HoldfastError:
            return False
        self.submit_all([ticket])
        return True

    def ask_there(self, command: c.Command, moved: Moved, *, by: AnyEngine) -> Any:
        """Ask again for a command that an engine has answered with `Moved`; returns its reply."""
        self.switch_store(by, moved)
        return self.ask(command)

    def switch_store(self, left: AnyEngine, moved: Moved) -> None:
        """Open the new store, unless another thread has; raises `moved` if there is none."""
        with self._lock:
            if self._submitter.engine is not left:
                # Another thread has opened it.
                return
            if self._is_closed:
                raise moved
            submitter = self._open(self._open_moved(moved), None)
            submitter.engine.ids.go_on(left.ids)
            if self._meter is not None:
                submitter.engine.measure(self._meter)
            try:
                for name in self._names:
                    submitter.engine.store.appear(name)
            except HoldfastError:
                submitter.close()
                raise moved from None
            for listener in self._listeners:
                self._submitter.unlisten(listener)
                submitter.listen(listener)
            # Not closed: another thread may be using it, or wait there.
            self._left.append(self._submitter)
            self._submitter, before = submitter, self._submitter
        for shard in before.engine.store.shards:
            shard.interrupt()

    def _open_moved(self, moved: Moved) -> AnyStore:
        """Open and return the store that this one has moved to; raises `moved` if that fails."""
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


def _is_the_one(store: AnyStore, moved: Moved) -> bool:
    """Whether a store was filled by this move; waits for one that is about to open."""
    until_s = monotonic_s() + PATIENCE_S
    return all(_is_filled(one, moved, until_s) for one in store.shards)


def _is_filled(store: Store, moved: Moved, until_s: float) -> bool:
    while True:
        try:
            notice = store.read(find_notice)
        except HoldfastError:
            return False
        if notice is None or not moved.token:
            return False
        if notice.standing is not Standing.FILLING:
            return notice.origin == moved.token
        if notice.token != moved.token or monotonic_s() >= until_s:
            return False
        sleep(NAP_S)
