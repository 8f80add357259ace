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
    encode_job,
    head_of,
    kind_of,
    plain_lease,
    record_of,
    write_body,
)
from .rows import ReadSet, Written

# The start of a record; the rest is the same for all jobs of a group, except for the size.
_ID_0 = b'{"id":0'
# The operations, by number.
BEGINS, ABSENT, SIZE, HSET, ZADD, HDEL, ZREM, COUNT, TABLE, SET, KEEP, DATA = range(1, 13)
# The columns that every plan has.
ZERO_SCORE, NO_NAME = 1, 2
_pack = msgspec.msgpack.Encoder().encode


class CommitPlan:
    """The keys of a commit, and its words."""

    def __init__(self, keys: Keys, stamp: bytes) -> None:
        self._keys, self._stamp = keys, stamp
        self.keys = [*keys.of_every_plan]
        self._positions = {**keys.positions}
        # The words of all columns, and how many words each has.
        self._words: list[Any] = [0, b""]
        self._sizes, self._count = [1, 1], 2
        self._checks: list[int] = []
        self.writes: list[int] = []
        # The last column of ids.
        self._ids: Sequence[int] = ()
        self._names = 0

    def words(self) -> list[Any]:
        """The plan as the script takes it."""
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
        alike, plain = encode_job(replace(template, id=0, size=0))[len(_ID_0) : -1], plain_lease(template)
        names, jobs = self._names_of(ids), at[keys.jobs]
        if max(sizes) > INLINE_BYTES:
            bodies = self._apart(dict(zip(ids, bodies, strict=True)))
        records = [
            b'%s{"id":%d%s,"size":%d}\0%s%s' % (stamp, id, alike, size - 1, plain, body)
            for id, size, body in zip(ids, sizes, bodies, strict=True)
        ]
        self._checks += (ABSENT, jobs, names, 0)
        if not is_fresh:
            self._checks += (ABSENT, at[keys.archive], names, 0)
        self.writes += (HSET, jobs, names, self._column(records))
        self._move_group(keys.move(None, kind_of(template)), names, [template])

    def move(self, written: Written, seen: ReadSet) -> None:
        """Write the records of jobs, and move them from their old orders to the new ones."""
        before, after, keys = seen.jobs, written.jobs, self._keys
        if written.added:
            names, at = self._names_of([*written.added]), self._positions
            self._checks += (ABSENT, at[keys.jobs], names, 0, ABSENT, at[keys.archive], names, 0)
        for (old, new), ids in _groups(before, after).items():
            jobs = [job for id in ids if (job := after[id]) is not None]
            if jobs:
                self._put(keys.jobs, jobs, written.data)
            names = self._names_of(ids)
            if not jobs and old is not None:
                self.writes += (HDEL, self._positions[keys.jobs], names, 0)
            self._move_group(keys.move(old, new), names, jobs)

    def _put(self, key: bytes, jobs: Sequence[Job], data: Mapping[int, Body | None]) -> None:
        """Write jobs with this data, or with that which they have."""
        new = {job.id: body for job in jobs if (body := data.get(job.id)) is not None} if data else {}
        kept = [job for job in jobs if job.id not in new]
        if kept:
            self._write(KEEP, key, self._names_of([job.id for job in kept]), self._column(self._heads(kept)))
        if new:
            bodies = self._apart({id: write_body(body) for id, body in new.items()})
            heads = self._heads([job for job in jobs if job.id in new])
            values = [head + body for head, body in zip(heads, bodies, strict=True)]
            self._write(HSET, key, self._names_of([*new]), self._column(values))

    def _heads(self, jobs: Sequence[Job]) -> list[bytes]:
        """The values of these jobs up to their data."""
        stamp = self._stamp
        return [head_of(stamp, job) for job in jobs]

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

    def _move_group(self, move: Move, names: int, jobs: Sequence[Job]) -> None:
        at, writes, scores = self._positions, self.writes, {ZERO: ZERO_SCORE}
        for key in move.leave:
            writes += (ZREM, at[key] if key in at else self._at(key), names, 0)
        for key, by in move.enter:
            if by not in scores:
                is_rank = by == RANK
                scores[by] = self._column([job.rank if is_rank else job.expires_at for job in jobs])
            writes += (ZADD, at[key] if key in at else self._at(key), scores[by], names)

    def archive(self, archived: Mapping[int, Job | None], data: Mapping[int, Body | None]) -> None:
        """Write archived jobs, with the data that they had while live; None removes one."""
        keys = self._keys
        jobs = [job for job in archived.values() if job is not None]
        if jobs:
            self._put(keys.archive, jobs, data)
            names = self._names_of([job.id for job in jobs])
            self._write(ZADD, keys.archive_ids, ZERO_SCORE, names)
            self._write(ZADD, keys.archive_ends, self._column([job.finished_at for job in jobs]), names)
        if len(jobs) < len(archived):
            names = self._names_of([id for id, job in archived.items() if job is None])
            self._write(HDEL, keys.archive, names)
            self._write(ZREM, keys.archive_ids, names)
            self._write(ZREM, keys.archive_ends, names)

    def put_bodies(self, written: Written) -> None:
        """Write results, and the data of jobs whose records are not written; None removes them."""
        keys, data, results = self._keys, written.data, written.results
        put = {
            id: write_body(body)
            for id, body in data.items()
            if body is not None and written.jobs.get(id) is None and written.archive.get(id) is None
        }
        if put:
            bodies = self._apart(put)
            self._write(DATA, keys.archive, self._names_of([*put]), self._column(bodies))
        if gone := [id for id, body in data.items() if body is None]:
            self._write(HDEL, keys.data, self._names_of(gone))
        new = {id: write_body(body) for id, body in results.items() if body is not None}
        if new:
            self._write(HSET, keys.results, self._names_of([*new]), self._column([*new.values()]))
        if len(new) < len(results):
            gone = [id for id, body in results.items() if body is None]
            self._write(HDEL, keys.results, self._names_of(gone))

    def _apart(self, bodies: dict[int, bytes]) -> list[bytes]:
        """The data as it is in the values of jobs; large data is written apart."""
        large = {id: body for id, body in bodies.items() if len(body) > INLINE_BYTES}
        if len(large) < len(bodies):
            # The old data may have been large.
            self._write(HDEL, self._keys.data, self._names_of([id for id in bodies if id not in large]))
        if large:
            self._write(HSET, self._keys.data, self._names_of([*large]), self._column([*large.values()]))
        return [LARGE if id in large else body for id, body in bodies.items()]

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


class KeepingPlan(CommitPlan):
    """A plan whose records keep the fields of those before that this version does not know."""

    def __init__(self, keys: Keys, stamp: bytes, before: Mapping[int, bytes]) -> None:
        super().__init__(keys, stamp)
        self._before = before

    def _heads(self, jobs: Sequence[Job]) -> list[bytes]:
        before, stamp = self._before, self._stamp
        kept = [keep_unknown(record_of(before.get(job.id, b"")), encode_job(job), Job) for job in jobs]
        return [head_of(stamp, job, record or b"") for job, record in zip(jobs, kept, strict=True)]


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
