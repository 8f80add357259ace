"""The small parts of a store that is copied: records, letters, numbers of schedules, counts, turns.

Of these a store of several shards has some at all doors, and some of its own that another number of shards
has otherwise, or not at all. See docs/decisions/0011.

    records    as they are; at the door of their slot, or at all; which shard a store is stays where it is
    letters    under the number of the shard that is to deliver them
    numbers    of schedules, noted at the door that would give them to others
    counts     of a store alone the sum; of several what the last walk has counted at each
    turns      at all doors
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

import msgspec

from ...core import ids
from ...core.indexed import LogMark
from ...core.kinds import SHARD
from ...core.slots import slot_of_record, slot_of_schedule
from ...core.worker import Worker
from ...store.contract import CountKey, ReadTxn, Turn, Txn
from ..commands.chores import Chore
from ..commands.letters import read as read_letter
from ..commands.schedules import read_kept
from ..records import CHORE, FLOOR, LETTER, LOG, NUMBER, POINTER, SCHEDULE, SYSID, WORKER, name_of, read_pair
from ..sysid import Sysid
from .parts import Domains, Keys, Live, Part, Tally

Record = tuple[str, str, bytes]
# What is a part of its own, or only about the store that it is in.
APART = {SHARD, POINTER, LETTER, NUMBER}
# Above the names of all records of a kind.
LAST = "\U0010ffff"


def _said_at(raw: bytes) -> int:
    return msgspec.json.decode(raw, type=Worker).said_at


def _ids_until_ms(raw: bytes) -> int:
    return msgspec.json.decode(raw, type=Sysid).ids_until_ms


def _undone(raw: bytes) -> bytes:
    """Upside down: the chore that has come least far is the one to go on with."""
    after = msgspec.json.decode(raw, type=Chore).after
    return bytes(255 - byte for byte in after) + b"\xff"


# Which of several values of one record holds: the one of which this is greatest; of other kinds the first.
_HOLDS: dict[str, Callable[[bytes], Any]] = {
    FLOOR: int,
    SYSID: _ids_until_ms,
    WORKER: _said_at,
    CHORE: _undone,
}


class Records(Part[tuple[str, str], Record]):
    """Small records, of whatever kind there is or will be."""

    name = "records"
    start = ("", "")

    def page(self, txn: ReadTxn, after: tuple[str, str], limit: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < limit and (rows := txn.list_records(after=after, limit=limit - len(found))):
            found += [row for row in rows if row[0] not in APART]
            after = rows[-1][:2]
            if after[0] in APART:
                # There may be as many as there are jobs.
                after = (after[0], LAST)
        return found

    def key(self, row: Record) -> tuple[str, str]:
        return row[:2]

    def at(self, row: Record, of: int) -> Iterable[int]:
        kind, name, _ = row
        # What says from when on ids may be made by SQL is read by the function in each of them.
        slot = None if (kind, name) == (SYSID, str(ids.PORT_SYSID)) else slot_of_record(kind, name)
        return range(of) if slot is None else (slot % of,)

    def joined(self, rows: Sequence[Record]) -> Record:
        holds = _HOLDS.get(rows[0][0])
        return rows[0] if holds is None else max(rows, key=lambda row: holds(row[2]))

    def put(self, txn: Txn, rows: Sequence[Record], olds: Sequence[Record]) -> None:
        by_kind: dict[str, dict[str, bytes | None]] = {}
        for kind, name, _ in olds:
            by_kind.setdefault(kind, {})[name] = None
        for kind, name, value in rows:
            by_kind.setdefault(kind, {})[name] = value
        for kind, records in by_kind.items():
            txn.put_records(kind, records)


class Sent(NamedTuple):
    """A letter: the number of its job, the shard that delivers it, and what it says."""

    job_id: int
    shard: int
    raw: bytes


class Letters(Part[int, Sent]):
    """Jobs on their way from one shard to another; in a store alone, to be taken in."""

    name = "letters"
    start = 0
    last_only = True

    def __init__(self, of: int) -> None:
        self._of = of

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[Sent]:
        rows = sorted(_sent(name, raw) for name, raw in txn.records(LETTER).items())
        return [row for row in rows if row.job_id > after][:limit]

    def given(self, txn: ReadTxn, after: int, limit: int) -> list[Sent]:
        """Whoever delivers it there is told by its name; a schedule asks its own shard for what it sent."""
        return [self._addressed(row) for row in self.page(txn, after, limit)]

    def _addressed(self, row: Sent) -> Sent:
        job = read_letter(row.raw)
        shard = slot_of_schedule(job.tenant, job.schedule) if job.schedule else row.shard
        return row._replace(shard=shard % self._of)

    def key(self, row: Sent) -> int:
        return row.job_id

    def at(self, row: Sent, of: int) -> Iterable[int]:
        return (row.shard,)

    def put(self, txn: Txn, rows: Sequence[Sent], olds: Sequence[Sent]) -> None:
        changes: dict[str, bytes | None] = {_letter_name(row): None for row in olds}
        txn.put_records(LETTER, changes | {_letter_name(row): row.raw for row in rows})


def _sent(name: str, raw: bytes) -> Sent:
    shard, job_id = read_pair(name)
    return Sent(int(job_id), int(shard), raw)


def _letter_name(row: Sent) -> str:
    return name_of(str(row.shard), str(row.job_id))


class Numbers(Part[int, int]):
    """Numbers of schedules that are given by another shard than the one which the schedule is in."""

    name = "numbers"
    start = -1

    def __init__(self, of: int) -> None:
        self._of = of

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[int]:
        return sorted(number for number in map(int, txn.records(NUMBER)) if number > after)[:limit]

    def given(self, txn: ReadTxn, after: int, limit: int) -> list[int]:
        schedules = (read_kept(raw).schedule for raw in txn.records(SCHEDULE).values())
        away = (s.number for s in schedules if (slot_of_schedule(s.tenant, s.name) - s.number) % self._of)
        return sorted(number for number in away if number > after)[:limit]

    def key(self, row: int) -> int:
        return row

    def at(self, row: int, of: int) -> Iterable[int]:
        return (row % of,)

    def put(self, txn: Txn, rows: Sequence[int], olds: Sequence[int]) -> None:
        changes: dict[str, bytes | None] = {str(number): None for number in olds}
        txn.put_records(NUMBER, changes | {str(number): b"1" for number in rows})


class Counted(NamedTuple):
    """How many jobs of a kind there are, at a door of several."""

    kind: CountKey
    number: int
    door: int = 0


class Counts(Part[tuple[Any, ...], Counted]):
    """How many jobs there are of each kind."""

    name = "counts"
    start = ()
    last_only = True

    def page(self, txn: ReadTxn, after: tuple[Any, ...], limit: int) -> list[Counted]:
        return sorted(Counted(*item) for item in txn.counts().items() if item[0] > after)[:limit]

    def key(self, row: Counted) -> tuple[Any, ...]:
        return row.kind

    def seen(self, row: Counted) -> Any:
        return row[:2]

    def at(self, row: Counted, of: int) -> Iterable[int]:
        return (row.door,)

    def joined(self, rows: Sequence[Counted]) -> Counted:
        return rows[0]._replace(number=sum(row.number for row in rows))

    def put(self, txn: Txn, rows: Sequence[Counted], olds: Sequence[Counted]) -> None:
        changes = {row.kind: -row.number for row in olds}
        for row in rows:
            changes[row.kind] = changes.get(row.kind, 0) + row.number
        txn.count(changes)


class DoorCounts(Counts):
    """The same at one door of several, by what was counted there: a sum does not tell what is where."""

    def __init__(self, tally: Tally, door: int) -> None:
        self._tally, self._door = tally, door

    def given(self, txn: ReadTxn, after: tuple[Any, ...], limit: int) -> list[Counted]:
        mine = ((kind, number) for (door, kind), number in self._tally.items() if door == self._door)
        return sorted(Counted(kind, number, self._door) for kind, number in mine if kind > after)[:limit]

    def doors(self, of: int) -> Iterable[int]:
        return (self._door,)

    def joined(self, rows: Sequence[Counted]) -> Counted:
        return rows[0]


class Turns(Part[tuple[str, ...], tuple[Turn, ...]]):
    """When a tenant and its tasks were served. Who has READY jobs follows from the counts, which come before.

    A tenant's turn is that of one of its tasks, so the two are one row.
    """

    name = "turns"
    start = ()
    last_only = True

    def page(self, txn: ReadTxn, after: tuple[str, ...], limit: int) -> list[tuple[Turn, ...]]:
        turns = sorted(turn for turn in txn.list_turns() if turn[:1] > after)
        rows = (tuple(mine) for _, mine in groupby(turns, key=lambda turn: turn.tenant))
        return list(islice(rows, limit))

    def key(self, row: tuple[Turn, ...]) -> tuple[str, ...]:
        return row[0][:1]

    def at(self, row: tuple[Turn, ...], of: int) -> Iterable[int]:
        return range(of)

    def joined(self, rows: Sequence[tuple[Turn, ...]]) -> tuple[Turn, ...]:
        """Each as it was served last, in whichever shard."""
        return tuple(sorted({turn[:2]: turn for turn in sorted(chain(*rows))}.values()))

    def put(self, txn: Txn, rows: Sequence[tuple[Turn, ...]], olds: Sequence[tuple[Turn, ...]]) -> None:
        txn.put_turns(list(chain(*rows)))


def standing(of: int = 1, tally: Tally | None = None, *, share: int = 1) -> Iterator[Part[Any, Any]]:
    """All parts that every store has, of so many doors, but for the archive and logs."""
    yield Live(deep=True, tally=tally, share=share)
    yield from (Records(), Letters(of), Numbers(of), Keys(), Domains())
    if of == 1 or tally is None:
        yield Counts()
    else:
        yield from (DoorCounts(tally, door) for door in range(of))
    yield Turns()


def logs_of(txn: ReadTxn) -> dict[str, LogMark]:
    """All logs, by the names of their records, and their ends."""
    return {name: msgspec.json.decode(raw, type=LogMark) for name, raw in txn.records(LOG).items()}
