"""Pointers in a store of several shards that is filled: made from the keys. See docs/decisions/0011.

    forward    of each key of the source whose job is not at the key's home: its pointer is there
    backward   of each pointer in the target: its job holds the key, or it goes

Keys and the names of pointers have different orders, so this is no walk over two lists: each looks up what
the other side has. Those of a source of several shards stay there: what they point to is told by the keys,
and one that points to no job was taken for an add which has yet to be made, and begins anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ...core.errors import StoreCorrupt
from ...core.slots import shard_of, slot_of_key
from ...core.unique import Unique, UniqueKey
from ...store.contract import ReadTxn, Store, Txn
from ...store.sharded.keys import Pointer, pointer_name, read_pointer
from ..records import POINTER

Write = Callable[[int, Callable[[Txn], None]], None]
Found = dict[str, bytes]


class Pointing:
    """Once over all pointers. `last`: the source stands still, and they are counted."""

    def __init__(
        self, sources: Sequence[Store], targets: Sequence[Store], write: Write, *, batch: int, last: bool
    ) -> None:
        self._sources, self._targets, self._write = sources, targets, write
        self._batch, self._last = batch, last
        # How many there must be.
        self.count = 0

    def bring(self, pages: Iterable[Sequence[Unique]]) -> int:
        """Write those that are missing, remove those that are not needed; how many that were."""
        written = sum(map(self._forward, pages))
        found = 0
        for at in range(len(self._targets)):
            for page in self._pages(at):
                gone = page.keys() - self._needed(at, page)
                found += len(page) - len(gone)
                if gone:
                    self._put(at, dict.fromkeys(gone))
                written += len(gone)
        if self._last and found != self.count:
            raise StoreCorrupt(f"the copy has {found:,} pointers to unique keys where {self.count:,} were")
        return written

    def _forward(self, holders: Sequence[Unique]) -> int:
        wanted: dict[int, Found] = {}
        for holder in holders:
            home = self._home_of(holder)
            if home is not None:
                pointer = msgspec.json.encode(Pointer(job_id=holder.job_id, taken_ms=0))
                wanted.setdefault(home, {})[pointer_name(holder.id)] = pointer
        written = 0
        for at, pointers in wanted.items():
            there = self._read(at, pointers)
            new = {name: raw for name, raw in pointers.items() if there.get(name) != raw}
            self.count += len(pointers)
            written += len(new)
            if new:
                self._put(at, new)
            if new and self._last and self._read(at, new) != new:
                raise StoreCorrupt("the copy of a pointer to a unique key is not what it is a copy of")
        return written

    def _home_of(self, holder: Unique) -> int | None:
        """The door that has a pointer to the holder of a key, unless that is the holder's own."""
        home = slot_of_key(holder.id) % len(self._targets)
        return None if home == shard_of(holder.job_id, len(self._targets)) else home

    def _needed(self, at: int, page: Found) -> set[str]:
        """Those of the pointers at a door whose jobs hold their keys, away from there."""
        needed: set[str] = set()
        by_door: dict[int, dict[UniqueKey, int]] = {}
        for name, raw in page.items():
            key, job_id = msgspec.json.decode(name, type=UniqueKey), read_pointer(raw).job_id
            by_door.setdefault(shard_of(job_id, len(self._sources)), {})[key] = job_id
        for door, keys in by_door.items():
            for key, holder in self._sources[door].read(_holders(keys)).items():
                if holder.job_id == keys[key] and self._home_of(holder) == at:
                    needed.add(pointer_name(key))
        return needed

    def _pages(self, at: int) -> Iterator[Found]:
        after = (POINTER, "")
        while True:
            page = self._targets[at].read(_records(after, self._batch))
            found = {name: raw for kind, name, raw in page if kind == POINTER}
            if not found:
                return
            yield found
            after = (POINTER, list(found)[-1])

    def _read(self, at: int, pointers: Found) -> Found:
        return self._targets[at].read(lambda txn: txn.records(POINTER, list(pointers)))

    def _put(self, at: int, changes: dict[str, bytes] | dict[str, None]) -> None:
        self._write(at, lambda txn: txn.put_records(POINTER, changes))


def _records(after: tuple[str, str], limit: int) -> Callable[[ReadTxn], list[tuple[str, str, bytes]]]:
    return lambda txn: txn.list_records(after=after, limit=limit)


def _holders(keys: dict[UniqueKey, int]) -> Callable[[ReadTxn], dict[UniqueKey, Unique]]:
    return lambda txn: txn.find_unique(list(keys))
