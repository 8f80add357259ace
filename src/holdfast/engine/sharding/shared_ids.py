"""The sysid of one process on several shards: one number for all of them.

Number n is lent by shard n mod N, so no two shards lend the same one and no shard is needed by all: where
the one that lent ours cannot be reached, another lends another. It is never taken inside a transaction
of jobs, which may be on another shard than the number.
"""

import threading
from collections.abc import Sequence

from ...core import ids
from ...core.errors import HoldfastError, StoreError, WouldBlock
from ...store.contract import Store
from ..sysid import Held, IdMaker, IdSource


class SharedIds(IdSource):
    """Makes ids for all shards of a process."""

    lends_inside = False

    def __init__(self, shards: Sequence[Store]) -> None:
        super().__init__()
        self._shards = shards
        self._renewing = threading.Lock()

    def adopt(self, maker: IdMaker) -> None:
        """Do nothing: a shard's transaction neither takes nor renews a number."""

    def ahead(self, store: Store, seen: Held | None) -> None:
        """Renew the number where it was lent; else take another, first from `store`."""
        with self._renewing:
            if self.held is not seen:
                return
            fault: HoldfastError | None = None
            for at in self._order(store):
                try:
                    self._ahead(self._shards[at], self._numbers(at))
                    return
                except (StoreError, WouldBlock) as error:
                    fault = fault or error
            assert fault is not None
            raise fault

    def _order(self, store: Store) -> list[int]:
        first = next((at for at, shard in enumerate(self._shards) if shard is store), 0)
        rest = [(first + step) % len(self._shards) for step in range(len(self._shards))]
        return rest if self.held is None else [self.held.number % len(self._shards), *rest]

    def _numbers(self, at: int) -> range:
        of = len(self._shards)
        first = next(n for n in range(ids.FIRST_SYSID, ids.SYSIDS) if n % of == at)
        return range(first, ids.FIRST_JOURNAL_SYSID, of)

    def make(self, slot: int, now_ms: int) -> int:
        """An id outside of any transaction, for a job that is yet to be added."""
        while True:
            held = self.held
            tick = self.tick_within(held, now_ms)
            if held is not None and tick is not None:
                return ids.pack(tick, held.number, slot)
            self.ahead(self._shards[slot % len(self._shards)], held)

    def give_back(self, store: Store) -> None:
        """Free the number where it was lent, if that can be reached; its ids are past soon anyway."""
        if self.held is not None:
            super().give_back(self._shards[self.held.number % len(self._shards)])
