"""The sysid of one process on several shards: one number for all of them.

Sysid n is leased by shard n mod N. So no two shards lease the same one, and no single shard is needed by all
processes: while the shard that leased ours is down, another shard leases another number. It is never leased
inside a transaction of jobs, which may be in another shard.
"""

import threading
from collections.abc import Sequence

from ...core import ids
from ...core.errors import HoldfastError, Stopped, StoreError, WouldBlock
from ...store.contract import Store
from ..sysid import IdMaker, IdSource, OwnSysid, StopPeriod


class SharedIds(IdSource):
    """Makes ids for all shards of a process."""

    lends_inside = False

    def __init__(self, shards: Sequence[Store]) -> None:
        super().__init__()
        self._shards = shards
        self._renewing = threading.Lock()

    def adopt(self, maker: IdMaker) -> None:
        """Do nothing: a shard's transaction neither takes nor renews a number."""

    def lease_apart(self, store: Store, seen: OwnSysid | None) -> None:
        """Renew the sysid in the shard that leased it, or else lease another, first from `store`."""
        with self._renewing:
            if self.held is not seen:
                return
            fault: HoldfastError | None = None
            for at in self._order(store):
                try:
                    self._lease(self._shards[at], self._numbers(at))
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
        """An id for a job that is added later, made outside of transactions."""
        stop = StopPeriod()
        while True:
            held = self.held
            tick = self.tick_within(held, now_ms)
            if held is not None and tick is not None:
                return ids.pack(tick, held.number, slot)
            try:
                self.lease_apart(self._shards[slot % len(self._shards)], held)
            except Stopped as error:
                stop.sleep(error)

    def give_back(self, store: Store) -> None:
        """Release the sysid in the shard that leased it, if that is up; otherwise the lease expires."""
        if self.held is not None:
            super().give_back(self._shards[self.held.number % len(self._shards)])
