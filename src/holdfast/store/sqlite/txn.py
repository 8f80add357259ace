"""One atomic batch on the SQLite store: how `Changes` are written, and claims.

It contains no rules. A statement writes a whole batch. Where versions must match they are in its WHERE, and
the number of changed rows shows whether all did.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import rank
from ...core.errors import Conflict
from ...core.job import Body, Job, Place, State, size_of
from ...core.jump import Jump
from ...core.kinds import Names
from ...core.layout import keep_rows, keep_unknown, unmovable
from ..common.records import COLD
from ..contract import UNCHANGED, Changes, ClaimQuery, CountKey, Moments, NewJobs, RowKey, TallyKey
from .claim import Pair, find_ready
from .connection import SqliteConnection
from .notify import SqlitePresence
from .reads import SqliteReads
from .statements import BODY_BYTES, LAYOUT, SQL, cut, in_layout, listed, sized, table_of, with_ids

# Fields that are in columns and not in `rest`: a claim changes them, or they differ between jobs made from
# one template. In `rest` they have these defaults, which are not written; only the id has no default.
_IN_COLUMNS = COLD | {"id": 0, "size": 0}
_ID = len('{"id":0,')
_DELETE_DATA, _ = with_ids("delete_data", [0])

_encode = msgspec.json.Encoder().encode


class SqliteTxn(SqliteReads):
    """A batch; see `Txn` for what each method promises."""

    def __init__(
        self, connection: SqliteConnection, now_ms: int, presence: SqlitePresence, jump: Jump | None = None
    ) -> None:
        self.connection = connection
        self.now_ms = now_ms
        self._presence = presence
        self.jump = jump
        # The approximate number of rows written.
        self.changed = 0
        # Changes that `write` has written; their jobs are not counted yet.
        self._written: list[Changes] = []
        self._moments: Moments | None = None

    def read_ahead(self, rows: Names) -> None:
        """Nothing: there are no round trips to save."""

    # Claims

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        jobs = find_ready(self.connection, query, self._written_pairs())
        if jobs:
            self.lease(jobs, query)
        return jobs

    def lease(self, jobs: Sequence[Job], query: ClaimQuery) -> None:
        """Lease jobs that were found."""
        until = query.lease_until
        sql, ids = with_ids("claim", [job.id for job in jobs])
        values = (rank.lease(until), query.owner, until, query.started_at, ids)
        self.changed += self.connection.change(sql, values)
        if self._moments is not None:
            self._moments = self._moments.after_claim(jobs, rank.lease(until))

    def moments(self) -> Moments:
        """When something becomes true by itself. Read once: until the commit only claims change it."""
        if self._moments is None:
            self._moments = super().moments()
        return self._moments

    def _written_pairs(self) -> set[Pair]:
        jobs = [job for changes in self._written for job in changes.swapped]
        jobs += [group.template for changes in self._written for group in changes.added]
        return {(job.tenant, job.task) for job in jobs if job.place == Place.READY}

    # Changes

    def write(self, changes: Changes) -> None:
        """Write changes that later reads and claims of this batch must see."""
        self._written.append(changes)
        self._moments = None
        self.write_last(changes)

    def write_last(self, changes: Changes) -> None:
        """Write the fields in their order; no claim follows."""
        if changes.added:
            self._add(changes.added)
        if changes.swapped:
            self._swap(changes.swapped)
        results = changes.results
        if changes.archived:
            results = self._archive(changes.archived, results)
        if removed := changes.removed:
            self._delete(removed, since=0)
            self._delete_bodies([job.id for job in removed])
        if changes.forgotten:
            self._forget(changes.forgotten)
        for job_id in changes.data:
            self._replace_data(job_id, changes.data[job_id])
        if results:
            self._put("put_results", [*results.items()])
        if changes.counts or changes.tallies:
            self._count(changes.counts, changes.tallies)
        if changes.rows:
            self._put_rows(changes.rows, changes.dues)
        if changes.notice != UNCHANGED:
            self._put_rows({("", ""): changes.notice}, {})
            self.connection.change(SQL["drop_adding"])
            if changes.notice is None:
                create_adding(self.connection, LAYOUT)

    def _put(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for all rows; return how many it changed."""
        changed = 0
        for size, values in cut(rows):
            changed += self.connection.change(sized(name, size, len(rows[0])), values)
        self.changed += changed
        return changed

    def _add(self, groups: Sequence[NewJobs]) -> None:
        """Insert jobs and their data. SQLite itself refuses the id of a live job."""
        alone: list[tuple[Job, Body]] = []
        known: list[int] = []
        for group in groups:
            if not group.is_fresh:
                known += [id for id, _ in group.rows]
            if len(group.rows) == 1:
                alone += group.jobs()
            else:
                self._add_similar(group)
        if known:
            self._refuse_archived(known)
        if alone:
            self._put("add_jobs", [new_row_of(job, data) for job, data in alone])
            self._put_large([(job.id, data) for job, data in alone if is_large(data)])

    def _add_similar(self, group: NewJobs) -> None:
        """Insert jobs made from one template. Common values are bound once per statement."""
        _, _, *shared = row_of(group.template)
        for size, values in cut(group.rows):
            self.connection.execute(sized("add_similar_jobs", size, 2), (*shared, *values))
            self.changed += size
        for job_id, data in [row for row in group.rows if is_large(row[1])]:
            self._replace_data(job_id, data)

    def _put_large(self, bodies: Sequence[tuple[int, Body]]) -> None:
        if bodies:
            self._put("put_data", bodies)

    def _replace_data(self, job_id: int, data: Body) -> None:
        """Write the data of a job, live or archived, in its row or apart."""
        kept = None if is_large(data) else data
        if not self.connection.change(SQL["set_body"], (job_id, kept)):
            self.connection.change(SQL["set_archived_data"], (job_id, kept))
        if kept is None:
            self._put_large([(job_id, data)])
        else:
            self.connection.change(_DELETE_DATA, (job_id,))
        self.changed += 1

    def _refuse_archived(self, ids: Sequence[int]) -> None:
        sql, value = with_ids("are_archived", ids)
        if self.connection.value(sql, (value,)):
            raise Conflict(f"not all of {len(ids)} jobs are new")

    def _swap(self, jobs: Sequence[Job]) -> None:
        if self._put("swap_jobs", [row_of(job) for job in jobs]) != len(jobs):
            raise Conflict(f"not all of {len(jobs)} jobs are of the version before")

    def _archive(self, jobs: Sequence[Job], results: Mapping[int, Body]) -> Mapping[int, Body]:
        """Move jobs to the archive with their data and small results; return the other results."""
        finished = State.FINISHED
        records = map(bytes.decode, map(_encode, jobs))
        inside = {
            job.id: results[job.id] for job in jobs if job.id in results and not is_large(results[job.id])
        }
        rows = [
            (
                job.id,
                job.finished_at,
                job.tenant,
                job.task,
                str(job.ended or finished),
                record,
                inside.get(job.id),
            )
            for job, record in zip(jobs, records, strict=True)
        ]
        self._put("archive_jobs", rows)
        self._delete(jobs, since=1)
        return {id: results[id] for id in results if id not in inside} if inside else results

    def _delete(self, jobs: Sequence[Job], *, since: int) -> None:
        """Delete live jobs whose stored version is `since` below that of `jobs`."""
        # One statement per version: a batch has few different ones, and SQLite is fastest with a list of ids.
        for version in {job.version for job in jobs}:
            ids = [job.id for job in jobs if job.version == version]
            sql, value = with_ids("delete_jobs", ids)
            if self.connection.change(sql, (value, version - since)) != len(ids):
                raise Conflict(f"not all of {len(ids)} jobs are of version {version - since}")
            self.changed += len(ids)

    def _forget(self, ids: Collection[int]) -> None:
        sql, value = with_ids("delete_archived", ids)
        if self.connection.change(sql, (value,)) != len(ids):
            raise Conflict(f"not all of {len(ids)} jobs are in the archive")
        self._delete_bodies(ids)

    def _delete_bodies(self, ids: Collection[int]) -> None:
        for name in ("delete_data", "delete_results"):
            sql, value = with_ids(name, ids)
            self.changed += self.connection.change(sql, (value,))

    def _count(self, counts: Mapping[CountKey, int], tallies: Mapping[TallyKey, int]) -> None:
        rows: list[tuple[Any, ...]] = []
        for key in counts:
            if counts[key]:
                rows += ((*_plain(key), counts[key]),)
        if tallies:
            rows += [(*key, tallies[key]) for key in tallies]
        if len(rows) == 1:
            self.connection.execute(sized("count", 1, len(rows[0])), rows[0])
            self.changed += 1
        elif rows:
            self._put("count", rows)

    def _put_rows(self, rows: Mapping[RowKey, bytes | None], dues: Mapping[RowKey, int]) -> None:
        kept, gone = [], dict[str, list[str]]()
        for row, value in rows.items():
            table, key = row
            if value is None:
                gone.setdefault(table, []).append(key)
            else:
                kept.append((table, key, dues.get(row), _text_or_bytes(value)))
        if kept:
            self._put("put_rows", kept)
        for table, keys in gone.items():
            self.changed += self.connection.change(SQL["delete_rows"], (table, listed(keys)))


