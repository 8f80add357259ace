"""The working set of one transaction: what was read, what was decided, and the `Changes` that follow from it.

Commands read and change the working set (`get`, `put`, `add`); `flush` and `finish` turn it into `Changes`,
with everything that follows from a changed job:

    job changed ──▶ its parent's counts, perhaps resumed       (core.family, at once)
                ──▶ its unique key taken or set free           (holders, at once)
                ──▶ archived, if it ended and no parent needs it  (here)
                ──▶ its domain's loads and running             (limiting)
                ──▶ the counts                                 (counters)

A job is written once however often it was changed, and its version goes up by one. The changes of a command
that fails are undone (`drop`): every change of a `Draft` is recorded. `take_changes` makes the `Changes`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...core import family
from ...core.commands import NewJob
from ...core.creating import create
from ...core.defaults import Published
from ...core.errors import NotFound, Refused
from ...core.job import Body, Job, Place, State, readable
from ...core.kinds import PAUSE
from ...core.queries import Paused
from ...core.slots import slot_for, slot_in
from ...store.contract import ENDS, JOBS, NO_WAKE, Changes, NewJobs, RowKey, Txn
from ..records import read_pause
from ..shard_info import UNSHARDED, ShardInfo
from ..sysid import IdMaker
from . import notes
from .counters import Counts
from .holders import Holders
from .limiting import Domains
from .new_jobs import NewJobGroups
from .task_defaults import KnownDefaults
from .working_set import ABSENT, Draft, Undo, WorkingSet, undo_changes


class Batch(msgspec.Struct, kw_only=True, eq=False):
    """One transaction's jobs and rows, before and after."""

    txn: Txn
    now_ms: int
    ids: IdMaker
    rng: Callable[[], float]
    known: KnownDefaults
    # Reads how long the archive keeps jobs.
    read_retention: Callable[["Batch"], int]
    shard_info: ShardInfo = UNSHARDED
    # Whether records that holders send are trusted: not after the store has refused the batch.
    trusts: bool = False
    # Jobs as stored, and as last counted; a claim changes one before the other.
    stored: dict[int, Job] = {}
    counted: dict[int, Job] = {}
    # The changes of the current command, which are undone if it fails.
    undo: Undo = []
    # Jobs as decided; None: removed.
    jobs: Draft[int, Job | None] = msgspec.field(default_factory=Draft)
    # What will be written.
    data: Draft[int, Body] = msgspec.field(default_factory=Draft)
    results: Draft[int, Body] = msgspec.field(default_factory=Draft)
    rows: Draft[RowKey, bytes | None] = msgspec.field(default_factory=Draft)
    dues: Draft[RowKey, int] = msgspec.field(default_factory=Draft)
    # Archived jobs to delete; and all that were deleted in this transaction, flushed ones too.
    forgotten: list[int] = []
    gone: set[int] = set()
    # Ended children that are archived before their parent.
    swept: dict[int, bool] = {}
    counts: Counts = msgspec.field(default_factory=Counts)
    new_jobs: NewJobGroups = msgspec.field(default_factory=NewJobGroups)
    # New jobs that were written before the end of the transaction.
    flushed_new: tuple[NewJobs, ...] = ()
    # Created for the first job that needs them.
    known_holders: Holders | None = None
    known_domains: Domains | None = None
    # Whether any job of the working set has a domain.
    has_domains: bool = False
    # What to notify about; `news`: progress or a log; `published`: defaults of tasks.
    woke: bool = False
    wants_upkeep: bool = False
    news: bool = False
    published: bool = False
    ended: set[int] = set()
    # Each job as it was last written, archived and removed ones too.
    finals: dict[int, Job] = {}
    # Jobs changed since the last flush, in order.
    touched: dict[int, None] = {}
    # Jobs that were lost or have expired, before and after: no handler reports these.
    unreported: list[tuple[Job, Job]] = []
    # Jobs that became FAILED and have an `on_failure`.
    failed: dict[int, None] = {}
    # The replies to each part of a command that has several.
    parts: list[list[Any]] = []
    # What was read on demand.
    known_retention_ms: int | None = None
    known_pauses: set[Paused] | None = None
    known_task_defaults: Published | None = None

    def __post_init__(self) -> None:
        undo = self.undo
        self.jobs.undo = self.data.undo = self.results.undo = self.rows.undo = self.dues.undo = undo

    # Reading

    @property
    def holders(self) -> Holders:
        """The unique keys that the transaction touches."""
        if self.known_holders is None:
            self.known_holders = Holders(self)
        return self.known_holders

    @property
    def domains(self) -> Domains:
        """The domains that the transaction touches."""
        if self.known_domains is None:
            self.known_domains = Domains(self)
        return self.known_domains

    @property
    def retention_ms(self) -> int:
        """How long the archive keeps jobs; read only if a job is archived."""
        if self.known_retention_ms is None:
            self.known_retention_ms = self.read_retention(self)
        return self.known_retention_ms

    def set_retention(self, retention_ms: int) -> None:
        """Keep jobs so long, from this transaction on."""
        self.known_retention_ms = retention_ms

    @property
    def task_defaults(self) -> Published:
        """The published defaults of tasks; read only by claims."""
        if self.known_task_defaults is None:
            self.known_task_defaults = self.known.read(self.txn, keep=not self.published)
        return self.known_task_defaults

    def load(self, job_ids: Collection[int]) -> None:
        """Load live jobs into the working set."""
        missing = [id for id in job_ids if id not in self.jobs]
        if missing:
            for job in self.txn.load(missing).values():
                self.bring(job)

    def bring(self, job: Job) -> None:
        """Add a stored job to the working set, unless it is there already."""
        if job.id not in self.jobs:
            self.stored[job.id] = self.counted[job.id] = job
            dict.__setitem__(self.jobs, job.id, job)
            if job.domain is not None:
                self.has_domains = True

    def bring_all(self, jobs: dict[int, Job]) -> None:
        """Add stored jobs to the working set, which has none of them yet."""
        self.stored |= jobs
        self.counted |= jobs
        self.jobs.update(jobs)
        self._note_domains(jobs.values())

    def bring_claimed(self, before: list[Job], leased: list[Job]) -> None:
        """Add jobs that the store has just leased, as they were before and as they are now."""
        now = {job.id: job for job in leased}
        self.stored |= now
        self.counted |= {job.id: job for job in before}
        self.jobs.update(now)
        self.touched |= dict.fromkeys(now)
        self._note_domains(before)

    def _note_domains(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.domain is not None:
                self.has_domains = True
                return

    def put_claimed(self, after: Job) -> None:
        """Change a leased job, if the rules decide otherwise than the store did."""
        stored = self.stored[after.id]
        after = replace(after, version=stored.version)
        if after != stored:
            self.put(after)

    def find(self, job_id: int) -> Job | None:
        """A live job, or None."""
        if job_id not in self.jobs:
            self.load([job_id])
        return self.jobs.get(job_id)

    def get(self, job_id: int, tenant: str | None = None, *, verb: str = "change") -> Job:
        """A live job; raises `NotFound`, or `Refused` for an archived job, which cannot change.

        With a tenant, jobs of other tenants are not found.
        """
        job = self.find(job_id)
        old = job or self.archived(job_id)
        if old is not None and tenant not in (None, old.tenant):
            raise NotFound("job", job_id)
        if job is not None and not self.is_archivable(job):
            return job
        if old is not None:
            delete = ", and delete it before if its unique_for has not passed" if old.unique_for_ms else ""
            needed = f"a job that is not archived: add another{delete}"
            if verb == "signal":
                needed = "a job that has not ended"
            raise Refused(verb, job_id, found=f"{old.state} and archived", needed=needed)
        raise NotFound("job", job_id)

    def children(self, parent_id: int, place: Place, limit: int, after: int = 0) -> tuple[list[Job], int]:
        """Live children of a job, with the changes of this transaction; and the last id read if there may be
        more in the store, else 0."""
        page = self.txn.children(parent_id, place=place, after=after, limit=limit)
        for child in page:
            self.bring(child)
        born = (job for job in self.jobs.values() if job is not None and job.parent_id == parent_id)
        found = sorted((job for job in born if job.place == place and job.id > after), key=lambda job: job.id)
        return found, page[-1].id if len(page) == limit else 0

    def body_of(self, job_id: int) -> Body:
        """The data of a job, with the changes of this transaction; `StoreCorrupt` if it is damaged."""
        if job_id in self.data:
            return self.data[job_id]
        return readable(job_id, "data", self.txn.bodies([job_id]).get(job_id))

    def rows_of(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """Rows, with the changes of this transaction."""
        found: dict[str, bytes | None] = dict(self.txn.rows(table, keys))
        if self.rows and keys is None:
            found |= {key: value for (name, key), value in self.rows.items() if name == table}
        elif self.rows:
            found |= {key: self.rows[table, key] for key in keys or () if (table, key) in self.rows}
        return {key: value for key, value in found.items() if value is not None}

    def pauses(self) -> set[Paused]:
        """The pauses: (tenant, task, domain), None for any."""
        if self.known_pauses is None:
            self.known_pauses = {read_pause(name) for name in self.rows_of(PAUSE)}
        return self.known_pauses

    def forget_pauses(self) -> None:
        """Read the pauses again: they have just been changed."""
        self.known_pauses = None

    # Deciding

    def put(self, after: Job) -> None:
        """Change a job to `after`, and update its parent and its unique key."""
        job_id, jobs = after.id, self.jobs
        before = jobs[job_id] if job_id in jobs else None  # noqa: SIM401 - a call less
        self.undo.append((jobs, job_id, before if before is not None or job_id in jobs else ABSENT))
        dict.__setitem__(jobs, job_id, after)
        self.touched[job_id] = None
        if after.domain is not None:
            self.has_domains = True
        if after.on_failure and after.ended is State.FAILED and (before is None or before.ended is None):
            self.failed[job_id] = None
        if (
            after.parent_id
            or after.unique is not None
            or after.steps
            or after.log_lines
            or after.signals
            or before is None
            or before.steps
            or before.log_lines
            or before.signals
            or before.unique is not None
            or before.parent_id
        ):
            self._follow(before, after)

    def remove(self, job: Job) -> None:
        """Delete a live job."""
        self.jobs[job.id] = None
        self.touched[job.id] = None
        self._follow(job, None)

    def sweep(self, child: Job) -> None:
        """Archive an ended child before its parent."""
        self.undo.append((self.swept, child.id, ABSENT))
        self.swept[child.id] = True
        # A copy: a record that is identical to the stored one is not written.
        self.jobs[child.id] = replace(child)
        self.touched[child.id] = None

    def has_deleted(self, job_id: int) -> bool:
        """Whether a job was deleted here, live or archived, and that is not written yet."""
        return job_id in self.forgotten or (job_id in self.touched and self.jobs.get(job_id) is None)

    def archived(self, job_id: int) -> Job | None:
        """An archived job, unless this transaction has deleted it."""
        return None if job_id in self.gone else self.txn.archived([job_id]).get(job_id)

    def forget(self, gone: list[Job]) -> int:
        """Delete archived jobs with their counts and logs; returns how many there were."""
        gone = [old for old in gone if old.id not in self.gone]
        self.gone |= {old.id for old in gone}
        self.forgotten += [old.id for old in gone]
        self.uncount(gone)
        return len(gone)

    def uncount(self, gone: list[Job]) -> None:
        """Remove jobs from the counts, and their steps and logs."""
        self.counts.went(gone)
        for old in gone:
            notes.forget(self, old)

    def _follow(self, before: Job | None, after: Job | None) -> None:
        job = after or before
        assert job is not None
        if job.parent_id and family.tally(before) != family.tally(after):
            parent = self.find(job.parent_id)
            if parent is not None:
                self.put(family.moved(parent, before, after, now_ms=self.now_ms))
        if job.unique is not None:
            self.holders.followed(before, after)
        if before is not None and (before.steps or before.log_lines or before.signals):
            notes.followed(self, before, after)

    def add(self, new: NewJob, parent: Job | None = None) -> int:
        """Add a job without a conflicting unique key; returns its id."""
        job_id = new.id or self.ids.make(slot=slot_for(new))
        job = create(self.ids.with_follower(new, slot_in(job_id)), job_id=job_id, now_ms=self.now_ms)
        self.data[job_id] = new.data
        self.put(family.as_child(job, parent) if parent else job)
        return job_id

    def keep(self) -> None:
        """Keep the changes of the current command."""
        self.new_jobs.kept = self.new_jobs.size
        if self.undo:
            self.undo.clear()

    def drop(self) -> None:
        """Undo the changes of the current command, which has failed."""
        self.new_jobs.drop()
        undo_changes(self.undo)

    # Writing

    def flush(self) -> None:
        """Write the changes so far, because a read or a claim follows that must see them."""
        if not (
            self.touched or self.new_jobs.size[0] or self.rows or self.forgotten or self.data or self.results
        ):
            return
        changes = take_changes(self)
        self.flushed_new += tuple(changes.added)
        jobs = changes.added or changes.swapped or changes.archived or changes.removed or changes.forgotten
        if jobs or changes.rows or changes.data or changes.results:
            self.txn.write(changes)

    def settle(self) -> None:
        """Update which jobs are READY and HELD in the limited domains of the working set."""
        if self.known_domains is None and not (self.touched and self.has_domains):
            return
        self.flush()
        self.domains.settle()
        self.keep()

    def finish(self, *, more: bool = False) -> Changes:
        """The remaining changes, with domains, counts and the sysid; `more`: upkeep has more to do."""
        self.wants_upkeep = self.wants_upkeep or more
        return take_changes(self, last=True)

    def begin_drafts(self) -> None:
        """Start with empty drafts: the changes so far were written."""
        self.data, self.results, self.rows, self.dues = Draft(), Draft(), Draft(), Draft()
        self.data.undo = self.results.undo = self.rows.undo = self.dues.undo = self.undo
        self.forgotten = []

    def drop_bodies(self, job_id: int) -> None:
        """Do not write the data and result of a job that is removed."""
        self.data.pop(job_id, None)
        self.results.pop(job_id, None)

    def is_archivable(self, job: Job) -> bool:
        """Whether an ended job is archived: FAILED jobs stay, and children of a live parent."""
        if job.place is not Place.DONE or job.ended is State.FAILED:
            return False
        if not job.parent_id or job.id in self.swept:
            return True
        parent = self.find(job.parent_id)
        return parent is None or self.is_archivable(parent)


class _Jobs(Struct):
    """The changed jobs by what is done with them."""

    added: list[NewJobs] = []
    swapped: list[Job] = []
    archived: list[Job] = []
    removed: list[Job] = []


def take_changes(batch: WorkingSet, *, last: bool = False) -> Changes:
    """The changes since the last call; `last`: with domains, counts and the sysid, which are written once."""
    jobs, counts = _Jobs(), batch.counts
    if batch.new_jobs.size[0]:
        jobs.added, batch.woke = batch.new_jobs.take(), True
        for group in jobs.added:
            counts.came_alike(group.template, len(group.rows))
    if batch.touched:
        _take_jobs(batch, jobs)
    if batch.known_holders is not None:
        batch.known_holders.write()
    if last and batch.known_domains is not None:
        batch.known_domains.write()
    if last and batch.ids.rows:
        batch.rows.update(batch.ids.rows)
    # Which waiting processes the commit wakes up. Also if upkeep has more to do: this one may never claim.
    wake = JOBS if batch.woke or batch.wants_upkeep else ENDS if batch.ended or batch.news else NO_WAKE
    changes = Changes(
        added=jobs.added,
        swapped=jobs.swapped,
        removed=jobs.removed,
        archived=jobs.archived,
        forgotten=batch.forgotten,
        data=batch.data,
        results=batch.results,
        rows=batch.rows,
        dues=batch.dues,
        counts=counts.take() if last else {},
        tallies=counts.take_tallies() if last and (counts.ends or counts.moved) else {},
        wake=wake if last else NO_WAKE,
    )
    if not last:
        batch.begin_drafts()
    return changes


def _take_jobs(batch: WorkingSet, jobs: _Jobs) -> None:
    changed = _changed(batch)
    if batch.known_domains is not None or batch.has_domains:
        batch.domains.account(changed)
    batch.counts.count_changes(changed, batch.counted, batch.jobs)
    _sort(batch, changed, jobs)
    stored, counted = batch.stored, batch.counted
    for job in jobs.swapped:
        stored[job.id] = counted[job.id] = job
        dict.__setitem__(batch.jobs, job.id, job)
    batch.finals |= {job.id: job for job in (*jobs.swapped, *jobs.removed, *jobs.archived)}
    if jobs.archived:
        _archive(batch, jobs)


def _changed(batch: WorkingSet) -> list[int]:
    """The jobs that differ from the stored or the counted record."""
    stored, counted, jobs = batch.stored, batch.counted, batch.jobs
    changed = [
        id
        for id in batch.touched
        if id in jobs
        and not (id in stored and id in counted and jobs[id] is stored[id] is counted[id])
        and not (jobs[id] is None and id not in stored and id not in counted)
    ]
    batch.touched.clear()
    return changed


def _sort(batch: WorkingSet, changed: list[int], jobs: _Jobs) -> None:
    """Sort changed jobs into added, replaced, archived and removed ones; note whom the commit must wake."""
    stored, counted, now = batch.stored, batch.counted, batch.jobs
    archived, swapped, over, woke = jobs.archived, jobs.swapped, dict[int, None](), batch.woke
    for job_id in changed:
        before = stored[job_id] if job_id in stored else None  # noqa: SIM401 - a call less
        after = now[job_id]
        if after is None:
            batch.drop_bodies(job_id)
            counted.pop(job_id, None)
            over[job_id] = None
            if before is not None:
                jobs.removed.append(stored.pop(job_id))
            continue
        if before is None:
            jobs.added.append(NewJobs(after, [(job_id, batch.data.pop(job_id, "{}"))]))
            batch.finals[job_id] = before = stored[job_id] = after
        counted[job_id], place = after, after.place
        if place is Place.DONE:
            over[job_id] = None
            if after.ended is not State.FAILED and (not after.parent_id or batch.is_archivable(after)):
                archived.append(replace(after, version=before.version + 1))
                continue
        elif place is not Place.RUNNING and not woke:
            # SCHEDULED too: waiting processes must know when it is due or expires.
            woke = place is Place.READY or place is Place.SCHEDULED or bool(after.expires_at)
        if before is not after:
            swapped.append(replace(after, version=before.version + 1))
    batch.woke = woke
    if over:
        batch.ended.update(over)


def _archive(batch: WorkingSet, jobs: _Jobs) -> None:
    """Remove archived jobs from the working set; without retention they are deleted altogether."""
    archived = jobs.archived
    batch.jobs.update(dict.fromkeys([job.id for job in archived]))
    if not batch.retention_ms:
        for job in archived:
            jobs.removed.append(batch.stored[job.id])
            batch.drop_bodies(job.id)
    for job in archived:
        del batch.stored[job.id], batch.counted[job.id]
    if not batch.retention_ms:
        batch.uncount(archived)
        archived.clear()
