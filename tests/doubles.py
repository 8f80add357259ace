"""Stores that stand between a queue and its store, so that a test can see or hold up what passes.

`SharedMemory` lets several queues share a memory store as processes share a file. `Gate` keeps a
transaction open, with everything read and written but not yet committed, until another has come as far
as the store lets it: so a race is not hoped for but forced, step by step.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.engine.engine import Engine
from holdfast.queue.base import BaseQueue
from holdfast.store.common.clock import Clock
from holdfast.store.contract import ReadTxn, Store, Txn
from holdfast.store.memory.store import MemoryStore

T = TypeVar("T")

# How long a transaction is kept open for the other one to come. Where a store has one writer the other
# never comes, so this is waited for in full.
PATIENCE_S = 0.05


class Passing:
    """A store that passes everything on to another: the base of those that differ in one thing."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Passed on."""
        return self.store.run(fn)

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Passed on."""
        return self.store.read(fn)

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Passed on."""
        return self.store.borrow(connection, fn)

    def now_ms(self) -> int:
        """Passed on."""
        return self.store.now_ms()

    def wait(self, timeout_s: float) -> bool:
        """Passed on."""
        return self.store.wait(timeout_s)

    def notify(self, *, ends: bool = False) -> None:
        """Passed on."""
        self.store.notify(ends=ends)

    def interrupt(self) -> None:
        """Passed on."""
        self.store.interrupt()

    def appear(self, name: str) -> bool:
        """Be seen by all who share the store."""
        return self.store.appear(name)

    def check(self) -> list[str]:
        """Passed on."""
        return self.store.check()

    def facts(self) -> dict[str, str]:
        """Passed on."""
        return self.store.facts()

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
            self.store._lock = threading.RLock()
        return Door(self)


class Door(Passing):
    """A way into a shared memory store; telling one wakes those who wait at the others."""

    def __init__(self, shared: SharedMemory) -> None:
        super().__init__(shared.store)
        self._shared = shared
        self._woken = threading.Event()
        shared.doors.add(self)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until somebody at another door changed something, or until interrupted."""
        woken = self._woken.wait(timeout_s)
        self._woken.clear()
        return woken

    def notify(self, *, ends: bool = False) -> None:
        """Wake those at the other doors."""
        for door in self._shared.doors - {self}:
            door.interrupt()

    def interrupt(self) -> None:
        """Wake whoever waits at this door."""
        self._woken.set()

    def close(self) -> None:
        """This door; the jobs stay."""
        self._shared.doors.discard(self)


def engines(queue: BaseQueue) -> list[Engine]:
    """What writes for a queue: its engine, or those of its shards."""
    engine = queue.line.committer.engine
    found: list[Engine] = getattr(engine, "engines", [engine])
    return found


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

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Passed on; the first time, held up."""

        def held(txn: Txn) -> T:
            result = fn(txn)
            if self._is_new:
                self._is_new = False
                self._hold()
            return result

        try:
            return self.store.run(held)
        finally:
            self._out.set()