_LIVE, _ARCHIVE = (("jobs", "rest"), ("archive", "record"))


class SqliteKeepingTxn(SqliteTxn):
    """A batch on a store of a newer layout: records keep the fields that this version does not know."""

    def write_last(self, changes: Changes) -> None:
        """Write the changes, then add the unknown fields of the records before to those after."""
        if changes.notice != UNCHANGED:
            raise unmovable()
        before = self._records(_LIVE, [job.id for job in (*changes.swapped, *changes.archived)])
        super().write_last(replace(changes, rows=keep_rows(changes.rows, self.rows)))
        for (table, column), jobs in ((_LIVE, changes.swapped), (_ARCHIVE, changes.archived)):
            sql = f"UPDATE {table_of(table, LAYOUT)} SET {column} = ? WHERE id = ?"
            for job_id, record in self._records((table, column), [job.id for job in jobs]).items():
                if (kept := keep_unknown(before[job_id], record, Job)) is not None:
                    self.connection.change(sql, (kept.decode(), job_id))

    def _records(self, kind: tuple[str, str], ids: Collection[int]) -> dict[int, str]:
        table, column = kind
        sql = (
            f"SELECT id, {column} FROM {table_of(table, LAYOUT)} WHERE id IN (SELECT value FROM json_each(?))"
        )
        return dict(self.connection.rows(sql, (listed(ids),))) if ids else {}


