"""The advisory locks of the PostgreSQL store: their numbers, and which of them a batch may wait for.

    a number above all that the batch has       waited for
    below, or shared and to become exclusive    tried: if another batch has it, this one fails with `Conflict`
                                                and is run again, with all these locks taken at its start

So advisory locks never deadlock. All locks end with the transaction. docs/decisions/0007 has their order.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

from ...core.kinds import DOMAIN, JOB_LOG, LOG, LOG_ITEMS, LOG_KEYS, PROGRESS, STEPS, UNIQUE

# Each lock by its number, and whether it is exclusive.
Wants = dict[int, bool]

# The kinds of locks in the order in which they are taken, and how many numbers the locks of a kind share: a
# server has room for some thousands of locks, and a batch may have ten thousand domains. Two names with the
# same number make batches wait unnecessarily, and nothing worse.
_RANGES = {
    "notice": 1,
    "table": 1023,
    DOMAIN: 2048,
    UNIQUE: 1024,
    "row": 1024,
    "fold": 1,
    "migrate": 1,
}
_BASES = dict(zip(_RANGES, (0, *accumulate(_RANGES.values())), strict=False))
# A number is 40 bits of the schema's hash and 22 of these; `take_locks` adds a bit for exclusive locks.
_SCHEMA_BITS, _RANGE_BITS = 40, 22

# Tables whose rows are locked one by one, because a batch that reads a row is about to change it. Other
# tables are locked as a whole.
ROW_BY_ROW = frozenset((DOMAIN, UNIQUE, LOG, PROGRESS))
# Tables that need no lock: their rows change only with the version of their job, or under the lock of their
# log's row.
UNLOCKED = frozenset((STEPS, JOB_LOG, LOG_ITEMS, LOG_KEYS))


# Cached: most calls are for the same few locks.
@lru_cache(maxsize=4096)
def lock_number(schema: str, sort: str, *what: str) -> int:
    """The number of an advisory lock."""
    return _base(schema) + _BASES[sort] + (hashed(*what) % _RANGES[sort] if what else 0)


@lru_cache(maxsize=64)
def _base(schema: str) -> int:
    return hashed(schema) % (1 << _SCHEMA_BITS) << _RANGE_BITS


def hashed(*parts: str) -> int:
    """A 63-bit hash of texts."""
    digest = blake2b(digest_size=8, person=b"holdfast-lock")
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return int.from_bytes(digest.digest(), "big") >> 1


def row_locks(schema: str, table: str, keys: Collection[str] | None, *, writes: bool) -> Wants:
    """The locks of rows, or (None) of a whole table, for a batch that reads or writes them."""
    if table.partition(" ")[0] in UNLOCKED:
        return {}
    whole = lock_number(schema, "table", table)
    if table not in ROW_BY_ROW:
        return {whole: writes}
    sort = table if table in _RANGES else "row"
    # A batch that reads the whole table locks it exclusively; the others share it.
    return {whole: keys is None} | {lock_number(schema, sort, table, key): True for key in keys or ()}


def in_order(wants: Mapping[int, bool]) -> list[int]:
    """Locks as the parameter of `take_locks`."""
    return [number << 1 | wants[number] for number in sorted(wants)]


class Locks:
    """The locks of one attempt of a batch.

    `wants` is shared by all its attempts: after a refused lock, every lock that the attempt had or asked for.
    """

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
        """Which of these to try, and which to wait for. The batch then has them all, or fails."""
        held = self._held
        needed = {n: x for n, x in wanted.items() if n not in held or (x and not held[n])}
        highest = max(held, default=-1)
        late = {n: x for n, x in needed.items() if n <= highest}
        ordered = {n: x for n, x in needed.items() if n > highest}
        held |= needed
        return in_order(late), in_order(ordered)

    def want(self) -> None:
        """Take all of these at the start of the next attempt."""
        for number, exclusive in self._held.items():
            self._wants[number] = self._wants.get(number, False) or exclusive

    def were_early(self, numbers: Iterable[int]) -> bool:
        """Whether all of these were taken before the batch read the time."""
        return self._early.issuperset(numbers)
