"""Copies a store into another: the same pass over every part, repeated until both are equal.

    source   ├──── page ────┤├──── page ────┤├─ …          by key, in the same order in every store
                   │ compared, in each shard where rows of it belong, with
    target   ├──── the same keys ───┤                      differences are written, removed rows deleted

Either store may be sharded. A part knows in which shard a row belongs; a store without shards counts as one.

A pass writes only differences, so it keeps no state: after a crash it starts again from the beginning, and
finds most rows equal. While the source is in use, the target is out of date when a pass ends. The last pass,
when the source is stopped, also reads back what it wrote, and ends with a digest of both sides.

Every write first checks the target's notice in the same transaction. So a process that was believed dead, and
continues after another process has taken over, writes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any

import msgspec

from ...core.errors import StoreCorrupt
from ...core.units import counted
from ...store.contract import Changes, JobFilter, ReadTxn, Store, Txn
from .parts import CopiedPart, CountsPart, Live, Settled, ShardCountsPart, Tally, row_parts

AnyPart = CopiedPart[Any, Any]
Rows = Sequence[Any]
Check = Callable[[Txn], None]
# Called with the progress: the name of a part, how many rows of it were compared, and how many written.
Tell = Callable[[str, int, int], None]

_encode = msgspec.json.Encoder().encode


class Copier:
    """Copies between the shards of two stores. `check` raises if another run has taken over the target."""

    def __init__(
        self, sources: Sequence[Store], targets: Sequence[Store], *, check: Check, batch: int, tell: Tell
    ) -> None:
        self._sources, self._targets = sources, targets
        self._of = len(targets)
        self._check, self._batch, self._tell = check, batch, tell
        # The number of rows of each part.
        self.rows: dict[str, int] = {}
        self._digests = (blake2b(digest_size=16), blake2b(digest_size=16))

    def walk(self, *, deep: bool) -> int:
        """Make one pass while the source is in use; return how many rows were written.

        `deep`: bodies in the archive are compared too.
        """
        parts = [part for part in self._parts(deep, None) if not part.last_only]
        return sum(self._part(part, last=False) for part in parts)

    def finish(self, *, deep: bool) -> str:
        """Make the target equal to the stopped source, verify it, and return the digest of all rows."""
        self.rows = {}
        for part in self._parts(deep, Tally()):
            self._part(part, last=True)
        ours, theirs = (digest.hexdigest() for digest in self._digests)
        if ours != theirs:
            raise StoreCorrupt(f"the copy is not what it is a copy of: digest {ours}, found {theirs}")
        return ours

    def _parts(self, deep: bool, tally: Tally | None) -> Iterator[AnyPart]:
        share = len(self._sources)
        yield Settled(deep=deep, tally=tally, share=share)
        yield Live(deep=True, tally=tally, share=share)
        # Also tables that only the target has.
        shards = (*self._sources, *self._targets)
        yield from row_parts((table for shard in shards for table in shard.read(_tables)), self._of)
        if self._of == 1 or tally is None:
            yield CountsPart()
        else:
            yield from (ShardCountsPart(tally, shard) for shard in range(self._of))

    def _part(self, part: AnyPart, *, last: bool) -> int:
        """Copy one part from its first key to its last; return how many rows were written."""
        shards = tuple(part.shards(self._of))
        written = 0
        for after, ours, up_to in self._pages(part):
            placed: dict[int, list[Any]] = {at: [] for at in shards}
            for row in ours:
                for at in part.at(row, self._of):
                    placed[at].append(row)
            changed = sum(
                self._copy_stretch(part, at, mine, (after, up_to), last=last) for at, mine in placed.items()
            )
            written += changed
            self.rows[part.name] = self.rows.get(part.name, 0) + len(ours)
            self._tell(part.name, len(ours), changed)
        return written

    def _copy_stretch(
        self, part: AnyPart, at: int, ours: Rows, stretch: tuple[Any, Any], *, last: bool
    ) -> int:
        """Copy one range of keys to one shard of the target; return how many rows were written."""
        theirs = self._between(part, at, *stretch, about=len(ours))
        changed = self._bring(part, at, ours, theirs, last=last)
        if last:
            part.noted(at, ours)
            found = self._between(part, at, *stretch, about=len(ours)) if changed else theirs
            self._prove(part, at, ours, found)
        return changed

    # Reading

    def _pages(self, part: AnyPart) -> Iterator[tuple[Any, Rows, Any]]:
        """Pages of the source's rows: above one key and up to another (None: the end, with no rows)."""
        after = part.start
        while True:
            ours = self._page(part, after)
            up_to = part.key(ours[-1]) if ours else None
            yield after, ours, up_to
            if not ours:
                return
            after = up_to

    def _page(self, part: AnyPart, after: Any) -> Rows:
        """The next rows of all shards of the source, each key once."""
        limit = -(-self._batch // len(self._sources))
        pages = [shard.read(lambda txn: part.given(txn, after, limit)) for shard in self._sources]
        if len(pages) == 1:
            return pages[0]
        # Beyond the last key of a page its shard may have rows that were not read.
        up_to = min((part.key(page[-1]) for page in pages if page), default=None)
        rows = sorted((row for page in pages for row in page if part.key(row) <= up_to), key=part.key)
        return [part.joined(list(same)) for _, same in groupby(rows, key=part.key)]

    def _between(self, part: AnyPart, at: int, after: Any, up_to: Any, *, about: int) -> Rows:
        """The rows of a shard of the target above one key and up to another (None: the end)."""
        limit = self._batch if up_to is None else min(self._batch, about + 1)
        found: list[Any] = []
        while True:
            page = self._targets[at].read(_page_of(part, after, limit))
            found += [row for row in page if up_to is None or part.key(row) <= up_to]
            after = part.key(page[-1]) if page else up_to
            if not page or (up_to is not None and after >= up_to):
                return found

    # Writing

    def _bring(self, part: AnyPart, at: int, ours: Rows, theirs: Rows, *, last: bool) -> int:
        """Write the differences; return how many rows."""
        there = {part.key(row): row for row in theirs}
        same = {part.key(row) for row in ours if _is_same(part, row, there.get(part.key(row)))}
        new = [row for row in ours if part.key(row) not in same]
        kept = same | {part.key(row) for row in new}
        gone = [row for key, row in there.items() if key not in kept]
        if gone:
            self._write(at, lambda txn: part.put(txn, [], gone))
        for shard in range(len(self._sources)):
            left = [row for row in new if part.whence(row, len(self._sources)) == shard]
            while left:
                left = left[self._replace(part, shard, at, left, there, last=last) :]
        return len(new) + len(gone)

    def _replace(
        self, part: AnyPart, shard: int, at: int, rows: Rows, there: dict[Any, Any], *, last: bool
    ) -> int:
        """Write the first of these rows, complete with bodies from the source's shard; return how many."""
        whole = self._sources[shard].read(lambda txn: part.fill(txn, rows))
        # Jobs that were purged meanwhile have no body; the next pass deletes them.
        found = [row for row in whole if row is not None]
        olds = [there[part.key(row)] for row in rows[: len(whole)] if part.key(row) in there]
        self._write(at, lambda txn: part.put(txn, found, olds))
        if last:
            filled = self._targets[at].read(lambda txn: part.fill(txn, found))
            self._prove(part, at, found, filled, told=False)
        return len(whole)

    def _write(self, at: int, fn: Callable[[Txn], Changes]) -> None:
        def checked(txn: Txn) -> tuple[Changes, None]:
            self._check(txn)
            return fn(txn), None

        self._targets[at].run(checked)

    def _prove(self, part: AnyPart, at: int, ours: Rows, theirs: Rows, *, told: bool = True) -> None:
        """Raise an error if the rows of both sides differ; add them to the digests."""
        for digest, rows in zip(self._digests, (ours, theirs), strict=True) if told else ():
            digest.update(_encode([part.name, at, [part.seen(row) for row in rows]]))
        for our, their in zip(ours, theirs, strict=False):
            if not _is_same(part, our, their):
                raise StoreCorrupt(f"the copy of {part.name} {part.key(our)!r} is not what it is a copy of")
        if len(ours) != len(theirs):
            raise StoreCorrupt(
                f"the copy of {part.name} has {counted(len(theirs), 'row')} where {len(ours):,} were"
            )


def _page_of(part: AnyPart, after: Any, limit: int) -> Callable[[ReadTxn], Rows]:
    return lambda txn: part.page(txn, after, limit)


def _is_same(part: AnyPart, our: Any, their: Any) -> bool:
    return their is not None and bool(part.seen(our) == part.seen(their))


def _tables(txn: ReadTxn) -> list[str]:
    return txn.tables()


def is_empty(txn: ReadTxn, *, own: frozenset[str] = frozenset()) -> bool:
    """Whether a store has no jobs and no rows, except in the tables `own`."""
    jobs = (txn.jobs(JobFilter(archived=archived), after=0, limit=1) for archived in (False, True))
    return not (set(txn.tables()) - own or any(jobs) or txn.counts())
