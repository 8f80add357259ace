"""A store inside the transactions of an application: what they roll back is not there. For tests.

    run, read   a connection of the application, in a transaction ▶ SAVEPOINT ▶ fn(txn) ▶ Changes ▶ RELEASE

It opens nothing itself and commits nothing: other connections see its jobs when the application commits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import sleep
from typing import Any, TypeVar

from ...core.errors import Conflict, Contended
from ..contract import (
    NOTHING,
    TRIES,
    Capabilities,
    Changes,
    ClaimQuery,
    Leased,
    OneStore,
    ReadTxn,
    StoreReport,
    Txn,
)
from .lending import lend_nothing

T = TypeVar("T")
Fn = Callable[[Txn], tuple[Changes, T]]


class InsideStore(OneStore):
    """A store whose batches and views are all on connections that `transaction()` enters and yields.

    `borrow` calls `fn` on such a connection, and creates the tables there if there are none.
    """

    capabilities = Capabilities(reads_locally=True)

    def __init__(
        self,
        borrow: Callable[[Any, Fn[Any]], Any],
        transaction: Callable[[], AbstractContextManager[Any]],
        where: str,
    ) -> None:
        self._borrow, self._transaction, self._where = borrow, transaction, where

    def run(self, fn: Fn[T]) -> T:
        """Call `fn` as a part of the transaction that is open."""
        for _ in range(TRIES):
            try:
                with self._transaction() as connection:
                    return self.borrow(connection, fn)
            except Conflict:
                continue
        raise Contended(f"{self._where}: a batch was done {TRIES} times, and each time something had changed")

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on what the transaction sees."""
        return self.run(lambda txn: (NOTHING, fn(txn)))

    def borrow(self, connection: Any, fn: Fn[T]) -> T:
        """Call `fn` in a transaction of the caller's."""
        result: T = self._borrow(connection, fn)
        return result

    def commit(self, changes: Changes) -> bool:
        """False: there are only batches."""
        return False

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """False: there are only batches."""
        return False

    lend = staticmethod(lend_nothing)

    def now_ms(self) -> int:
        """The time of the batches."""
        return self.read(lambda txn: txn.now_ms)

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep: no other process can have committed what this thread waits for."""
        sleep(min(timeout_s, 0.05))
        return timeout_s > 0.05

    def interrupt(self) -> None:
        """Nothing to do: `wait` is short."""

    def appear(self, name: str) -> bool:
        """False: it is not known which processes are running."""
        return False

    def report(self) -> StoreReport:
        """Where it is."""
        return StoreReport({"store": self._where}, [])

    def stop_retrying(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: the connections are the application's."""
