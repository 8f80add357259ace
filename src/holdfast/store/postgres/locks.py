"""The advisory locks of the PostgreSQL store: their numbers, and which of them a batch may wait for.

    above all that the batch has                waited for
    below, or shared and to become exclusive    tried: if another batch has it this one ends in `Conflict`,
                                                and is done again with all that it wanted locked at its start

So two batches never wait for each other in a circle. All locks end with the transaction. The drawing of their
order is in docs/decisions/0007.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

from ...core.kinds import DOMAIN, JOB_LOG, LOG, LOG_ITEMS, LOG_KEYS, POINTER, PROGRESS, STEPS, UNIQUE

# Each lock by its number, and whether it is exclusive.
Wants = dict[int, bool]

# The ranges of numbers, in the order in which locks are taken, and how many numbers the locks of a sort
# share: a server has room for some thousands of locks, and a batch may name ten thousand domains. Batches
# that share a number wait for each other without need, and that is all.
_RANGES = {
    "notice": 1,
    "table": 1023,
    DOMAIN: 2048,
    UNIQUE: 1024,
    "row": 1024,
    "pair": 512,
    "tenant": 512,
    "fold": 1,
    "migrate": 1,
}
_BASES = dict(zip(_RANGES, (0, *accumulate(_RANGES.values())), strict=False))
# 40 bits of the schema above 22 of these; one more bit says whether a lock is exclusive, see `take_locks`.
_SCHEMA_BITS, _RANGE_BITS = 40, 22

# Tables whose rows are locked one by one; a batch that reads one is about to change it. Of all others the
# table is locked.
ROW_BY_ROW = frozenset((DOMAIN, UNIQUE, LOG, PROGRESS, POINTER))
# Tables whose rows change only with the version of their job, or under the lock of their log's row.
FOLLOWING = frozenset((STEPS, JOB_LOG, LOG_ITEMS, LOG_KEYS))


# The same few are asked for all the time.
@lru_cache(maxsize=4096)
def lock_number(schema: str, sort: str, *what: str) -> int:
    """The number of the advisory lock of something."""
    return _base(schema) + _BASES[sort] + (hashed(*what) % _RANGES[sort] if what else 0)


@lru_cache(maxsize=64)
def _base(schema: str) -> int:
    return hashed(schema) % (1 << _SCHEMA_BITS) << _RANGE_BITS


def hashed(*parts: str) -> int:
    """63 bits that follow from some texts."""
    digest = blake2b(digest_size=8, person=b"holdfast-lock")
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return int.from_bytes(digest.digest(), "big") >> 1


def row_locks(schema: str, table: str, keys: Collection[str] | None, *, writes: bool) -> Wants:
    """The locks of rows, or (None) of a whole table, for a batch that reads or writes them."""
    if table.partition(" ")[0] in FOLLOWING:
        return {}
    whole = lock_number(schema, "table", table)
    if table not in ROW_BY_ROW:
        return {whole: writes}
    sort = table if table in _RANGES else "row"
    # A batch that reads the whole table has it to itself; the others share it.
    return {whole: keys is None} | {lock_number(schema, sort, table, key): True for key in keys or ()}


def in_order(wants: Mapping[int, bool]) -> list[int]:
    """Locks as `take_locks` has them."""
    return [number << 1 | wants[number] for number in sorted(wants)]


class Locks:
    """What one batch has locked. `wants` is what it wanted the last time, and could not have."""

    def __init__(self, wants: Wants) -> None:
        self._wants = wants
        self._held: Wants = {}
        self._early: frozenset[int] = frozenset()

    def begin(self, more: Mapping[int, bool]) -> list[int]:
        """The locks that the batch waits for at its start, in order."""
        held = self._held = self._wants | {n: x for n, x in more.items() if n not in self._wants}
        self._early = frozenset(held)
        return in_order(held)

    def ask(self, wanted: Mapping[int, bool]) -> tuple[list[int], list[int]]:
        """Which of these to try, and which to wait for. They are held from here on, or the batch fails."""
        held = self._held
        needed = {n: x for n, x in wanted.items() if n not in held or (x and not held[n])}
        highest = max(held, default=-1)
        late = {n: x for n, x in needed.items() if n <= highest}
        ordered = {n: x for n, x in needed.items() if n > highest}
        held |= needed
        return in_order(late), in_order(ordered)

    def want(self) -> None:
        """Have all of these at the start the next time: one of them could not be had, or came too late."""
        for number, exclusive in self._held.items():
            self._wants[number] = self._wants.get(number, False) or exclusive

    def were_early(self, numbers: Iterable[int]) -> bool:
        """Whether all of these were held before the batch was told the time."""
        return self._early.issuperset(numbers)
