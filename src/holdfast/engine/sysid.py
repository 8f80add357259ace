"""Sysids: numbers by which processes make ids that nobody else makes.

A sysid is taken in the store with the first write, together with the moment `ids_until_ms`: its holder
makes ids below that moment only, and moves it on while renewing, in the same transaction as whatever
else is written. Whoever has the sysid next starts at or above it. So no id is made twice, whatever
clocks, crashes and expiry do; the lease (`until_ms`) only decides when a number may be used again.
"""

import secrets
import threading
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ..core import ids
from ..core.bounds import SYSID_LEASE_MS
from ..core.errors import StoreFull
from ..core.job import Record
from ..store.contract import Store, Txn
from .records import SYSID

RENEW_MS = SYSID_LEASE_MS // 3


class Sysid(Record, frozen=True, kw_only=True):
    """Who has a number (`token`), until when unless renewed, and below which moment its ids are."""

    token: str
    until_ms: int
    ids_until_ms: int


class IdSource:
    """The sysid of one process on one store."""

    def __init__(self) -> None:
        self.number = 0
        self.lease: Sysid | None = None
        self._last = 0
        self._lock = threading.Lock()

    def begin(self, txn: Txn) -> "IdMaker":
        """The maker of ids for one transaction."""
        return IdMaker(self, txn)

    def adopt(self, maker: "IdMaker") -> None:
        """The transaction was committed: what it took or renewed is ours."""
        self.number, self.lease = maker.number, maker.lease

    def next_ticks(self, count: int, now_ms: int, floor: int) -> range:
        """The next ticks of this process: never the same one twice, also after a transaction that failed."""
        with self._lock:
            ticks = ids.next_ticks(max(self._last, floor - 1), count, now_ms=now_ms)
            self._last = ticks[-1]
            return ticks

    @property
    def last_ms(self) -> int:
        """The moment of the last id made."""
        return ids.time_of(self._last)

    def give_back(self, store: Store) -> None:
        """Free the number for others, who start after the last id that was made."""
        if self.lease is None:
            return
        number, mine = str(self.number), self.lease

        def give(txn: Txn) -> None:
            raw = txn.records(SYSID, [number]).get(number)
            if raw and msgspec.json.decode(raw, type=Sysid).token == mine.token:
                freed = Sysid(token="", until_ms=0, ids_until_ms=self.last_ms + 1)
                txn.put_records(SYSID, {number: msgspec.json.encode(freed)})

        store.run(give)
        self.lease = None


class IdMaker:
    """Makes ids inside one transaction, taking or renewing the sysid there when it must."""

    def __init__(self, source: IdSource, txn: Txn) -> None:
        self._source, self._txn = source, txn
        self.number, self.lease = source.number, source.lease
        self._floor = 0
        self._ticks: Iterator[int] = iter(())

    def owner(self) -> int:
        """The number of this process, held for some time to come."""
        if self.lease is None or self._txn.now_ms > self.lease.until_ms - RENEW_MS:
            self._renew()
        return self.number

    def expect(self, count: int) -> None:
        """So many ids will be asked for: have their ticks at hand, and the right to use them."""
        ticks = self._source.next_ticks(count, self._txn.now_ms, self._floor)
        if self.lease is None or ticks[-1] >= ids.tick_at(self.lease.ids_until_ms):
            self._renew()
            ticks = self._source.next_ticks(count, self._txn.now_ms, self._floor)
        self._ticks = iter(ticks)

    def make(self, *, slot: int | None) -> int:
        """An id that was never made before."""
        tick = next(self._ticks, None)
        if tick is None:
            self.expect(1)
            tick = next(self._ticks)
        return ids.pack(tick, self.number, tick % ids.SLOTS if slot is None else slot)

    def once(self) -> None:
        """Make ids for this transaction alone: the number is free again with its commit."""
        if self.lease is None:
            self._renew()
            assert self.lease is not None
            freed = replace(self.lease, token="", until_ms=0)
            self._txn.put_records(SYSID, {str(self.number): msgspec.json.encode(freed)})

    def _renew(self) -> None:
        held = {
            int(name): msgspec.json.decode(raw, type=Sysid) for name, raw in self._txn.records(SYSID).items()
        }
        now_ms = self._txn.now_ms
        mine = held.get(self.number)
        if self.lease is None or mine is None or mine.token != self.lease.token:
            self.number = _free_number(held, now_ms)
            taken = held.get(self.number)
            self._floor = ids.tick_at(taken.ids_until_ms) if taken else 0
            # Ticks at hand were another number's: below the floor they may not be this one's.
            self._ticks = iter(())
        ahead = max(now_ms, self._source.last_ms, ids.time_of(self._floor))
        token = self.lease.token if self.lease else secrets.token_hex(8)
        self.lease = Sysid(token=token, until_ms=now_ms + SYSID_LEASE_MS, ids_until_ms=ahead + SYSID_LEASE_MS)
        self._txn.put_records(SYSID, {str(self.number): msgspec.json.encode(self.lease)})


def _free_number(held: dict[int, Sysid], now_ms: int) -> int:
    """One that was given back and whose ids are past, else a new one, else one whose lease ran out."""
    free = sorted(
        (s.ids_until_ms, n) for n, s in held.items() if s.until_ms <= now_ms and n >= ids.FIRST_SYSID
    )
    if free and free[0][0] <= now_ms:
        return free[0][1]
    fresh = next((n for n in range(ids.FIRST_SYSID, ids.SYSIDS) if n not in held), None)
    if fresh is not None:
        return fresh
    if free:
        return free[0][1]
    raise StoreFull(
        f"all {ids.SYSIDS - ids.FIRST_SYSID:,} process numbers of this store are taken; try again in a minute"
    )
