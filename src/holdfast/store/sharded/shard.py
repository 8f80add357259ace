"""One shard of a sharded store: opened when it is first needed, and not called while it is down.

    up ──── a StoreError ────▶ down      every call fails at once
     ▲                          │        a thread probes it every second
     └────── it answers ────────┘

So only the call that finds the shard down waits for a time-out.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.errors import (
    Closed,
    Contended,
    SchemaMismatch,
    StoreError,
    StoreMissing,
    Unavailable,
    Unsettled,
)
from ...core.kinds import SHARD
from ..common.clock import monotonic_s, system_clock
from ..contract import (
    NOTHING,
    AnyStore,
    Capabilities,
    Changes,
    ClaimQuery,
    Leased,
    OneStore,
    ReadTxn,
    Store,
    StoreReport,
    Txn,
)

T = TypeVar("T")
V = TypeVar("V")

# The interval at which a shard that is down is probed.
TRIED_EVERY_S = 1.0
# The key of the row in which a store keeps its shard number and the number of shards.
MARK = "which"


class Shard(OneStore):
    """One store of a `ShardedStore`; itself a store."""

    # The capabilities of the store are unknown until it is opened. Ids are allocated before joining a
    # caller's transaction, because another shard may allocate them.
    capabilities = Capabilities(ids_apart=True)

    def __init__(
        self,
        number: int,
        of: int,
        name: str,
        open_store: Callable[[], AnyStore],
        create_store: Callable[[], AnyStore] | None = None,
        is_any_there: Callable[[], bool] = lambda: False,
    ) -> None:
        self.number, self.of, self.name = number, of, name
        self._open_store, self._create_store = open_store, create_store
        self._is_any_there = is_any_there
        self._store: Store | None = None
        self._is_known = False
        self._lock = threading.Lock()
        # Why the shard is down; None: it is up.
        self._fault: StoreError | None = None
        self._prober: threading.Thread | None = None
        # The last reading of its clock, and our monotonic time of it.
        self._reading: tuple[int, float] | None = None
        self._closed = threading.Event()

    @property
    def is_up(self) -> bool:
        """Whether calls are passed on to the store."""
        return self._fault is None

    @property
    def title(self) -> str:
        """The name of the shard in messages."""
        return f"shard {self.number} of {self.of} ({self.name})"

    def commit(self, changes: Changes) -> bool:
        """See `Store.commit`; `Unavailable` while the shard is down."""
        return self._guarded(lambda store: store.commit(changes))

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """See `Store.lease`; `Unavailable` while the shard is down."""
        return self._guarded(lambda store: store.lease(query, leased))

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """See `Store.run`; `Unavailable` while the shard is down."""
        return self._guarded(lambda store: store.run(_foreign(fn)))

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """See `Store.read`; `Unavailable` while the shard is down."""
        return self._guarded(lambda store: store.read(_foreign(fn), hint=hint))

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """See `Store.borrow`. An error, which may be the caller's, does not mark the shard as down."""
        return self._opened().borrow(connection, fn)

    async def lend(self, connection: Any) -> Any:
        """See `Store.lend`."""
        return await self._opened().lend(connection)

    def now_ms(self) -> int:
        """The shard's clock, or an estimate while it is down: processes that wait must not fail."""
        try:
            now_ms = self._guarded(lambda store: store.now_ms())
        except StoreError:
            if self._reading is None:
                return system_clock()
            return self._reading[0] + int((monotonic_s() - self._reading[1]) * 1000)
        self._reading = (now_ms, monotonic_s())
        return now_ms

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """See `Store.wait`; while the shard is down, sleep for the whole time."""
        if not self.is_up:
            return self._closed.wait(timeout_s)
        return self._opened().wait(timeout_s, ends=ends)

    def interrupt(self) -> None:
        """Wake up the shard's `wait`."""
        if self._store is not None:
            self._store.interrupt()

    def stop_retrying(self) -> None:
        """See `Store.stop_retrying`."""
        if self._store is not None:
            self._store.stop_retrying()

    def appear(self, name: str) -> bool:
        """See `Store.appear`; `Unavailable` while the shard is down."""
        return self._guarded(lambda store: store.appear(name))

    def report(self) -> StoreReport:
        """The store's report, with the shard's name in its complaints."""
        facts, complaints = self._guarded(lambda store: store.report())
        return StoreReport(facts, [f"{self.title}: {text}" for text in complaints])

    def close(self) -> None:
        """Stop the probing thread and close the store."""
        self._closed.set()
        if self._prober is not None:
            self._prober.join()
        if self._store is not None:
            self._store.close()

    def _opened(self) -> Store:
        with self._lock:
            if self._closed.is_set() and self._store is None:
                raise Closed
            if self._store is None:
                (self._store,) = self._open_store().shards
            return self._store

    def _guarded(self, ask: Callable[[Store], T]) -> T:
        fault = self._fault
        if fault is not None:
            raise self._refusal(fault) from None
        try:
            return ask(self._known())
        except (Contended, SchemaMismatch):
            # The store works. That of another version is not down: this process must be upgraded.
            raise
        except _Foreign as error:
            raise error.fault from None
        except StoreError as error:
            self._went_down(error)
            raise self._refusal(error, Unsettled if isinstance(error, Unsettled) else Unavailable) from error

    def _refusal(self, fault: StoreError, kind: type[Unavailable] = Unavailable) -> StoreError:
        if isinstance(fault, StoreMissing):
            return StoreMissing(self.title)
        return kind(f"{self.title} cannot be used: {fault}")

    def _known(self) -> Store:
        """The open store, after a check that it is the shard it was opened as."""
        store = self._opened()
        if not self._is_known and self.of > 1:
            try:
                self._mark(store)
            except StoreMissing:
                # The queue exists if any of its shards does: nothing was written to this one yet.
                if self._create_store is None or not self._is_any_there():
                    raise
                store = self._created(self._create_store, instead=store)
                self._mark(store)
        self._is_known = True
        return store

    def _created(self, create: Callable[[], AnyStore], *, instead: Store) -> Store:
        with self._lock:
            # Another thread may have created it already.
            if self._store is None or self._store is instead:
                instead.close()
                (self._store,) = create().shards
            return self._store

    def exists(self) -> bool:
        """Whether the store exists and can be read."""
        try:
            self._opened().read(lambda txn: txn.now_ms)
        except StoreError:
            return False
        return True

    def _mark(self, store: Store) -> None:
        """Check the store's shard number, or write it to a new store; jobs in a wrong shard would be lost."""
        mine = f"{self.number}/{self.of}".encode()
        found = store.read(lambda txn: txn.rows(SHARD, [MARK]).get(MARK))
        if found is None:
            found = store.run(lambda txn: _marked(txn, mine))
        if found != mine:
            what = "a store of its own" if not found else f"shard {found.decode().replace('/', ' of ')}"
            raise StoreError(
                f"{self.name} is {what}, and was opened as shard {self.number} of {self.of}; "
                "name the same stores, as many and in the same order, as when the queue was made"
            )

    def _went_down(self, error: StoreError) -> None:
        with self._lock:
            if self._fault is None and not self._closed.is_set():
                self._fault = error
                self._prober = threading.Thread(target=self._probe, name="holdfast-prober", daemon=True)
                self._prober.start()

    def _probe(self) -> None:
        while not self._closed.wait(TRIED_EVERY_S):
            try:
                self._known().read(lambda txn: txn.moments())
            except StoreError as error:
                self._fault = error
            except Exception:
                # Not an outage: the next caller gets the error.
                self._fault = None
                return
            else:
                self._fault = None
                return


class _Foreign(Exception):
    """An error from another store inside a batch or view; it does not mark this shard as down."""

    def __init__(self, fault: StoreError) -> None:
        self.fault = fault


def _foreign(fn: Callable[[V], T]) -> Callable[[V], T]:
    def call(txn: V) -> T:
        try:
            return fn(txn)
        except StoreError as error:
            raise _Foreign(error) from error

    return call


def _marked(txn: Txn, mine: bytes) -> tuple[Changes, bytes]:
    """The store's shard number, written if there is none; b"" for a store that has jobs but no number."""
    found = txn.rows(SHARD, [MARK]).get(MARK)
    if found is not None:
        return NOTHING, found
    if txn.counts():
        return NOTHING, b""
    return Changes(rows={(SHARD, MARK): mine}), mine
