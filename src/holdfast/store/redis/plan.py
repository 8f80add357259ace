"""Encodes what a commit checks and writes, for `lua/commit.lua`, from what a batch has read and written.

A plan consists of **columns**, which are lists of words, and of operations with a key and one or two columns.
Jobs that leave and enter the same orders are one group, whose ids are one column for all these orders.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.job import Body, Job
from ...core.layout import keep_unknown
from .. import fairness
from ..contract import CountKey, NewJobs, RowKey, TallyKey
from .keys import (
    INLINE_BYTES,
    LARGE,
    RANK,
    STAMP_BYTES,
    ZERO,
    Keys,
    Kind,
    Move,
    Pair,
    PairKeys,
    encode_job,
    kind_of,
    pair_name,
)
from .seen import ReadSet, Written

# The start of a record; the rest is the same for all jobs of a group, except for the size.
_ID_0 = b'{"id":0'
# The operations, by number.
BEGINS, ABSENT, SIZE, HSET, ZADD, HDEL, ZREM, COUNT, TABLE, READY, SERVED, SWEEP, SET = range(1, 14)
# The columns that every plan has.
ZERO_SCORE, NO_NAME = 1, 2
_pack = msgspec.msgpack.Encoder().encode


class CommitPlan:
    """The keys of a commit, and its words."""

    def __init__(self, keys: Keys, session: bytes, stamp: bytes) -> None:
        self._keys, self._stamp = keys, stamp
        self.keys = [session, *keys.of_every_plan]
        self._positions = {**keys.positions}
        # The words of all columns, and how many words each has.
        self._words: list[Any] = [0, b""]
        self._sizes, self._count = [1, 1], 2
        self._checks: list[int] = []
        self.writes: list[int] = []
        self._pairs: dict[PairKeys, None] = {}
        # The last column of ids.
        self._ids: Sequence[int] = ()
        self._names = 0

    def words(self) -> list[Any]:
        """The plan as the script takes it."""
        for pair in self._pairs:
            self.writes += (READY, self._at(pair.queue), self._column(pair.names), len(self.keys) + 1)
            self.keys += (pair.tasks, pair.mock_queue)
        self._pairs = {}
        return [_pack([self._count, *self._sizes, *self._checks, *self.writes]), *self._words]

    def _at(self, key: bytes) -> int:
        """The position of a key."""
        positions = self._positions
        if key not in positions:
            self.keys.append(key)
            positions[key] = len(self.keys)
        return positions[key]

    def _column(self, words: Sequence[Any]) -> int:
        self._words += words
        self._sizes += (len(words),)
        self._count += 1
        return self._count

    def _names_of(self, ids: Sequence[int]) -> int:
        """The column of these ids; reused, as most operations of a batch are on the same jobs."""
        if ids != self._ids:
            self._ids, self._names = ids, self._column([b"%019d" % id for id in ids])
        return self._names

    def _write(self, verb: int, key: bytes, a: int, b: int = 0) -> None:
        self.writes += (verb, self._at(key), a, b)

    # What was read

    def check(self, seen: ReadSet, domain_sizes: Mapping[str, int]) -> None:
        """Check that nothing that was read has changed, nor the numbers of jobs of domains that get a row."""
        keys = self._keys
        if seen.jobs:
            self._check_ids(keys.jobs, seen.jobs, seen.stamps)
        if seen.archive:
            self._check_ids(keys.archive, seen.archive, seen.archive_stamps)
        if seen.tables:
            self._check_values(keys.versions, {name: version for name, (version, _) in seen.tables.items()})
        for table in {table for table, _ in seen.rows} if seen.rows else ():
            rows = {key: raw for (name, key), raw in seen.rows.items() if name == table}
            self._check_values(keys.rows(table), rows)
        for name, count in domain_sizes.items() if domain_sizes else ():
            self._checks += (SIZE, self._at(keys.domain(name)), self._column([count]), 0)

    def _check_ids(self, key: bytes, jobs: dict[int, Job | None], stamps: dict[int, bytes]) -> None:
        if stamps:
            names, column = self._names_of([*stamps]), self._column([*stamps.values()])
            self._checks += (BEGINS, self._at(key), names, column)
        if len(stamps) < len(jobs):
            absent = [id for id in jobs if id not in stamps]
            self._checks += (ABSENT, self._at(key), self._names_of(absent), 0)

    def _check_values(self, key: bytes, values: Mapping[str, bytes | None]) -> None:
        there = {field: raw[:STAMP_BYTES] for field, raw in values.items() if raw is not None}
        if there:
            column = self._column([*there])
            self._checks += (BEGINS, self._at(key), column, self._column([*there.values()]))
        if len(there) < len(values):
            absent = self._column([field for field, raw in values.items() if raw is None])
            self._checks += (ABSENT, self._at(key), absent, 0)

    # Jobs

    def add(self, group: NewJobs) -> None:
        """Add jobs of one template; a conflict if one of their ids exists."""
        template, rows, is_fresh = group.template, group.rows, group.is_fresh
        keys, at, stamp = self._keys, self._positions, self._stamp
        ids = [id for id, _ in rows]
        bodies = [b"b" + data if isinstance(data, bytes) else b"s" + data.encode() for _, data in rows]
        sizes = [*map(len, bodies)]
        alike = encode_job(replace(template, id=0, size=0))[len(_ID_0) : -1]
        records = [
            b'%s{"id":%d%s,"size":%d}' % (stamp, id, alike, size - 1)
            for id, size in zip(ids, sizes, strict=True)
        ]
        names, jobs = self._names_of(ids), at[keys.jobs]
        self._checks += (ABSENT, jobs, names, 0)
        if not is_fresh:
            self._checks += (ABSENT, at[keys.archive], names, 0)
        self.writes += (HSET, jobs, names, self._column(records))
        if max(sizes) <= INLINE_BYTES:
            self.writes += (HSET, at[keys.data], names, self._column(bodies))
        else:
            self._put_bodies(dict(zip(ids, bodies, strict=True)), keys.data, keys.large_data)
        self._move_group(keys.move(None, kind_of(template)), names, [template])

    def move(self, written: Written, seen: ReadSet) -> None:
        """Write the records of jobs, and move them from their old orders to the new ones."""
        before, after, keys = seen.jobs, written.jobs, self._keys
        if written.added:
            names, at = self._names_of([*written.added]), self._positions
            self._checks += (ABSENT, at[keys.jobs], names, 0, ABSENT, at[keys.archive], names, 0)
        for (old, new), ids in _groups(before, after).items():
            names = self._names_of(ids)
            jobs = [job for id in ids if (job := after[id]) is not None]
            if jobs:
                self.writes += (HSET, self._positions[keys.jobs], names, self._records(jobs))
            elif old is not None:
                self.writes += (HDEL, self._positions[keys.jobs], names, 0)
            self._move_group(keys.move(old, new), names, jobs)

    def _records(self, jobs: Sequence[Job]) -> int:
        """The column of these records."""
        stamp = self._stamp
        return self._column([stamp + record for record in map(encode_job, jobs)])

    def leave_process(self, ids: Sequence[int]) -> None:
        """Remove taken ids from `in_process_queue`; their records do not show that they are in it."""
        self._write(ZREM, self._keys.in_process_queue, self._names_of(ids))

    def put_back(self, job: Job) -> None:
        """Put a job into exactly the orders of its record."""
        scores, name = self._keys.scores(job), self._names_of([job.id])
        for key, score in scores.items():
            self._write(ZADD, key, self._column([score]), name)
        if self._keys.in_process_queue not in scores:
            self._write(ZREM, self._keys.in_process_queue, name)
        self._pairs[self._keys.pair((job.tenant, job.task))] = None

    def _move_group(self, move: Move, names: int, jobs: Sequence[Job]) -> None:
        at, writes, scores = self._positions, self.writes, {ZERO: ZERO_SCORE}
        for key in move.leave:
            writes += (ZREM, at[key] if key in at else self._at(key), names, 0)
        for key, by in move.enter:
            if by not in scores:
                is_rank = by == RANK
                scores[by] = self._column([job.rank if is_rank else job.expires_at for job in jobs])
            writes += (ZADD, at[key] if key in at else self._at(key), scores[by], names)
        for pair in move.pairs:
            self._pairs[pair] = None

    def archive(self, archived: Mapping[int, Job | None]) -> None:
        """Write archived jobs; None removes one."""
        keys = self._keys
        jobs = [job for job in archived.values() if job is not None]
        if jobs:
            names = self._names_of([job.id for job in jobs])
            self._write(HSET, keys.archive, names, self._records(jobs))
            self._write(ZADD, keys.archive_ids, ZERO_SCORE, names)
            self._write(ZADD, keys.archive_ends, self._column([job.finished_at for job in jobs]), names)
        if len(jobs) < len(archived):
            names = self._names_of([id for id, job in archived.items() if job is None])
            self._write(HDEL, keys.archive, names)
            self._write(ZREM, keys.archive_ids, names)
            self._write(ZREM, keys.archive_ends, names)

    def put_bodies(self, data: Mapping[int, Body | None], results: Mapping[int, Body | None]) -> None:
        """Write data and results; None removes them."""
        keys = self._keys
        places = ((keys.data, keys.large_data), (keys.results, keys.large_results))
        for bodies, (key, large) in zip((data, results), places, strict=True):
            put = {
                id: b"b" + body if isinstance(body, bytes) else b"s" + body.encode()
                for id, body in bodies.items()
                if body is not None
            }
            if put:
                self._put_bodies(put, key, large)
            if len(put) < len(bodies):
                names = self._names_of([id for id, body in bodies.items() if body is None])
                self._write(HDEL, key, names)
                self._write(HDEL, large, names)

    def _put_bodies(self, bodies: dict[int, bytes], key: bytes, apart: bytes) -> None:
        names, kept = self._names_of([*bodies]), [*bodies.values()]
        # The old body may have been a large one.
        self._write(HDEL, apart, names)
        if max(map(len, kept)) > INLINE_BYTES:
            large = {id: body for id, body in bodies.items() if len(body) > INLINE_BYTES}
            kept = [LARGE if id in large else body for id, body in bodies.items()]
            self._write(HSET, apart, self._names_of([*large]), self._column([*large.values()]))
        self._write(HSET, key, names, self._column(kept))

    # All else

    def count(self, counts: Mapping[CountKey, int], tallies: Mapping[TallyKey, int]) -> None:
        """Add to counts and tallies."""
        changed: list[CountKey | TallyKey] = [key for key in counts if counts[key]]
        numbers = [counts[key] for key in counts if counts[key]]
        if tallies:
            changed += tallies
            numbers += tallies.values()
        if changed:
            fields = self._column([*map(self._keys.count_field, changed)])
            differences = self._column(numbers)
            self.writes += (COUNT, self._positions[self._keys.counts], fields, differences)

    def put_rows(self, rows: Mapping[RowKey, bytes | None], dues: Mapping[RowKey, int]) -> None:
        """Write rows; None removes one."""
        for table in {table for table, _ in rows}:
            mine = {key: value for (name, key), value in rows.items() if name == table}
            self._put_table(table, mine, {key: due for (name, key), due in dues.items() if name == table})

    def _put_table(self, table: str, rows: dict[str, bytes | None], dues: dict[str, int]) -> None:
        keys, stamp = self._keys, self._stamp
        put = {key: stamp + value for key, value in rows.items() if value is not None}
        if put:
            names = self._column([*put])
            self._write(HSET, keys.rows(table), names, self._column([*put.values()]))
            self._write(ZADD, keys.row_keys(table), ZERO_SCORE, names)
        if len(put) < len(rows):
            gone = self._column([key for key in rows if key not in put])
            self._write(HDEL, keys.rows(table), gone)
            self._write(ZREM, keys.row_keys(table), gone)
        if due := {key: dues[key] for key in put if key in dues}:
            self._write(ZADD, keys.due_rows(table), self._column([*due.values()]), self._column([*due]))
        if len(due) < len(rows):
            self._write(ZREM, keys.due_rows(table), self._column([key for key in rows if key not in due]))
        self._write(TABLE, keys.rows(table), self._column([table]), self._column([stamp]))

    def put_notice(self, notice: bytes | None, version: bytes) -> None:
        """Write the notice, and the version by which other processes notice it."""
        self._write(SET, self._keys.version, self._column([version]))
        if notice is None:
            self._write(HDEL, self._keys.notice, NO_NAME)
        else:
            self._write(HSET, self._keys.notice, NO_NAME, self._column([self._stamp + notice]))

    def serve(self, pairs: Sequence[Pair]) -> None:
        """Give pairs their turns, in this order."""
        for pair in pairs:
            self._write(SERVED, self._keys.tasks(pair[0]), self._column([pair_name(pair), *pair]))
        if pairs:
            limits = (fairness.SWEPT_EVERY, fairness.REMEMBERED, fairness.SWEPT_AT_ONCE, len(pairs))
            self._write(SWEEP, self._keys.turn, self._column(limits))


class KeepingPlan(CommitPlan):
    """A plan whose records keep the fields of those before that this version does not know."""

    def __init__(self, keys: Keys, session: bytes, stamp: bytes, before: Mapping[int, bytes]) -> None:
        super().__init__(keys, session, stamp)
        self._before = before

    def _records(self, jobs: Sequence[Job]) -> int:
        records = [encode_job(job) for job in jobs]
        kept = [
            keep_unknown(self._before.get(job.id, b"")[STAMP_BYTES:], record, Job) or record
            for job, record in zip(jobs, records, strict=True)
        ]
        return self._column([self._stamp + record for record in kept])


def _groups(
    before: Mapping[int, Job | None], after: Mapping[int, Job | None]
) -> dict[tuple[Kind | None, Kind | None], list[int]]:
    """The ids of jobs by their kinds before and after. No call for each job: there may be thousands."""
    groups: dict[tuple[Kind | None, Kind | None], list[int]] = {}
    for id, new in after.items():
        old = before[id] if id in before else None  # noqa: SIM401
        kinds = (
            None
            if old is None
            else (old.place, old.tenant, old.task, old.mock, old.domain, old.parent_id, old.expires_at > 0),
            None
            if new is None
            else (new.place, new.tenant, new.task, new.mock, new.domain, new.parent_id, new.expires_at > 0),
        )
        if kinds in groups:
            groups[kinds] += (id,)
        else:
            groups[kinds] = [id]
    return groups
