"""The parts of a store: how each is listed, compared and written through the store contract.

    archive   archived jobs, with data and result
    jobs      live jobs, with data and result
    counts    the counts of jobs
    rows      a part for each table (`rows`)

A part is listed by key, in the same order in every store. Records are copied unchanged, with ids, versions,
claims and leases. In a sharded store a row belongs in one of the shards, or in all of them.

Rows have a part for each table, including tables that this version does not know.

Rows are copied unchanged, to the shard of their slot or to all. One table depends on the number of shards and
is derived from other data (docs/decisions/0011): the numbers of schedules, noted in the shard that would
otherwise allocate them again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ...core import ids, slots
from ...core.bounds import CLAIM_BYTES
from ...core.commands import NewJob
from ...core.defaults import Defaults
from ...core.errors import BadInput
from ...core.job import Body, Job
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
from ...core.schedule import Schedule
from ...core.slots import shard_of, slot_of_record, slot_of_schedule, slot_of_table
from ...core.unique import read_unique
from ...core.worker import Worker
from ...store.contract import Changes, CountKey, JobFilter, NewJobs, ReadTxn, Txn, count_key
from ..commands.chores import Chore
from ..commands.requests import read_note
from ..commands.schedules import read_kept
from ..sysid import Sysid

K = TypeVar("K")
R = TypeVar("R")

# How many bodies are read at once, until there are enough for a transaction; a body has up to 16 MB.
BODIES_AT_ONCE = 50
# The counts of jobs by shard.
Tally = Counter[tuple[int, CountKey]]
_WAIT = "Let the two end first, or move to fewer shards"


class Misplaced(BadInput):
    """A job that would belong in two shards of the target."""


class CopiedPart(Generic[K, R]):
    """One part of a store. `last_only`: copied only when the source is stopped."""

    name: str
    start: K
    last_only = False

    def page(self, txn: ReadTxn, after: K, limit: int) -> list[R]:
        """Rows with a key above `after`, by key. Fewer than `limit` is not the end; none is."""
        raise NotImplementedError

    def given(self, txn: ReadTxn, after: K, limit: int) -> list[R]:
        """The rows to copy, derived from a shard of the source; in most parts its own rows."""
        return self.page(txn, after, limit)

    def key(self, row: R) -> K:
        """The key of a row."""
        raise NotImplementedError

    def at(self, row: R, of: int) -> Iterable[int]:
        """In which of `of` shards a row belongs; `Misplaced` for a job that would belong in two."""
        raise NotImplementedError

    def shards(self, of: int) -> Iterable[int]:
        """The shards that may have rows of this part."""
        return range(of)

    def whence(self, row: R, of: int) -> int:
        """Which of `of` shards of the source has the bodies of a row."""
        return 0

    def joined(self, rows: Sequence[R]) -> R:
        """One row made from those that several shards of the source have for one key."""
        return rows[0]

    def noted(self, shard: int, rows: Sequence[R]) -> None:
        """Take note of the rows of a shard in the last pass."""

    def seen(self, row: R) -> Any:
        """The content of a row that must be equal in both stores."""
        return row

    def fill(self, txn: ReadTxn, rows: Sequence[R]) -> "Sequence[R | None]":
        """The first of these rows, complete with bodies; None for one that was deleted."""
        return rows

    def put(self, txn: Txn, rows: Sequence[R], olds: Sequence[R]) -> Changes:
        """The changes that delete the old rows and write these."""
        raise NotImplementedError


class Whole(NamedTuple):
    """A job and its bodies; None if they were not read, or there are none."""

    job: Job
    data: Body | None = None
    result: Body | None = None


class _JobPart(CopiedPart[int, Whole]):
    start = 0
    archived = False

    def __init__(self, *, deep: bool, tally: Tally | None = None, share: int = 1) -> None:
        # `deep`: whether bodies are compared too; `share`: from how many shards a page is made.
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

    def noted(self, shard: int, rows: Sequence[Whole]) -> None:
        if self._tally is not None:
            jobs = (row.job for row in rows)
            self._tally.update((shard, count_key(job)) for job in jobs)

    def fill(self, txn: ReadTxn, rows: Sequence[Whole]) -> Sequence[Whole | None]:
        if self._deep:
            return rows
        whole = _with_bodies(txn, [row.job for row in rows])
        return [row if row.data is not None else None for row in whole]


class Live(_JobPart):
    """Live jobs, in all places."""

    name = "jobs"

    def at(self, row: Whole, of: int) -> Iterable[int]:
        check_place(row.job, of)
        return super().at(row, of)

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> Changes:
        """A live job whose id is in the target's archive was deleted in the source and added again."""
        forgotten = txn.archived([row.job.id for row in rows])
        txn.write(Changes(removed=[row.job for row in olds], forgotten=forgotten))
        return _adding(rows, version=0)


