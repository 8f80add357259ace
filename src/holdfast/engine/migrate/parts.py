"""What a store consists of, part by part: how each is listed, compared and written, by the contract alone.

    archive   jobs that have ended, with data and result         counts    how many of each kind there are
    jobs      live jobs, with data and result                    turns     who was served when
    records   all small records: sysids, schedules, limits …     logs      items, and where keys lead
    unique    who holds which key
    domains   what is kept of limited domains

A part is listed by its key, in the same order by every store. Nothing is translated: what goes in is what
came out, with ids, versions, claims and leases as they are. Only a domain's version begins anew, which nobody
sees. Where a store is several, a row belongs at one of its doors, or at all of them: there the verbs look for
it. Here are jobs, keys, domains and logs; the small ones are in `small_parts`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ...core import ids
from ...core.bounds import CLAIM_BYTES
from ...core.errors import BadInput, Conflict
from ...core.indexed import LogMark
from ...core.job import Body, Job
from ...core.limits import Domain, DomainKey
from ...core.slots import shard_of, slot_of_record
from ...core.unique import Unique, UniqueKey
from ...store.contract import CountKey, JobFilter, LogRow, ReadTxn, Txn
from ...store.sharded.lists import holding
from ..records import LOG

K = TypeVar("K")
R = TypeVar("R")

# Bodies are fetched so many at a time, until a transaction's worth is there: 16 MB is a body's limit.
BODIES_AT_ONCE = 50
# How many jobs of each kind there are at each door.
Tally = Counter[tuple[int, CountKey]]


class Misplaced(BadInput):
    """A job that would have to be in two places, in a store of so many shards."""


class Part(Generic[K, R]):
    """One part of a store. `last_only`: nothing to copy before the source stands still."""

    name: str
    start: K
    last_only = False
    # What is to be written before anything of the part is compared.
    prepare: Any = None

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

    def put(self, txn: Txn, rows: Sequence[R], olds: Sequence[R]) -> None:
        """Remove the old ones, and write these."""
        raise NotImplementedError


class Whole(NamedTuple):
    """A job and its bodies; None where they were not fetched, or there is none."""

    job: Job
    data: Body | None = None
    result: Body | None = None


class _JobPart(Part[int, Whole]):
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

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> None:
        """One whose id was in the archive has been deleted there and added anew."""
        txn.remove([row.job for row in olds])
        ids = [row.job.id for row in rows]
        txn.forget(txn.archived(ids))
        _insert(txn, rows, version=0)


class Settled(_JobPart):
    """Jobs of the archive: written once, so that whoever has the record has the bodies too."""

    name = "archive"
    archived = True

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> None:
        """They go in one version earlier, and to the archive in the same transaction."""
        txn.forget([row.job.id for row in olds])
        ids = [row.job.id for row in rows]
        live = txn.load(ids)
        txn.remove([live[id] for id in ids if id in live])
        _insert(txn, rows, version=-1)
        txn.archive([row.job for row in rows], keep=True)


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


def _insert(txn: Txn, rows: Sequence[Whole], *, version: int) -> None:
    jobs = [
        (
            replace(row.job, version=row.job.version + version) if version else row.job,
            "" if row.data is None else row.data,
        )
        for row in rows
    ]
    if txn.insert(jobs):
        raise Conflict("an id was taken")
    if results := {row.job.id: row.result for row in rows if row.result is not None}:
        txn.put_bodies(results, result=True)


class Keys(Part[UniqueKey, Unique]):
    """Who holds which unique key."""

    name = "unique keys"
    start = ("", "", b"")

    def page(self, txn: ReadTxn, after: UniqueKey, limit: int) -> list[Unique]:
        return txn.list_unique(after=after, limit=limit)

    def key(self, row: Unique) -> UniqueKey:
        return row.id

    def at(self, row: Unique, of: int) -> Iterable[int]:
        return (shard_of(row.job_id, of),)

    def joined(self, rows: Sequence[Unique]) -> Unique:
        return holding(rows)

    def put(self, txn: Txn, rows: Sequence[Unique], olds: Sequence[Unique]) -> None:
        txn.drop_unique({row.id for row in olds} - {row.id for row in rows})
        txn.put_unique(rows)


class Domains(Part[DomainKey, Domain]):
    """What is kept of limited domains."""

    name = "domains"
    start = ("", b"")

    def page(self, txn: ReadTxn, after: DomainKey, limit: int) -> list[Domain]:
        return txn.list_all_domains(after=after, limit=limit)

    def key(self, row: Domain) -> DomainKey:
        return row.key

    def at(self, row: Domain, of: int) -> Iterable[int]:
        return (ids.slot_of(*row.key) % of,)

    def seen(self, row: Domain) -> Domain:
        return replace(row, version=1)

    def put(self, txn: Txn, rows: Sequence[Domain], olds: Sequence[Domain]) -> None:
        txn.drop_domains(olds)
        txn.swap_domains([replace(row, version=1) for row in rows])


class LogItems(Part[int, LogRow]):
    """The items of one log."""

    def __init__(self, log: str, ends: LogMark) -> None:
        self.name, self.start = f"log {log}", ends.trimmed
        self._log = log
        # What the source has trimmed since the last walk.
        self.prepare = lambda txn: txn.trim_log(log, after=0, up_to=ends.trimmed, keys_up_to=ends.keys_from)

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[LogRow]:
        found: list[LogRow] = []
        size = 0
        while len(found) < limit and size < CLAIM_BYTES:
            last = found[-1].at if found else after
            rows = txn.read_log(self._log, after=last, limit=min(BODIES_AT_ONCE, limit - len(found)))
            if not rows:
                break
            found += rows
            size += sum(len(row.body) for row in rows)
        return found

    def key(self, row: LogRow) -> int:
        return row.at

    def at(self, row: LogRow, of: int) -> Iterable[int]:
        return self.doors(of)

    def doors(self, of: int) -> Iterable[int]:
        return (_slot_of_log(self._log) % of,)

    def put(self, txn: Txn, rows: Sequence[LogRow], olds: Sequence[LogRow]) -> None:
        for row in olds:
            txn.trim_log(self._log, after=row.at - 1, up_to=row.at, keys_up_to=0)
        txn.append_log(self._log, rows)


class LogKeys(Part[int, tuple[int, bytes]]):
    """The keys of one log whose items are trimmed: those of the others come with their items."""

    def __init__(self, log: str, ends: LogMark) -> None:
        self.name, self.start = f"keys of log {log}", ends.keys_from
        self._log, self._trimmed = log, ends.trimmed

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[tuple[int, bytes]]:
        rows = txn.list_log_keys(self._log, after=after, limit=limit)
        return [row for row in rows if row[0] <= self._trimmed]

    def key(self, row: tuple[int, bytes]) -> int:
        return row[0]

    def at(self, row: tuple[int, bytes], of: int) -> Iterable[int]:
        return self.doors(of)

    def doors(self, of: int) -> Iterable[int]:
        return (_slot_of_log(self._log) % of,)

    def put(self, txn: Txn, rows: Sequence[tuple[int, bytes]], olds: Sequence[tuple[int, bytes]]) -> None:
        """An item that comes and goes leaves its key."""
        for at, key in rows:
            txn.append_log(self._log, [LogRow(at, key, "")])
            txn.trim_log(self._log, after=at - 1, up_to=at, keys_up_to=0)


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


def _slot_of_log(log: str) -> int:
    slot = slot_of_record(LOG, log)
    assert slot is not None
    return slot
