"""The rows of a copied store: a part for each table, including tables that this version does not know.

Rows are copied unchanged, to the shard of their slot or to all. Three tables depend on the number of shards
and are derived from other data (docs/decisions/0011):

    outbox     messages, with the number of the shard that delivers them
    numbers    of schedules, noted in the shard that would otherwise allocate them again
    pointers   in the home shard of each unique key whose holder is in another shard
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...core import ids
from ...core.bounds import CLAIM_BYTES
from ...core.kinds import (
    CHORE,
    DOMAIN,
    FLOOR,
    HANDLER_VERSION,
    LOG_ITEMS,
    LOG_KEYS,
    NUMBER,
    OUTBOX,
    POINTER,
    REQUEST,
    SCHEDULE,
    SHARD,
    STEPS,
    SYSID,
    UNIQUE,
    WORKER,
    name_of,
)
from ...core.limits import Domain
from ...core.slots import shard_of, slot_of_key, slot_of_record, slot_of_schedule, slot_of_table
from ...core.unique import read_unique
from ...core.worker import Worker
from ...store.common.pointers import Pointer, held_until
from ...store.contract import Changes, ReadTxn, Txn
from ..commands.chores import Chore
from ..commands.outbox import read as read_message
from ..commands.requests import read_note
from ..commands.schedules import read_kept
from ..records import read_pair
from ..sysid import Sysid
from .parts import BODIES_AT_ONCE, CopiedPart

_encode = msgspec.json.Encoder().encode

# A key and a value; for a pointer also the holder of the unique key.
Row = tuple[Any, ...]
# Tables that are separate parts, or only concern the store that they are in.
APART = {SHARD, OUTBOX, NUMBER, POINTER}
# Tables whose values may be as large as bodies.
_LARGE = {HANDLER_VERSION, LOG_ITEMS, STEPS}


def _undone(raw: bytes) -> bytes:
    """A sort key by which the chore with the most work left is the greatest."""
    after = msgspec.json.decode(raw, type=Chore).after
    return bytes(255 - byte for byte in after) + b"\xff"


# Which of several values of one row is taken: the one for which this is the greatest; in other tables the
# first.
_HOLDS: dict[str, Callable[[bytes], Any]] = {
    CHORE: _undone,
    FLOOR: int,
    SYSID: lambda raw: msgspec.json.decode(raw, type=Sysid).ids_until_ms,
    UNIQUE: lambda raw: held_until(read_unique(raw)),
    WORKER: lambda raw: msgspec.json.decode(raw, type=Worker).said_at,
}


def due_of(table: str, raw: bytes) -> int:
    """When a row is due, by its value; 0: never."""
    if table == UNIQUE:
        return read_unique(raw).until_ms
    if table == DOMAIN:
        return msgspec.json.decode(raw, type=Domain).due_ms
    if table == REQUEST:
        return read_note(raw).until_ms
    return int(raw) if _kind_of(table) == LOG_KEYS else 0


def _kind_of(table: str) -> str:
    return table.partition(" ")[0]


class Rows(CopiedPart[str, Row]):
    """The rows of one table."""

    start = ""

    def __init__(self, table: str) -> None:
        self.name = self._table = table
        self._at_once = BODIES_AT_ONCE if _kind_of(table) in _LARGE else 0

    def page(self, txn: ReadTxn, after: str, limit: int) -> list[Row]:
        found: list[Row] = []
        last, size = after, 0
        while len(found) < limit and size < CLAIM_BYTES:
            left = limit - len(found)
            page = txn.scan(self._table, after=last, limit=min(left, self._at_once or left))
            if not page:
                break
            found += page
            last, size = page[-1][0], size + sum(len(raw) for _, raw in page)
        return found

    def key(self, row: Row) -> str:
        return str(row[0])

    def seen(self, row: Row) -> Any:
        return row[:2]

    def at(self, row: Row, of: int) -> Iterable[int]:
        key, raw = row[:2]
        if self._table == UNIQUE:
            return (shard_of(read_unique(raw).job_id, of),)
        # The row with the first time for ids made by SQL is read by the SQL function of every shard.
        is_port = (self._table, key) == (SYSID, str(ids.PORT_SYSID))
        slot = None if is_port else slot_of_record(self._table, key)
        return range(of) if slot is None else (slot % of,)

    def shards(self, of: int) -> Iterable[int]:
        slot = slot_of_table(self._table)
        return range(of) if slot is None else (slot % of,)

    def joined(self, rows: Sequence[Row]) -> Row:
        holds = _HOLDS.get(self._table)
        return rows[0] if holds is None else max(rows, key=lambda row: holds(row[1]))

    def put(self, txn: Txn, rows: Sequence[Row], olds: Sequence[Row]) -> Changes:
        table = self._table
        dues = {(table, row[0]): due_of(table, row[1]) for row in rows}
        return Changes(
            rows={(table, row[0]): None for row in olds} | {(table, row[0]): row[1] for row in rows},
            dues={key: due for key, due in dues.items() if due},
        )


class _Derived(Rows):
    """A table that is derived for a number of shards, from each shard of the source."""

    table: str

    def __init__(self, of: int) -> None:
        super().__init__(self.table)
        self._of = of

    def made(self, txn: ReadTxn) -> Iterator[Row]:
        """All rows, in any order."""
        raise NotImplementedError

    def given(self, txn: ReadTxn, after: str, limit: int) -> list[Row]:
        return sorted(row for row in self.made(txn) if self.key(row) > after)[:limit]


class OutboxPart(_Derived):
    """Outbox messages: jobs for another shard; in a single store upkeep adds them."""

    table = OUTBOX
    last_only = True

    def made(self, txn: ReadTxn) -> Iterator[Row]:
        """The key names the delivering shard; for a schedule's job that is the schedule's shard."""
        for name, raw in txn.rows(OUTBOX).items():
            shard, job_id = read_pair(name)
            job = read_message(raw)
            slot = slot_of_schedule(job.tenant, job.schedule) if job.schedule else int(shard)
            yield name_of(str(slot % self._of), job_id), raw


class Numbers(_Derived):
    """Schedule numbers that another shard allocates than the one that the schedule is in."""

    table = NUMBER

    def made(self, txn: ReadTxn) -> Iterator[Row]:
        for raw in txn.rows(SCHEDULE).values():
            schedule = read_kept(raw).schedule
            if (slot_of_schedule(schedule.tenant, schedule.name) - schedule.number) % self._of:
                yield str(schedule.number), b"1"


class Pointers(Rows):
    """Pointers to holders of unique keys, in the key's home shard, if the holder is in another shard.

    Pointers of a sharded source are not copied: one that points to no job belongs to an unfinished add, which
    will be repeated.
    """

    def __init__(self) -> None:
        super().__init__(POINTER)
        self._keys = Rows(UNIQUE)

    def given(self, txn: ReadTxn, after: str, limit: int) -> list[Row]:
        held = ((key, read_unique(raw)) for key, raw in self._keys.page(txn, after, limit))
        return [(key, _encode(Pointer(job_id=one.job_id, taken_ms=0)), one) for key, one in held]

    def at(self, row: Row, of: int) -> Iterable[int]:
        held = row[2]
        home = slot_of_key(held.id) % of
        return () if home == shard_of(held.job_id, of) else (home,)

    def joined(self, rows: Sequence[Row]) -> Row:
        return max(rows, key=lambda row: held_until(row[2]))


def row_parts(tables: Iterable[str], of: int) -> Iterator[Rows]:
    """The parts for all tables, in a store of `of` shards."""
    yield from (Rows(table) for table in sorted(set(tables) - APART))
    yield from (OutboxPart(of), Numbers(of))
    if of > 1:
        yield Pointers()
