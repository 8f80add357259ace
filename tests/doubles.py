"""Stores that stand between a queue and its store, so that a test can see or hold up what passes.

`SharedMemory` lets several queues share a memory store as processes share a file. `Gate` keeps a
transaction open, with everything read and written but not yet committed, until another has come as far
as the store lets it: so a race is not hoped for but forced, step by step.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.engine.connection import Connection
from holdfast.engine.engine import Engine
from holdfast.queue.base import BaseQueue
from holdfast.store.common.clock import Clock
from holdfast.store.contract import (
    JOBS,
    NO_WAKE,
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
from holdfast.store.memory.store import MemoryStore

T = TypeVar("T")

# How long a transaction is kept open for the other one to come. Where a store has one writer the other
# never comes, so this is waited for in full.
PATIENCE_S = 0.05


class OnlyBatches:
    """A store whose plain commands are batches too, so that `run` meets everything."""

    def commit(self, changes: Changes) -> bool:
        """Refused."""
        return False

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Refused."""
        return False


class Passing(OnlyBatches, OneStore):
    """A store that passes everything on to another: the base of those that differ in one thing."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def capabilities(self) -> Capabilities:
        """Passed on."""
        return self.store.capabilities

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Passed on."""
        return self.store.run(fn)

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Passed on."""
        return self.store.read(fn, hint=hint)

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Passed on."""
        return self.store.borrow(connection, fn)

    async def lend(self, connection: Any) -> Any:
        """Passed on."""
        return await self.store.lend(connection)

    def now_ms(self) -> int:
        """Passed on."""
        return self.store.now_ms()

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Passed on."""
        return self.store.wait(timeout_s, ends=ends)

    def interrupt(self) -> None:
        """Passed on."""
        self.store.interrupt()

    def stop_retrying(self) -> None:
        """Passed on."""
        self.store.stop_retrying()

    def appear(self, name: str) -> bool:
        """Be seen by all who share the store."""
        return self.store.appear(name)

    def report(self) -> StoreReport:
        """Passed on."""
        return self.store.report()

    def close(self) -> None:
        """Passed on."""
        self.store.close()


class SharedMemory:
    """One memory store behind many doors, each opened and closed like a store of its own."""

    def __init__(self, clock: Clock) -> None:
        self.store = MemoryStore(clock)
        self.doors: set[Door] = set()
        self._pid = os.getpid()

    def open(self) -> Store:
        """Another door to the same jobs. Closing it leaves them where they are."""
        if self._pid != os.getpid():
            # A forked child has a copy of its own, whose lock a thread of the parent may have held.
            self._pid = os.getpid()
            self.store._lock = threading.Lock()
        return Door(self)


class Door(Passing):
    """A way into a shared memory store; telling one wakes those who wait at the others."""

    def __init__(self, shared: SharedMemory) -> None:
        super().__init__(shared.store)
        self._shared = shared
        self._woken = threading.Event()
        self._told = False
        self.heeds_ends = True
        shared.doors.add(self)

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Passed on; then those at the other doors are woken, if the batch says so."""
        wake = NO_WAKE

        def noted(txn: Txn) -> tuple[Changes, T]:
            nonlocal wake
            changes, result = fn(txn)
            wake = changes.wake
            return changes, result

        result = self.store.run(noted)
        self._wake_others(wake)
        return result

    def commit(self, changes: Changes) -> bool:
        """Passed on, likewise."""
        is_done = self.store.commit(changes)
        self._wake_others(changes.wake if is_done else NO_WAKE)
        return is_done

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Passed on."""
        return self.store.lease(query, leased)

    def _wake_others(self, wake: str) -> None:
        for door in self._shared.doors - {self} if wake else ():
            if wake == JOBS or door.heeds_ends:
                door._told = True
                door.interrupt()

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until somebody at another door changed something, or until interrupted."""
        self.heeds_ends = ends
        self._woken.wait(timeout_s)
        self._woken.clear()
        told, self._told = self._told, False
        return told

    def interrupt(self) -> None:
        """Wake whoever waits at this door."""
        self._woken.set()

    def close(self) -> None:
        """This door; the jobs stay."""
        self._shared.doors.discard(self)


def engines(queue: BaseQueue) -> list[Engine]:
    """What writes for a queue: its engine, or those of its shards."""
    engine = queue.connection.engine
    found: list[Engine] = getattr(engine, "engines", [engine])
    return found


def engine_of(connection: Connection) -> Engine:
    """What writes for a connection to one store."""
    engine = connection.engine
    assert isinstance(engine, Engine)
    return engine


class Gate:
    """Two queues whose next transactions are to meet: the first stands open until the second has come.

    `first_is_in` is set once the first has read and written all, and not yet committed. The second
    commits after the first. Whatever is done again, or done later, is not held up.
    """

    def __init__(self, first: BaseQueue, second: BaseQueue) -> None:
        self.first_is_in = threading.Event()
        self._second_is_in = threading.Event()
        self._first_is_out = threading.Event()
        self._place(first, self._hold_first, self._first_is_out)
        self._place(second, self._hold_second, threading.Event())

    def _place(self, queue: BaseQueue, hold: Callable[[], None], out: threading.Event) -> None:
        for engine in engines(queue):
            engine.store = Gated(engine.store, hold, out)

    def _hold_first(self) -> None:
        self.first_is_in.set()
        self._second_is_in.wait(PATIENCE_S)

    def _hold_second(self) -> None:
        self._second_is_in.set()
        self._first_is_out.wait()


class Gated(Passing):
    """A store whose next transaction calls `hold` when all is written and nothing committed.

    Once it is over `out` is set.
    """

    def __init__(self, store: Store, hold: Callable[[], object], out: threading.Event) -> None:
        super().__init__(store)
        self._hold, self._out = hold, out
        self._is_new = True

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Passed on; the first time, held up."""

        def held(txn: Txn) -> tuple[Changes, T]:
            changes, result = fn(txn)
            if not self._is_new:
                return changes, result
            self._is_new = False
            txn.write(changes)
            self._hold()
            return Changes(wake=changes.wake), result

        try:
            return self.store.run(held)
        finally:
            self._out.set()
