"""A store copied into another: the same walk over every part, as often as it takes.

    source   ├──── page ────┤├──── page ────┤├─ …          by key, in the same order everywhere
                   │ compared with
    target   ├──── the same keys ───┤                      what differs is written, what is gone removed

A walk writes only differences, so it needs to remember nothing: after a crash it begins at the beginning, and
finds most of it done. While the source lives, a walk is out of date when it ends; the last one, over a source
that stands still, also looks at what it wrote, and ends with a digest of all that it saw on either side.

Every write looks at the notice on the target's door first, in the same transaction: a process that was taken
for dead, and comes back after another has gone on in its place, writes nothing.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ..core.errors import StoreCorrupt
from ..store.contract import ReadTxn, Store, Txn
from .parts import LogItems, LogKeys, Part, Settled, logs_of, standing

AnyPart = Part[Any, Any]
Rows = Sequence[Any]
Check = Callable[[Txn], None]
# What is told while it goes on: the name of a part, how many rows of it were compared, and how many written.
Tell = Callable[[str, int, int], None]

_encode = msgspec.json.Encoder().encode


class Copier:
    """Walks over two stores. `check` refuses to write when the target is no longer ours."""

    def __init__(self, source: Store, target: Store, *, check: Check, batch: int, tell: Tell) -> None:
        self._source, self._target = source, target
        self._check, self._batch, self._tell = check, batch, tell
        # How many rows each part has.
        self.rows: dict[str, int] = {}
        self._digests = (blake2b(digest_size=16), blake2b(digest_size=16))

    def walk(self, *, deep: bool) -> int:
        """Bring the target up to date as far as a source that goes on living allows; how much was written.

        `deep`: bodies in the archive are compared as well.
        """
        return sum(self._part(part, last=False) for part in self._parts(deep) if not part.last_only)

    def finish(self, *, deep: bool) -> str:
        """Make the target just what the source is, which stands still, and prove it; the digest of it all."""
        self.rows = {}
        for part in self._parts(deep):
            self._part(part, last=True)
        ours, theirs = (digest.hexdigest() for digest in self._digests)
        if ours != theirs:
            raise StoreCorrupt(f"the copy is not what it is a copy of: digest {ours}, found {theirs}")
        return ours

    def _parts(self, deep: bool) -> list[AnyPart]:
        logs = self._source.read(logs_of).items()
        pairs = [(LogItems(name, ends), LogKeys(name, ends)) for name, ends in logs]
        return [Settled(deep=deep), *standing(), *(part for pair in pairs for part in pair)]

    def _part(self, part: AnyPart, *, last: bool) -> int:
        """One part from its first key to its last; how many rows were written."""
        if part.prepare is not None:
            self._write(part.prepare)
        written, after = 0, part.start
        while True:
            ours = self._page(self._source, part, after)
            up_to = part.key(ours[-1]) if ours else None
            theirs = self._between(part, after, up_to)
            changed = self._bring(part, ours, theirs, last=last)
            if last:
                self._prove(part, ours, self._between(part, after, up_to) if changed else theirs)
            written += changed
            self.rows[part.name] = self.rows.get(part.name, 0) + len(ours)
            self._tell(part.name, len(ours), changed)
            if not ours:
                return written
            after = up_to

    def _page(self, store: Store, part: AnyPart, after: Any) -> Rows:
        return store.read(lambda txn: part.page(txn, after, self._batch))

    def _between(self, part: AnyPart, after: Any, up_to: Any) -> Rows:
        """What the target has above one key and up to another (None: the end)."""
        found: list[Any] = []
        while True:
            page = self._page(self._target, part, after)
            found += [row for row in page if up_to is None or part.key(row) <= up_to]
            after = part.key(page[-1]) if page else up_to
            if not page or (up_to is not None and after >= up_to):
                return found

    def _bring(self, part: AnyPart, ours: Rows, theirs: Rows, *, last: bool) -> int:
        """Write what differs; how many rows that were."""
        there = {part.key(row): row for row in theirs}
        same = {part.key(row) for row in ours if _is_same(part, row, there.get(part.key(row)))}
        new = [row for row in ours if part.key(row) not in same]
        kept = same | {part.key(row) for row in new}
        gone = [row for key, row in there.items() if key not in kept]
        if gone:
            self._write(lambda txn: part.put(txn, [], gone))
        left = new
        while left:
            left = left[self._replace(part, left, there, last=last) :]
        return len(new) + len(gone)

    def _replace(self, part: AnyPart, rows: Rows, there: dict[Any, Any], *, last: bool) -> int:
        """Write the first of these rows with all that belongs to them; how many that were."""
        whole = self._source.read(lambda txn: part.fill(txn, rows))
        # What was purged meanwhile has no body any more; the next walk finds it gone.
        found = [row for row in whole if row is not None]
        olds = [there[part.key(row)] for row in rows[: len(whole)] if part.key(row) in there]
        self._write(lambda txn: part.put(txn, found, olds))
        if last:
            self._prove(part, found, self._target.read(lambda txn: part.fill(txn, found)), told=False)
        return len(whole)

    def _write(self, fn: Callable[[Txn], None]) -> None:
        def checked(txn: Txn) -> None:
            self._check(txn)
            fn(txn)

        self._target.run(checked)

    def _prove(self, part: AnyPart, ours: Rows, theirs: Rows, *, told: bool = True) -> None:
        """Refuse what is not the same on both sides; what is goes into the digests."""
        for digest, rows in zip(self._digests, (ours, theirs), strict=True) if told else ():
            digest.update(_encode([part.name, [part.seen(row) for row in rows]]))
        for our, their in zip(ours, theirs, strict=False):
            if not _is_same(part, our, their):
                raise StoreCorrupt(f"the copy of {part.name} {part.key(our)!r} is not what it is a copy of")
        if len(ours) != len(theirs):
            raise StoreCorrupt(f"the copy of {part.name} has {len(theirs):,} rows where {len(ours):,} were")


def _is_same(part: AnyPart, our: Any, their: Any) -> bool:
    return their is not None and bool(part.seen(our) == part.seen(their))


def is_empty(txn: ReadTxn) -> bool:
    """Whether nothing was ever written to a store."""
    parts = [Settled(deep=False), *standing()]
    return not any(part.page(txn, part.start, 1) for part in parts)