@lru_cache(maxsize=4096)
def _plain(key: CountKey) -> tuple[Any, ...]:
    """The columns of a count."""
    tenant, task, place, state = key
    return tenant, task, int(place), str(state)


def row_of(job: Job) -> tuple[Any, ...]:
    """The columns of a job in order. Enums are plain numbers, which the libraries bind faster."""
    return (
        job.id,
        job.size,
        int(job.place),
        job.rank,
        job.version,
        job.owner,
        job.lease_until,
        job.started_at,
        job.claim,
        job.tenant,
        job.task,
        1 if job.mock else 0,
        job.expires_at,
        job.parent_id,
        job.domain,
        job.schedule,
        "{" + str(_encode(replace(job, **_IN_COLUMNS)), "utf-8")[_ID:],
    )


def rest_of_new(job: Job) -> str:
    """The column `rest` of a new job."""
    plain = replace(job, id=0, size=0, place=Place.SCHEDULED, rank=0)
    return "{" + str(_encode(plain), "utf-8")[_ID:]


def new_row_of(job: Job, data: Body) -> tuple[Any, ...]:
    """The columns of a new job with its data, unless that is kept apart."""
    return (*row_of(job), None if job.size > BODY_BYTES else data)


def is_large(body: Body) -> bool:
    """Whether a body is kept apart from the row of its job."""
    return size_of(body) > BODY_BYTES


def create_adding(connection: SqliteConnection, layout: int) -> None:
    """Create the view through which single jobs are added."""
    for name in ("create_adding", "create_counting"):
        connection.change(in_layout(SQL[name], layout))


def _text_or_bytes(value: bytes) -> str | bytes:
    """Text if the bytes are UTF-8 without NUL, so that people can read it; SQLite's functions stop at NUL."""
    try:
        return value if b"\0" in value else value.decode()
    except UnicodeDecodeError:
        return value
