"""The rows of a copied store: a part for each table, including tables that this version does not know.

Rows are copied unchanged, to the shard of their slot or to all. One table depends on the number of shards and
is derived from other data (docs/decisions/0011): the numbers of schedules, noted in the shard that would
otherwise allocate them again.
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
    REQUEST,
    SCHEDULE,
    SHARD,
    SIGNAL_KEY,
    SIGNALS,
    STEPS,
    SYSID,
    TASK,
    UNIQUE,
    WORKER,
)
from ...core.limits import Domain
from ...core.slots import shard_of, slot_of_record, slot_of_schedule, slot_of_table
from ...core.unique import read_unique
from ...core.worker import Worker
from ...store.contract import Changes, ReadTxn, Txn
from ..commands.chores import Chore
from ..commands.requests import read_note
from ..commands.schedules import read_kept
from ..sysid import Sysid
from .parts import BODIES_AT_ONCE, CopiedPart, check_followers_of, check_schedule

# A key and a value.
Row = tuple[str, bytes]
# Tables that are separate parts, or only concern the store that they are in.
APART = {SHARD, NUMBER}
# Tables whose values may be as large as bodies.
_LARGE = {HANDLER_VERSION, LOG_ITEMS, SIGNALS, STEPS}


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
    if table == SIGNAL_KEY:
        return int(raw.partition(b" ")[0])
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
        return row

    def at(self, row: Row, of: int) -> Iterable[int]:
        key, raw = row
        if self._table == UNIQUE:
            # One that outlives its job is where it is looked up.
            holder = read_unique(raw)
            slot = slot_of_record(UNIQUE, key) if holder.until_ms else None
            return (shard_of(holder.job_id if slot is None else slot, of),)
        if self._table == SCHEDULE:
            return (_shard_of_schedule(raw, of),)
        if self._table == TASK and of > 1:
            check_followers_of(key, raw)
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


class Numbers(Rows):
    """Schedule numbers that another shard allocates than the one that the schedule is in."""

    def __init__(self, of: int) -> None:
        super().__init__(NUMBER)
        self._of = of

    def given(self, txn: ReadTxn, after: str, limit: int) -> list[Row]:
        kept = ((raw, read_kept(raw).schedule.number) for raw in txn.rows(SCHEDULE).values())
        moved = sorted(
            str(number) for raw, number in kept if (_shard_of_schedule(raw, self._of) - number) % self._of
        )
        return [(number, b"1") for number in moved if number > after][:limit]


def _shard_of_schedule(raw: bytes, of: int) -> int:
    kept = read_kept(raw)
    if of > 1:
        check_schedule(kept.schedule, kept.job)
    return slot_of_schedule(kept.schedule.name, kept.job) % of


def check_rows(txn: ReadTxn, of: int) -> None:
    """Raise `Misplaced` for a schedule, or defaults of a task, whose jobs belong in two shards."""
    for table in (SCHEDULE, TASK):
        for row in txn.rows(table).items():
            Rows(table).at(row, of)


def row_parts(tables: Iterable[str], of: int) -> Iterator[Rows]:
    """The parts for all tables, in a store of `of` shards."""
    yield from (Rows(table) for table in sorted(set(tables) - APART))
    yield Numbers(of)
