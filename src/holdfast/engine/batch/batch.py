"""The working set of one transaction: what was read, what was decided, and the `Changes` that follow from it.

Commands decide on the working set (`get`, `put`, `add`); `flush` and `finish` make of it what the store is to
write, and derive what follows:

    job changed ──▶ its parent's counts, perhaps resumed       (core.family, at once)
                ──▶ its unique key taken or set free           (holders, at once)
                ──▶ archived, if it ended and nobody needs it  (here)
                ──▶ its domain's loads and running             (limiting)
                ──▶ the counts                                 (counters)

A job is written once however often it was decided upon, and its version goes up by one. What a command has
decided is taken back if it fails (`drop`): every change of a `Draft` is on a list, by which it is undone.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from ...core import family
from ...core.commands import NewJob
from ...core.creating import create
from ...core.defaults import Published
from ...core.errors import NotFound, Refused
from ...core.job import Body, Job, Place, State
from ...core.kinds import PAUSE
from ...core.queries import Paused
from ...core.slots import slot_for
from ...core.unique import UniqueKey
from ...store.contract import Changes, RowKey, Txn
from ..records import read_pause
from ..shard_info import UNSHARDED, ShardInfo
from ..sysid import IdMaker
from . import notes
from .changing import has_domain, take_changes
from .counters import Counts
from .draft import ABSENT, Draft, Undo, undo_changes
from .holders import Freed, Holders
from .limiting import Domains
from .new_jobs import NewJobGroups
from .task_defaults import KnownDefaults


class Batch:
    """One transaction's jobs and rows, before and after."""

    # What is to be written, and may yet be taken back.
    data: Draft[int, Body]
    results: Draft[int, Body]
    rows: Draft[RowKey, bytes | None]
    dues: Draft[RowKey, int]
    # Archived jobs that go.
    forgotten: list[int]
    # Made when a job that has one is met.
    known_holders: Holders | None = None
    known_domains: Domains | None = None
    is_limited = False
    # What others may be waiting for; `news`: progress or a log; `published`: defaults of tasks.
    woke = wants_upkeep = news = published = False
    _pauses: set[Paused] | None = None
    _retention_ms: int | None = None
    _task_defaults: Published | None = None

    def __init__(
        self,
        txn: Txn,
        id_maker: IdMaker,
        *,
        rng: Callable[[], float],
        shard_info: ShardInfo = UNSHARDED,
        known: KnownDefaults,
    ) -> None:
        self.txn, self.now_ms = txn, txn.now_ms
        self.shard_info, self.ids, self.rng = shard_info, id_maker, rng
        self._known = known
        # Looks up how long the archive keeps jobs.
        self.retention: Callable[[], int] = lambda: 0
        # As the store has them, and as they were last counted; a claim changes one before the other.
        self.stored: dict[int, Job] = {}
        self.counted: dict[int, Job] = {}
        # As they were decided upon; None: gone.
        self.jobs: Draft[int, Job | None] = Draft()
        # Archived jobs that go, also those that the store has been told of.
        self._gone: set[int] = set()
        # Children that their parent has seen: they go to the archive while it stays.
        self.swept: Draft[int, bool] = Draft()
        self.undo: Undo = []
        self.jobs.undo = self.swept.undo = self.undo
        self.begin_drafts()
        self.counts, self.new_jobs = Counts(), NewJobGroups()
        self.ended: set[int] = set()
        # Each job as it was last written, archived and removed ones too.
        self.finals: dict[int, Job] = {}
        # What was decided upon since the last flush, in order; and what goes to other shards.
        self.touched: dict[int, None] = {}
        self.outbox: dict[str, bytes] = {}
        # Jobs that were lost or expired, before and after: no handler reports these.
        self.unreported: list[tuple[Job, Job]] = []
        # Whether callers are believed what they say of jobs: not once the store has refused the batch.
        self.trusts = False
        # The replies to each part of a command that has several.
        self.parts: list[list[Any]] = []

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
            self.known_domains, self.is_limited = Domains(self), True
        return self.known_domains

    @property
    def retention_ms(self) -> int:
        """How long the archive keeps jobs; looked up where something goes there, not by every add."""
        if self._retention_ms is None:
            self._retention_ms = self.retention()
        return self._retention_ms

    @property
    def task_defaults(self) -> Published:
        """The published defaults of tasks; looked up where jobs are claimed."""
        if self._task_defaults is None:
            self._task_defaults = self._known.read(self.txn, keep=not self.published)
        return self._task_defaults

    def load(self, job_ids: Collection[int]) -> None:
        """Bring live jobs and their parents into the working set."""
        missing = [id for id in job_ids if id not in self.jobs]
        if missing:
            for job in self.txn.load(missing).values():
                self.bring(job)

    def bring(self, job: Job) -> None:
        """A job as the store has it, unless the working set has it already."""
        if job.id not in self.jobs:
            self.stored[job.id] = self.counted[job.id] = job
            dict.__setitem__(self.jobs, job.id, job)

    def bring_all(self, jobs: dict[int, Job]) -> None:
        """Jobs as the store has them, of which the working set has none yet."""
        self.stored |= jobs
        self.counted |= jobs
        self.jobs.update(jobs)

    def bring_claimed(self, before: list[Job], leased: list[Job]) -> None:
        """Jobs that the store has just leased: as they were, which the rules decide from, and as they are."""
        now = {job.id: job for job in leased}
        self.stored |= now
        self.counted |= {job.id: job for job in before}
        self.jobs.update(now)
        self.touched |= dict.fromkeys(now)

    def put_claimed(self, after: Job) -> None:
        """What the rules made of a leased job that is not plain; one that is stands as the store has it."""
        stored = self.stored[after.id]
        after = replace(after, version=stored.version)
        if after != stored:
            self.put(after)

    def find(self, job_id: int) -> Job | None:
        """A live job, or None."""
        if job_id not in self.jobs:
            self.load([job_id])
        return self.jobs.get(job_id)

    def get(self, job_id: int, tenant: str | None = None) -> Job:
        """A live job, or `NotFound`; one of the archive is `Refused`, because it can no longer change.

        Where a tenant is named, jobs of others are not found.
        """
        job = self.find(job_id)
        old = job or self.archived(job_id)
        if old is not None and tenant not in (None, old.tenant):
            raise NotFound("job", job_id)
        if job is not None and not self.goes(job):
            return job
        if old is not None:
            raise Refused(
                "change", job_id, found=f"{old.state} and archived", needed="a job that is not over"
            )
        raise NotFound("job", job_id)

    def children(self, parent_id: int, place: Place, limit: int, after: int = 0) -> tuple[list[Job], int]:
        """Live children of a job as they stand now, in this transaction too; and the last one looked at
        if there may be more in the store, else 0."""
        page = self.txn.children(parent_id, place=place, after=after, limit=limit)
        for child in page:
            self.bring(child)
        born = (job for job in self.jobs.values() if job is not None and job.parent_id == parent_id)
        found = sorted((job for job in born if job.place == place and job.id > after), key=lambda job: job.id)
        return found, page[-1].id if len(page) == limit else 0

    def body_of(self, job_id: int) -> Body:
        """The data of a job as it stands now."""
        if job_id in self.data:
            return self.data[job_id]
        return self.txn.bodies([job_id]).get(job_id, "{}")

    def rows_of(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """Rows as they stand now, in this transaction too."""
        found: dict[str, bytes | None] = dict(self.txn.rows(table, keys))
        if self.rows and keys is None:
            found |= {key: value for (name, key), value in self.rows.items() if name == table}
        elif self.rows:
            found |= {key: self.rows[table, key] for key in keys or () if (table, key) in self.rows}
        return {key: value for key, value in found.items() if value is not None}

    def pauses(self) -> set[Paused]:
        """What claims pass by: (tenant, task, domain), None for any."""
        if self._pauses is None:
            self._pauses = {read_pause(name) for name in self.rows_of(PAUSE)}
        return self._pauses

    def forget_pauses(self) -> None:
        """They have just been changed."""
        self._pauses = None

    # Deciding

    def put(self, after: Job) -> None:
        """Let a job become `after`, and its parent and its unique key what follows."""
        job_id, jobs = after.id, self.jobs
        before = jobs[job_id] if job_id in jobs else None  # noqa: SIM401 - a call less
        self.undo.append((jobs, job_id, before if before is not None or job_id in jobs else ABSENT))
        dict.__setitem__(jobs, job_id, after)
        self.touched[job_id] = None
        if (
            after.parent_id
            or after.unique is not None
            or after.steps
            or after.log_lines
            or before is None
            or before.steps
            or before.log_lines
            or before.unique is not None
            or before.parent_id
        ):
            self._follow(before, after)

    def remove(self, job: Job) -> None:
        """Let a live job go without a trace."""
        self.jobs[job.id] = None
        self.touched[job.id] = None
        self._follow(job, None)

    def sweep(self, child: Job) -> None:
        """Let an ended child go to the archive, although its parent stays."""
        self.swept[child.id] = True
        # A record of its own: what is as it was stored is not written.
        self.jobs[child.id] = replace(child)
        self.touched[child.id] = None

    def archived(self, job_id: int) -> Job | None:
        """An archived job, unless this transaction has removed it."""
        return None if job_id in self._gone else self.txn.archived([job_id]).get(job_id)

    def forget(self, gone: list[Job]) -> int:
        """Remove archived jobs, which count no more and have no log; how many there were."""
        gone = [old for old in gone if old.id not in self._gone]
        self._gone |= {old.id for old in gone}
        self.forgotten += [old.id for old in gone]
        self.uncount(gone)
        return len(gone)

    def uncount(self, gone: list[Job]) -> None:
        """These jobs are there no more."""
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
        if before is not None and (before.steps or before.log_lines):
            notes.followed(self, before, after)

    def add(self, new: NewJob, parent: Job | None = None) -> int:
        """Add a job that clashes with nobody; its id."""
        job_id = new.id or self.ids.make(slot=slot_for(new))
        job = create(self.ids.with_follower(new), job_id=job_id, now_ms=self.now_ms)
        self.data[job_id] = new.data
        self.put(family.born(job, parent) if parent else job)
        return job_id

    def keep(self) -> None:
        """The command at hand stands."""
        self.new_jobs.kept = self.new_jobs.size
        if self.undo:
            self.undo.clear()

    def drop(self) -> None:
        """The command at hand failed: nothing of it remains."""
        self.new_jobs.drop()
        undo_changes(self.undo)

    # Writing

    def flush(self) -> None:
        """Write what was decided so far, because a claim follows that must see it."""
        if not (
            self.touched or self.new_jobs.size[0] or self.rows or self.forgotten or self.data or self.results
        ):
            return
        changes = take_changes(self)
        jobs = changes.added or changes.swapped or changes.archived or changes.removed or changes.forgotten
        if jobs or changes.rows or changes.data or changes.results:
            self.txn.write(changes)

    def settle(self) -> None:
        """Put READY and HELD in order in the domains of the working set."""
        if self.known_domains is None and not (self.touched and has_domain(self, list(self.touched))):
            return
        self.flush()
        self.domains.settle()
        self.keep()

    @property
    def freed(self) -> dict[UniqueKey, Freed]:
        """Keys that are at home in another shard, and that ended jobs have let go here."""
        return {} if self.known_holders is None else self.known_holders.freed

    def finish(self, *, more: bool = False) -> Changes:
        """What is left to write, with domains, counts and the sysid; `more`: work is left for upkeep."""
        self.wants_upkeep = self.wants_upkeep or more
        return take_changes(self, last=True)

    def begin_drafts(self) -> None:
        """Begin anew with what is to be written: the store has what was decided so far."""
        undo = self.undo
        self.data, self.results, self.rows, self.dues = Draft(), Draft(), Draft(), Draft()
        self.data.undo = self.results.undo = self.rows.undo = self.dues.undo = undo
        self.forgotten = []

    def drop_bodies(self, job_id: int) -> None:
        """A job that goes has no body to keep."""
        self.data.pop(job_id, None)
        self.results.pop(job_id, None)

    def goes(self, job: Job) -> bool:
        """Whether an ended job leaves the live jobs: FAILED ones stay, and children beside a live parent."""
        if job.place is not Place.DONE or job.ended is State.FAILED:
            return False
        if not job.parent_id or job.id in self.swept:
            return True
        parent = self.find(job.parent_id)
        return parent is None or self.goes(parent)
