"""The working set of one transaction: what was read, what was decided, and one write at the end.

Commands decide on the working set (`get`, `put`, `add`); `flush` writes the difference between what
the store has and what was decided, and derives what follows from it:

    job changed ──▶ its parent's counts, perhaps resumed       (core.family, at once)
                ──▶ its unique key taken or set free           (core.unique, at once)
                ──▶ archived, if it ended and nobody needs it  (here, at the flush)
                ──▶ its domain's lanes and running             (limiting, at the flush)
                ──▶ the counts                                 (counters, at the flush)

A job is written once however often it was decided upon, and its version goes up by one.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from ...core import family
from ...core.commands import NewJob
from ...core.creating import create
from ...core.defaults import Published
from ...core.errors import Conflict, NotFound, Refused
from ...core.job import Body, Job, Place, State
from ...core.slots import slot_for
from ...store.contract import Txn
from ..records import LETTER, PAUSE, Pause, read_pause
from ..site import ALONE, Site
from ..sysid import IdMaker
from . import notes
from .appends import Appends
from .births import Births
from .counters import Counts
from .holders import Holders
from .limiting import Domains
from .overlay import Overlay
from .task_defaults import KnownDefaults


class Batch:
    """One transaction's jobs, before and after."""

    def __init__(
        self,
        txn: Txn,
        id_maker: IdMaker,
        *,
        retention: Callable[[], int],
        dice: Callable[[], float],
        site: Site = ALONE,
        known: KnownDefaults,
    ) -> None:
        self.txn, self.now_ms = txn, txn.now_ms
        self.site, self.ids, self.dice = site, id_maker, dice
        self._retention, self._known = retention, known
        self.domains = Domains(self)
        # As the store has them, and as they were last counted; a claim changes one before the other.
        self.stored: dict[int, Job] = {}
        self.counted: dict[int, Job] = {}
        self.jobs: Overlay[int, Job | None] = Overlay()
        self.data: Overlay[int, Body] = Overlay()
        self.results: Overlay[int, Body] = Overlay()
        self.holders = Holders(self)
        self.records: Overlay[tuple[str, str], bytes | None] = Overlay()
        self.appends = Appends(txn)
        # Children that their parent has seen: they go to the archive while it stays.
        self.swept: Overlay[int, bool] = Overlay()
        drafts = (self.jobs, self.swept, self.data, self.results, self.holders.now, self.records)
        self._overlays: tuple[Overlay[Any, Any], ...] = (*drafts, *self.appends.overlays)
        self.counts, self.births = Counts(), Births()
        # What others may be waiting for; `news`: progress or a log; `published`: defaults of tasks.
        self.woke = self.wants_upkeep = self.news = self.published = False
        self.ended: set[int] = set()
        # Each job as it was last written, for replies.
        self.finals: dict[int, Job] = {}
        self._removed: set[int] = set()
        # What was decided upon since the last flush, in order; and what goes to other shards.
        self._touched: dict[int, None] = {}
        self.letters: dict[str, bytes] = {}
        # Jobs that are over without more ado, as they were and as they are, and their results (`ending`).
        self.over: list[tuple[Job, Job, Body | None]] = []
        self._pauses: set[Pause] | None = None

    @cached_property
    def unreported(self) -> list[tuple[Job, Job]]:
        """Jobs that were lost or expired, before and after: no handler reports these."""
        return []

    # Reading

    @cached_property
    def retention_ms(self) -> int:
        """How long the archive keeps jobs; looked up where something goes there, not by every add."""
        return self._retention()

    @cached_property
    def task_defaults(self) -> Published:
        """What tasks say of their jobs; looked up where jobs are claimed."""
        return self._known.read(self.txn, keep=not self.published)

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
            self.jobs.kept[job.id] = job

    def bring_claimed(self, before: Job, leased: Job) -> None:
        """A job that the store has just leased: what it was, which the rules decide from, and what it is."""
        self.stored[leased.id] = leased
        self.counted[leased.id] = before
        self.jobs.kept[leased.id] = leased
        self._touched[leased.id] = None

    def put_claimed(self, after: Job) -> None:
        """What the rules made of a leased job that is not plain; one that is stands as the store has it."""
        self.put(replace(after, version=self.stored[after.id].version))

    def find(self, job_id: int) -> Job | None:
        """A live job, or None."""
        if job_id not in self.jobs:
            self.load([job_id])
        return self.jobs.get(job_id)

    def get(self, job_id: int) -> Job:
        """A live job, or `NotFound`; one of the archive is `Refused`, because it can no longer change."""
        job = self.find(job_id)
        if job is not None and not self.goes(job):
            return job
        old = job or self.txn.archived([job_id]).get(job_id)
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

    def records_of(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small records as they stand now, in this transaction too."""
        found: dict[str, bytes | None] = dict(self.txn.records(kind, names))
        for overlay in (self.records.kept, self.records.draft):
            found |= {n: v for (k, n), v in overlay.items() if k == kind and (names is None or n in names)}
        return {name: value for name, value in found.items() if value is not None}

    def pauses(self) -> set[Pause]:
        """What claims pass by: (tenant, task, domain), None for any."""
        if self._pauses is None:
            self._pauses = {read_pause(name) for name in self.records_of(PAUSE)}
        return self._pauses

    def forget_pauses(self) -> None:
        """They have just been changed."""
        self._pauses = None

    # Deciding

    def put(self, after: Job) -> None:
        """Let a job become `after`, and its parent and its unique key what follows."""
        before = self.jobs.get(after.id)
        self.jobs[after.id] = after
        self._touched[after.id] = None
        self._followed(before, after)

    def remove(self, job: Job) -> None:
        """Let a live job go without a trace."""
        self.jobs[job.id] = None
        self._touched[job.id] = None
        self._followed(job, None)

    def sweep(self, child: Job) -> None:
        """Let an ended child go to the archive, although its parent stays."""
        self.swept[child.id] = True
        # A record of its own: what is as it was stored is not written.
        self.jobs[child.id] = replace(child)
        self._touched[child.id] = None

    def forget(self, old: Job) -> None:
        """Remove an archived job."""
        self.txn.forget([old.id])
        self.forgotten([old])

    def forgotten(self, gone: list[Job]) -> None:
        """Archived jobs are gone: they count no more, and have no log."""
        self.counts.went(gone)
        for old in gone:
            notes.forget(self, old)

    def _followed(self, before: Job | None, after: Job | None) -> None:
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
        self.births.keep()
        for overlay in self._overlays:
            if overlay.draft:
                overlay.keep()

    def drop(self) -> None:
        """The command at hand failed: nothing of it remains."""
        self.births.drop()
        for overlay in self._overlays:
            overlay.drop()

    # Writing

    def flush(self) -> None:
        """Write what was decided since the last flush, with all that follows from it."""
        stored, counted, kept = self.stored.get, self.counted.get, self.jobs.kept
        changed = [id for id in self._touched if id in kept and not kept[id] is stored(id) is counted(id)]
        self._touched.clear()
        self._write_births()
        if self.over:
            self._write_over()
        if changed:
            self.domains.account(changed)
            self._count(changed)
            self._write_changed(changed)
        self._write_small()

    def _write_over(self) -> None:
        before, after, results = zip(*self.over, strict=True)
        self.over.clear()
        self.counts.went(before)
        self.txn.archive(after, keep=self.retention_ms > 0)
        self.ended.update(job.id for job in after)
        if self.retention_ms:
            self.counts.came(after)
            found = {job.id: body for job, body in zip(after, results, strict=True) if body is not None}
            if found:
                self.txn.put_bodies(found, result=True)

    def _write_changed(self, changed: list[int]) -> None:
        stored, kept = self.stored.get, self.jobs.kept
        inserts, swaps, removed, archived = [], [], [], []
        for job_id in changed:
            before, after = stored(job_id), kept[job_id]
            if before is None and after is not None:
                inserts.append((after, self.data.kept.pop(job_id, "{}")))
                before = self.stored[job_id] = after
            if after is None:
                self._removed.add(job_id)
                if before is not None:
                    removed.append(self.stored.pop(job_id))
            elif after.place is Place.DONE and self.goes(after):
                archived.append(replace(after, version=(before or after).version + 1))
            elif before is not after:
                swaps.append(replace(after, version=(before or after).version + 1))
        self._write(inserts, swaps, removed, archived)

    def _write_births(self) -> None:
        for group in self.births.take():
            job = group.template
            self.counts.came_alike(job, len(group.rows))
            self.woke = True
            if self.txn.insert_alike(job, group.rows):
                raise Conflict("an id was taken")

    def _write(
        self, inserts: list[tuple[Job, Body]], swaps: list[Job], removed: list[Job], archived: list[Job]
    ) -> None:
        txn = self.txn
        if inserts and txn.insert(inserts):
            # What exists was looked for before: somebody added it meanwhile. Look again.
            raise Conflict("an id was taken")
        if swaps:
            txn.swap(swaps)
        if removed:
            txn.remove(removed)
        if archived:
            txn.archive(archived, keep=self.retention_ms > 0)
        self.finals |= {job.id: job for job, _ in inserts} | {
            job.id: job for job in (*swaps, *removed, *archived)
        }
        for job in swaps:
            self.stored[job.id] = self.jobs.kept[job.id] = self.counted[job.id] = job
        for job in archived:
            self.jobs.kept[job.id] = None
            del self.stored[job.id], self.counted[job.id]
            if not self.retention_ms:
                self.forgotten([job])
                self.records.keep()
        for bodies, result in ((self.data.kept, False), (self.results.kept, True)):
            # What went without an archive has no body to keep.
            kept = {id: body for id, body in bodies.items() if self.retention_ms or self.jobs.kept.get(id)}
            if kept := {id: body for id, body in kept.items() if id not in self._removed}:
                txn.put_bodies(kept, result=result)
            bodies.clear()

    def _write_small(self) -> None:
        self.holders.write()
        by_kind: dict[str, dict[str, bytes | None]] = {}
        for (kind, name), value in self.records.kept.items():
            by_kind.setdefault(kind, {})[name] = value
        for kind, records in by_kind.items():
            self.txn.put_records(kind, records)
        self.letters |= {name: raw for name, raw in by_kind.get(LETTER, {}).items() if raw}
        self.records.kept.clear()
        self.appends.write()

    def _count(self, changed: list[int]) -> None:
        """Let the counts follow, and note what others may be waiting for."""
        counted, kept = self.counted, self.jobs.kept
        self.counts.went([counted[id] for id in changed if id in counted])
        for job_id in changed:
            after = kept[job_id]
            if after is None:
                counted.pop(job_id, None)
                self.ended.add(job_id)
                continue
            counted[job_id] = after
            if after.place is Place.READY or after.place is Place.SCHEDULED:
                self.woke = True
            elif after.place is Place.DONE:
                self.ended.add(job_id)
            elif after.expires_at and after.place is not Place.RUNNING:
                # Nobody can have it, but the moment at which it expires is one to wait for.
                self.woke = True
        self.counts.came([counted[id] for id in changed if id in counted])

    def goes(self, job: Job) -> bool:
        """Whether an ended job leaves the live jobs: FAILED ones stay, and children beside a live parent."""
        if job.place != Place.DONE or job.ended == State.FAILED:
            return False
        if job.id in self.swept:
            return True
        parent = self.find(job.parent_id) if job.parent_id else None
        return parent is None or self.goes(parent)

    def final(self, job_id: int) -> Job | None:
        """A job as this transaction leaves it, archived and removed ones too."""
        return self.jobs.get(job_id) or self.finals.get(job_id)

    def finish(self) -> None:
        """The last writes of the transaction: domains and counts."""
        self.domains.write()
        if changes := self.counts.take():
            self.txn.count(changes)
