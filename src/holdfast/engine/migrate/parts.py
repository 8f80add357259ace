"""What a store consists of, part by part: how each is listed, compared and written, by the contract alone.

    archive   jobs that have ended, with data and result
    jobs      live jobs, with data and result
    counts    how many of each kind there are
    rows      a part for each table (`rows`)

A part is listed by its key, in the same order by every store. Nothing is translated: what goes in is what
came out, with ids, versions, claims and leases as they are. Where a store is several, a row belongs at one of
its doors, or at all of them: there the verbs look for it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ...core import ids
from ...core.bounds import CLAIM_BYTES
from ...core.errors import BadInput
from ...core.job import Body, Job
from ...core.slots import shard_of
from ...store.contract import Changes, CountKey, JobFilter, NewJobs, ReadTxn, Txn

K = TypeVar("K")
R = TypeVar("R")

# Bodies are fetched so many at a time, until a transaction's worth is there: 16 MB is a body's limit.
BODIES_AT_ONCE = 50
# How many jobs of each kind there are at each door.
Tally = Counter[tuple[int, CountKey]]


class Misplaced(BadInput):
    """A job that would have to be in two places, in a store of so many shards."""


class CopiedPart(Generic[K, R]):
    """One part of a store. `last_only`: nothing to copy before the source stands still."""

    name: str
    start: K
    last_only = False

    def page(self, txn: ReadTxn, after: K, limit: int) -> list[R]:
        """Rows by key, from the first above `after`; fewer than `limit` says nothing, none is the end."""
        raise NotImplementedError

    def given(self, txn: ReadTxn, after: K, limit: int) -> list[R]:
        """The rows that follow from what a door of the source has; most parts are as they are there."""
        return self.page(txn, after, limit)

    def key(self, row: R) -> K:
        """What a row is found by."""
        raise NotImplementedError

    def at(self, row: R, of: int) -> Iterable[int]:
        """At which of so many doors a row belongs; `Misplaced` if that would be two, and must be one."""
        raise NotImplementedError

    def doors(self, of: int) -> Iterable[int]:
        """At which of them there may be any rows."""
        return range(of)

    def whence(self, row: R, of: int) -> int:
        """Which of so many doors of the source has what else belongs to a row."""
        return 0

    def joined(self, rows: Sequence[R]) -> R:
        """One row of those that several doors of the source have of one key."""
        return rows[0]

    def noted(self, door: int, rows: Sequence[R]) -> None:
        """These rows belong at a door, and the source stands still."""

    def seen(self, row: R) -> Any:
        """What can be seen of a row, and must be the same in both stores."""
        return row

    def fill(self, txn: ReadTxn, rows: Sequence[R]) -> "Sequence[R | None]":
        """The first of these rows with all that belongs to them; None where one is gone."""
        return rows

    def put(self, txn: Txn, rows: Sequence[R], olds: Sequence[R]) -> Changes:
        """What removes the old ones, and writes these."""
        raise NotImplementedError


class Whole(NamedTuple):
    """A job and its bodies; None where they were not fetched, or there is none."""

    job: Job
    data: Body | None = None
    result: Body | None = None


class _JobPart(CopiedPart[int, Whole]):
    start = 0
    archived = False

    def __init__(self, *, deep: bool, tally: Tally | None = None, share: int = 1) -> None:
        # Whether bodies are compared as well; of how many doors a page is made.
        self._deep, self._tally, self._share = deep, tally, share

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[Whole]:
        jobs = txn.jobs(JobFilter(archived=self.archived), after=after, limit=limit)
        return _with_bodies(txn, jobs, self._share) if self._deep else [Whole(job) for job in jobs]

    def key(self, row: Whole) -> int:
        return row.job.id

    def at(self, row: Whole, of: int) -> Iterable[int]:
        return (shard_of(row.job.id, of),)

    def whence(self, row: Whole, of: int) -> int:
        return shard_of(row.job.id, of)

    def noted(self, door: int, rows: Sequence[Whole]) -> None:
        if self._tally is not None:
            jobs = (row.job for row in rows)
            self._tally.update((door, CountKey(job.tenant, job.task, job.place, job.state)) for job in jobs)

    def fill(self, txn: ReadTxn, rows: Sequence[Whole]) -> Sequence[Whole | None]:
        if self._deep:
            return rows
        whole = _with_bodies(txn, [row.job for row in rows])
        return [row if row.data is not None else None for row in whole]


class Live(_JobPart):
    """Live jobs, wherever they stand."""

    name = "jobs"

    def at(self, row: Whole, of: int) -> Iterable[int]:
        check_place(row.job, of)
        return super().at(row, of)

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> Changes:
        """One whose id was in the archive has been deleted there and added anew."""
        forgotten = txn.archived([row.job.id for row in rows])
        txn.write(Changes(removed=[row.job for row in olds], forgotten=forgotten))
        return _adding(rows, version=0)


class Settled(_JobPart):
    """Jobs of the archive: written once, so that whoever has the record has the bodies too."""

    name = "archive"
    archived = True

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> Changes:
        """They go in one version earlier, and to the archive in the same transaction."""
        there, wanted = txn.load([row.job.id for row in rows]), {row.job.id for row in rows}
        live = [job for id, job in there.items() if id in wanted]
        txn.write(Changes(removed=live, forgotten=[row.job.id for row in olds]))
        return replace(_adding(rows, version=-1), archived=[row.job for row in rows])


def _with_bodies(txn: ReadTxn, jobs: Sequence[Job], share: int = 1) -> list[Whole]:
    """The first of these jobs with their bodies, as many as a transaction, or a share of it, should carry."""
    found: list[Whole] = []
    size = 0
    at_once = max(BODIES_AT_ONCE // share, 1)
    for at in range(0, len(jobs), at_once):
        some = jobs[at : at + at_once]
        data = txn.bodies([job.id for job in some])
        results = txn.bodies([job.id for job in some], result=True)
        found += [Whole(job, data.get(job.id), results.get(job.id)) for job in some]
        size += sum(map(len, (*data.values(), *results.values())))
        if size >= CLAIM_BYTES // share:
            break
    return found


def _adding(rows: Sequence[Whole], *, version: int) -> Changes:
    alike: dict[Job, list[tuple[int, Body]]] = {}
    for job, data, _ in rows:
        template = replace(job, id=0, size=0, version=job.version + version)
        alike.setdefault(template, []).append((job.id, "" if data is None else data))
    results = {job.id: result for job, _, result in rows if result is not None}
    return Changes(added=[NewJobs(*group) for group in alike.items()], results=results)


class Counted(NamedTuple):
    """How many jobs of a kind there are, at a door of several."""

    kind: CountKey
    number: int
    door: int = 0


class CountsPart(CopiedPart[tuple[Any, ...], Counted]):
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

    def put(self, txn: Txn, rows: Sequence[Counted], olds: Sequence[Counted]) -> Changes:
        counts = Counter({row.kind: row.number for row in rows})
        counts.subtract({row.kind: row.number for row in olds})
        return Changes(counts=counts)


class ShardCountsPart(CountsPart):
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


def check_place(job: Job, of: int) -> None:
    """Refuse a live job that would have to be both with its parent and with its domain, and cannot."""
    if job.domain is not None and (ids.slot_of(job.tenant, job.domain) - job.id) % of:
        needed = (
            f"its parent's, or absent, where there are {of} shards: a child lives with its parent, and a job "
            "with its domain. Let the two end first, or move to fewer shards"
        )
        raise Misplaced(f"the domain of job {job.id}", job.domain, needed=needed)
    if job.parent_id and (job.parent_id - job.id) % of:
        needed = (
            f"one of the same shard, where there are {of}: let the two end first, or move to fewer shards"
        )
        raise Misplaced(f"the parent of job {job.id}", job.parent_id, needed=needed)
