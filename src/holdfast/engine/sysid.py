"""Sysids: numbers with which processes make unique ids without asking the store for each.

A process leases a sysid with its first write, together with a time `ids_until_ms`. It makes ids below that
time only, and extends it when it renews the lease, in the same transaction as its other writes. The next
holder of the sysid starts at or above that time. So no id is made twice, whatever clocks, crashes and expiry
do; the end of the lease (`until_ms`) only decides when a number may be leased again.
"""

import os
import threading
from time import sleep
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..core import ids
from ..core.bounds import SYSID_LEASE_MS
from ..core.commands import NewJob
from ..core.errors import Stopped, StoreFull
from ..core.job import Record
from ..core.kinds import SYSID
from ..core.layout import ROW_RECORDS
from ..core.moving import check_open
from ..core.units import iso
from ..store.common.clock import monotonic_s
from ..store.contract import NOTHING, Changes, RowKey, Store, Txn

RENEW_MS = SYSID_LEASE_MS // 3
# How long a write waits for a store that is stopped during a move, and how often it is tried.
STOPPED_S, STOPPED_NAP_S = 30.0, 0.05
# The sysids of processes; in a sharded queue each shard leases a part of them.
NUMBERS = range(ids.FIRST_SYSID, ids.FIRST_JOURNAL_SYSID)
SLOTS = range(ids.SLOTS)


class StopPeriod:
    """How long one write waits for a store that is stopped during a move, from now on."""

    def __init__(self) -> None:
        self._until_s = monotonic_s() + STOPPED_S

    def sleep(self, error: Stopped) -> None:
        """Sleep until the next try; raise the error if the time has passed."""
        if monotonic_s() >= self._until_s:
            raise error
        sleep(STOPPED_NAP_S)


class Sysid(Record, frozen=True, kw_only=True):
    """The lease of a sysid: its holder (`token`), its end, and the times between which its ids are.

    `ids_from_ms` is kept for journals, which say themselves up to where they made ids.
    """

    token: str
    until_ms: int
    ids_until_ms: int
    ids_from_ms: int = 0


ROW_RECORDS[SYSID] = Sysid


class OwnSysid(NamedTuple):
    """A sysid, its stored lease, and the range of ticks in which this process may make ids."""

    number: int
    lease: Sysid
    floor: int
    end: int


class OutOfNumbers(Exception):
    """A sysid or its renewal is needed, but this transaction is on a shard that does not lease it."""

    def __init__(self, held: OwnSysid | None) -> None:
        self.held = held


class IdSource:
    """The sysid of one process on one store."""

    # Whether the sysid is leased and renewed in the transactions that need it.
    lends_inside = True

    def __init__(self) -> None:
        # One attribute, replaced as a whole: callers' threads read it while the committer writes.
        self.held: OwnSysid | None = None
        # Leased inside a caller's transaction: valid if that was committed, which the store shows later.
        self.tentative: OwnSysid | None = None
        self._last = 0
        self._lock = threading.Lock()

    def adopt(self, maker: "IdMaker") -> None:
        """Take over the lease that a committed transaction took or renewed."""
        with self._lock:
            # Of several concurrent transactions, the lease that ends last; one may have had none.
            if maker.held is None or (self.held and maker.held.lease.until_ms < self.held.lease.until_ms):
                return
            self.held, self.tentative = maker.held, None

    def lease_apart(self, store: Store, seen: OwnSysid | None) -> None:
        """Lease or renew the sysid in a separate transaction, unless that was done since `seen`."""
        if self.held is seen:
            self._lease(store, NUMBERS)

    def _lease(self, store: Store, numbers: range) -> None:
        makers: list[IdMaker] = []

        def fn(txn: Txn) -> tuple[Changes, None]:
            check_open(txn.notice(), writes=True)
            makers.append(IdMaker(self, txn, SLOTS))
            makers[-1].lease(numbers)
            return Changes(rows=makers[-1].rows), None

        store.run(fn)
        self.held, self.tentative = makers[-1].held, None

    def go_on(self, before: "IdSource") -> None:
        """Continue as the source `before`, in the store to which its jobs were moved."""
        self.held, self._last = before.held, before._last

    def next_ticks(self, count: int, now_ms: int, floor: int) -> range:
        """The next ticks of this process; none is used twice, even after a failed transaction."""
        with self._lock:
            last = self._last if self._last >= floor else floor - 1
            ticks = ids.next_ticks(last, count, now_ms=now_ms)
            self._last = ticks[-1]
            return ticks

    def ticks_within(self, held: OwnSysid | None, count: int, now_ms: int) -> range | None:
        """The next ticks if they are within the lease; otherwise None, and no tick is used."""
        if held is None:
            return None
        with self._lock:
            last = self._last if self._last >= held.floor else held.floor - 1
            ticks = ids.next_ticks(last, count, now_ms=now_ms)
            if ticks[-1] >= held.end:
                return None
            self._last = ticks[-1]
            return ticks

    def tick_within(self, held: OwnSysid | None, now_ms: int) -> int | None:
        """The next tick; see `ticks_within`."""
        if held is None:
            return None
        first = (now_ms - ids.EPOCH_MS) << ids.SEQUENCE_BITS
        with self._lock:
            last = self._last if self._last >= held.floor else held.floor - 1
            tick = first if first > last else last + 1
            if tick >= held.end:
                return None
            self._last = tick
            return tick

    @property
    def last_ms(self) -> int:
        """The time part of the last id made."""
        return ids.time_of(self._last)

    def is_low(self, count: int, now_ms: int) -> bool:
        """Whether the lease, or its range of ids, ends soon, given `count` more ids."""
        held = self.held
        if held is None or now_ms > held.lease.until_ms - RENEW_MS:
            return True
        last_ms = max(now_ms, self.last_ms) + count // ids.SEQUENCES
        return last_ms > held.lease.ids_until_ms - RENEW_MS

    def give_back(self, store: Store) -> None:
        """Release the sysid; the next holder starts after the last id that was made."""
        if self.held is None:
            return
        number, mine, floor = str(self.held.number), self.held.lease, self.held.floor

        def give(txn: Txn) -> tuple[Changes, None]:
            check_open(txn.notice(), writes=True)
            raw = txn.rows(SYSID, [number]).get(number)
            if raw and msgspec.json.decode(raw, type=Sysid).token == mine.token:
                until_ms = max(self.last_ms + 1, ids.time_of(floor))
                freed = Sysid(token="", until_ms=0, ids_until_ms=until_ms)
                return Changes(rows={(SYSID, number): msgspec.json.encode(freed)}), None
            return NOTHING, None

        store.run(give)
        self.held = None