class Settled(_JobPart):
    """Archived jobs: written once, so a store that has the record has the bodies too."""

    name = "archive"
    archived = True

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> Changes:
        """Add each with the version before, and archive it in the same transaction."""
        there, wanted = txn.load([row.job.id for row in rows]), {row.job.id for row in rows}
        live = [job for id, job in there.items() if id in wanted]
        txn.write(Changes(removed=live, forgotten=[row.job.id for row in olds]))
        return replace(_adding(rows, version=-1), archived=[row.job for row in rows])


def _with_bodies(txn: ReadTxn, jobs: Sequence[Job], share: int = 1) -> list[Whole]:
    """The first of these jobs with their bodies, up to the size of a transaction divided by `share`."""
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
    """One count of jobs, perhaps of one shard."""

    kind: CountKey
    number: int
    shard: int = 0


class CountsPart(CopiedPart[tuple[Any, ...], Counted]):
    """The counts of jobs."""

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
        return (row.shard,)

    def joined(self, rows: Sequence[Counted]) -> Counted:
        return rows[0]._replace(number=sum(row.number for row in rows))

    def put(self, txn: Txn, rows: Sequence[Counted], olds: Sequence[Counted]) -> Changes:
        counts = Counter({row.kind: row.number for row in rows})
        counts.subtract({row.kind: row.number for row in olds})
        return Changes(counts=counts)


class ShardCountsPart(CountsPart):
    """The counts of one shard, counted while copying: those of the source are of its own shards."""

    def __init__(self, tally: Tally, shard: int) -> None:
        self._tally, self._copy_stretch = tally, shard

    def given(self, txn: ReadTxn, after: tuple[Any, ...], limit: int) -> list[Counted]:
        mine = (
            (kind, number) for (shard, kind), number in self._tally.items() if shard == self._copy_stretch
        )
        return sorted(Counted(kind, number, self._copy_stretch) for kind, number in mine if kind > after)[
            :limit
        ]

    def shards(self, of: int) -> Iterable[int]:
        return (self._copy_stretch,)

    def joined(self, rows: Sequence[Counted]) -> Counted:
        return rows[0]


def check_place(job: Job, of: int) -> None:
    """Raise `Misplaced` for a live job that would belong in two of these shards, or its follow-up job."""
    if of == 1:
        return
    if job.parent_id and (job.parent_id - job.id) % of:
        needed = f"one of the same shard, where there are {of}: {_WAIT}"
        raise Misplaced(f"the parent of job {job.id}", job.parent_id, needed=needed)
    if job.domain is not None and (ids.slot_of(job.tenant, job.domain) - job.id) % of:
        needed = (
            f"its parent's, or absent, where there are {of} shards: a child lives with its parent, and a job "
            f"with its domain. {_WAIT}"
        )
        raise Misplaced(f"the domain of job {job.id}", job.domain, needed=needed)
    if job.unique is not None and not job.strict and ((slots.slot_for(job) or 0) - job.id) % of:
        needed = f"absent, where there are {of} shards: it belongs to another one than the job. {_WAIT}"
        raise Misplaced(f"the unique key of job {job.id}", job.unique, needed=needed)
    for follower in filter(None, (job.then, job.on_failure)):
        _check_followers(f"the job that follows {job.id}", follower, job.domain)


def check_schedule(schedule: Schedule, job: NewJob) -> None:
    """Raise `Misplaced` for a schedule whose jobs would belong in two shards."""
    try:
        slots.check_one_slot(job)
    except BadInput as error:
        needed = f"without jobs in two shards: {error}"
        raise Misplaced("the schedule", schedule.name, needed=needed) from None


def check_followers_of(task: str, raw: bytes) -> None:
    """Raise `Misplaced` for the defaults of a task whose follow-up job may belong in another shard."""
    defaults = msgspec.json.decode(raw, type=Defaults)
    for follower in filter(None, (defaults.then, defaults.on_failure)):
        _check_followers(f"the follow-up job of the task {task}", follower, None)


def _check_followers(of_what: str, then: str, domain: bytes | None) -> None:
    try:
        slots.check_followers([msgspec.json.decode(then, type=NewJob)], domain)
    except BadInput as error:
        raise Misplaced(of_what, "in another shard", needed=f"in the same one: {error}. {_WAIT}") from None


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
