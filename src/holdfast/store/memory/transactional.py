"""Memory that takes part in transactions of other libraries, for tests of code with `connection=`.

add(connection=…) ─▶ the changes are kept, with a mark in the caller's transaction
                          committed    they are made when the store is next used
                          rolled back  they are dropped, also where that is a savepoint's
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...core.errors import Contended
from ..common.clock import Clock, monotonic_s
from ..contract import Capabilities, Changes, ClaimQuery, Leased, ReadTxn, Txn
from .data import roll_back
from .store import MemoryStore
from .txn import MemoryTxn

T = TypeVar("T")
# How often a waiting claim looks for commits.
POLL_S = 0.05


class TransactionMark(ABC):
    """A mark in an open transaction of a caller's."""

    # The driver's connection, or the session.
    owner: Any

    @abstractmethod
    def is_in_transaction(self) -> bool:
        """Whether the transaction that is now open on the owner has the mark; called by its user alone."""

    @abstractmethod
    def state(self) -> bool | None:
        """Whether it was committed; None while its transaction is open. Called by any thread."""


class Pending(NamedTuple):
    """What a transaction that is open has written."""

    mark: TransactionMark
    written: list[Changes]


class RecordingTxn(MemoryTxn):
    """A batch that also lists what it writes."""

    written: list[Changes]

    def write(self, changes: Changes) -> None:
        """Write, and list it."""
        self.written.append(changes)
        super().write(changes)


class TransactionalMemory(MemoryStore):
    """The memory store, which also takes part in transactions of other libraries."""

    # Numbers are taken apart: two transactions may be open at once.
    capabilities = Capabilities(reads_locally=True, ids_apart=True)

    def __init__(
        self,
        clock: Clock,
        *,
        mark: Callable[[Any], TransactionMark],
        lend: Callable[[Any], Awaitable[Any]],
    ) -> None:
        super().__init__(clock)
        self._mark, self._lend = mark, lend
        self._pending: list[Pending] = []
        # Whether a transaction was committed since the last `wait`.
        self._has_news = False

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn`; what it writes is made with the commit of the caller's transaction."""
        mark = self._mark(connection)
        self._settle()
        with self._lock:
            before = [p for p in self._pending if p.mark.owner is mark.owner and p.mark.is_in_transaction()]
            txn = RecordingTxn(self._data, self._clock(), None)
            try:
                txn.written = []
                for pending in before:
                    for changes in pending.written:
                        txn.write(changes)
                txn.written = []
                last, result = fn(txn)
                txn.write(last)
            finally:
                roll_back(self._data.undo_log)
            self._pending.append(Pending(mark, txn.written))
        return result

    async def lend(self, connection: Any) -> Any:
        """Wrap an asyncio connection, or mark its transaction."""
        return await self._lend(connection)

    def _settle(self) -> None:
        """Make the changes of transactions that were committed, and drop those that were rolled back."""
        with self._lock:
            states = [(pending, pending.mark.state()) for pending in self._pending]
            self._pending = [pending for pending, state in states if state is None]
            for pending, is_committed in states:
                self._has_news = self._has_news or bool(is_committed)
                if is_committed and not self._keep(partial(self._write, pending)):
                    raise Contended("a committed transaction changed a job that has changed since")

    def _write(self, pending: Pending) -> None:
        txn = MemoryTxn(self._data, self._clock(), None)
        for changes in pending.written:
            txn.write(changes)

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """See `MemoryStore.run`."""
        self._settle()
        return super().run(fn)

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """See `MemoryStore.read`."""
        self._settle()
        return super().read(fn, hint=hint)

    def commit(self, changes: Changes) -> bool:
        """See `MemoryStore.commit`."""
        self._settle()
        return super().commit(changes)

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """See `MemoryStore.lease`."""
        self._settle()
        return super().lease(query, leased)

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until interrupted, or until a transaction was committed: none tells of it, so this polls."""
        until_s = monotonic_s() + timeout_s
        while not self._has_news:
            left_s = until_s - monotonic_s()
            is_interrupted = left_s <= 0 or self._signal.acquire(timeout=min(left_s, POLL_S))
            self._settle()
            if is_interrupted:
                break
        has_news, self._has_news = self._has_news, False
        return has_news