class IdMaker:
    """Makes ids inside one transaction, and leases or renews the sysid there if necessary."""

    def __init__(self, source: IdSource, txn: Txn, slots: range = SLOTS) -> None:
        self._source, self._txn, self._slots = source, txn, slots
        self.held = source.held or self._confirmed(source.tentative)
        # The rows of leases taken or renewed, to be written with the transaction.
        self.rows: dict[RowKey, bytes | None] = {}

    def _confirmed(self, tentative: OwnSysid | None) -> OwnSysid | None:
        """The lease taken inside a caller's transaction, if that was committed."""
        if tentative is None:
            return None
        name = str(tentative.number)
        raw = self._txn.rows(SYSID, [name]).get(name)
        mine = raw is not None and msgspec.json.decode(raw, type=Sysid) == tentative.lease
        return tentative if mine else None

    @property
    def number(self) -> int:
        """The last sysid of this process, which another process may have by now; 0: none yet."""
        return self.held.number if self.held else 0

    def owner(self) -> int:
        """The sysid of this process, with a lease that does not end soon."""
        held = self.held
        if held is None or self._txn.now_ms > held.lease.until_ms - RENEW_MS:
            held = self._renew()
        return held.number

    def make(self, *, slot: int | None) -> int:
        """A new id."""
        held = self.held
        tick = self._source.tick_within(held, self._txn.now_ms)
        if held is None or tick is None:
            held = self._renew()
            (tick,) = self._source.next_ticks(1, self._txn.now_ms, held.floor)
        if slot is None:
            slots = self._slots
            slot = slots[tick % len(slots)]
        return ids.pack(tick, held.number, slot)

    def make_many(self, count: int) -> list[int]:
        """New ids, for jobs that may be in any slot of this transaction."""
        held = self.held
        ticks = self._source.ticks_within(held, count, self._txn.now_ms)
        if held is None or ticks is None:
            held = self._renew()
            ticks = self._source.next_ticks(count, self._txn.now_ms, held.floor)
        return ids.pack_all(ticks, held.number, self._slots)

    def with_follower(self, new: NewJob, slot: int) -> NewJob:
        """The new job of this slot, with an id for its follow-up job if it has one."""
        if new.then is None:
            return new
        return replace(new, then=replace(new.then, id=self.make(slot=slot)))

    def _renew(self) -> OwnSysid:
        if not self._source.lends_inside:
            raise OutOfNumbers(self.held)
        return self.lease(NUMBERS)

    def lease(self, numbers: range) -> OwnSysid:
        """Lease or renew the sysid; one that another process has by now is replaced by one of `numbers`."""
        now_ms, held = self._txn.now_ms, self.held
        kept = {
            int(name): msgspec.json.decode(raw, type=Sysid) for name, raw in self._txn.rows(SYSID).items()
        }
        if held is None or held.number not in kept or kept[held.number].token != held.lease.token:
            number = free_number(kept, now_ms, numbers)
            floor = ids.tick_at(first_free_ms(kept, number))
            token = os.urandom(8).hex()
        else:
            number, floor, token = held.number, held.floor, held.lease.token
        ahead = max(now_ms, self._source.last_ms, ids.time_of(floor))
        lease = Sysid(token=token, until_ms=now_ms + SYSID_LEASE_MS, ids_until_ms=ahead + SYSID_LEASE_MS)
        self.rows[SYSID, str(number)] = msgspec.json.encode(lease)
        self.held = OwnSysid(number, lease, floor, ids.tick_at(lease.ids_until_ms))
        return self.held


def first_free_ms(held: dict[int, Sysid], number: int) -> int:
    """From when on the next holder of a sysid makes ids, by its row and, after a restore, by the port's."""
    return max((held[one].ids_until_ms for one in (number, ids.PORT_SYSID) if one in held), default=0)


def free_number(held: dict[int, Sysid], now_ms: int, numbers: range) -> int:
    """A sysid to lease: one that was released and whose ids are past, else a new one, else an expired one."""
    free = sorted((s.ids_until_ms, n) for n, s in held.items() if s.until_ms <= now_ms and n in numbers)
    if free and free[0][0] <= now_ms:
        return free[0][1]
    fresh = next((n for n in numbers if n not in held), None)
    if fresh is not None:
        return fresh
    if free:
        return free[0][1]
    holders = "journals" if numbers.start >= ids.FIRST_JOURNAL_SYSID else "processes"
    next_ms = min(held[number].until_ms for number in numbers)
    raise StoreFull(
        f"all {len(numbers):,} numbers that {holders} make ids by are taken in this store; the next one is "
        f"free at {iso(next_ms)}, unless its holder renews it"
    )
