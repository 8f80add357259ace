"""One atomic batch on the Redis store: what it has read and written, which one script commits.

    reads ──▶ seen       fn decides       written ──▶ commit.lua: is all of `seen` unchanged? then write
      ▲                                                      │
      └───────────────── again, from the start ◀──── no ─────┘

It contains no rules. See docs/decisions/0009.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...core.errors import Conflict
from ...core.job import Job, Place
from ...core.jump import Jump
from ...core.kinds import DOMAIN
from ...core.layout import keep_rows, unmovable
from ..contract import (
    UNCHANGED,
    Changes,
    ClaimQuery,
    CountKey,
    NewJobs,
    leased_all,
)
from .claim import give_back, take
from .connection import RedisServer
from .keys import STAMP_BYTES, Keys, member
from .plan import CommitPlan, KeepingPlan
from .reads import RedisReads
from .rows import KnownVersion

# Cached jobs that this store wrote, with their stamps, so that the finish of a job needs no read.
HeldJobs = dict[int, tuple[bytes, Job]]


class RedisTxn(RedisReads):
    """A batch; see `Txn` for what each method promises."""

    # The clock is the server's.
    jump: Jump | None = None
    _repairs = False

    def __init__(
        self,
        server: RedisServer,
        keys: Keys,
        now_ms: int,
        known: KnownVersion,
        *,
        held: HeldJobs,
        timed: bool,
    ) -> None:
        super().__init__(server, keys, now_ms, known)
        self._held, self.timed = held, timed
        # Ids taken out of READY by this batch, or found misplaced; each is put where its record belongs.
        self.taken: set[int] = set()
        self.unanswered_ms = 0
        self._misplaced: list[int] = []

    # Reading

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place. Jobs that a claim took but never wrote are put back."""
        self._repairs = place is Place.RUNNING and up_to <= self.now_ms
        try:
            return super().first(place, up_to, limit)
        finally:
            self._repairs = False

    def note_misplaced(self, job_id: int) -> None:
        """Note a job that a claim took out of READY, and whose record was never written."""
        if self._repairs:
            self.taken.add(job_id)
            self._misplaced.append(job_id)

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        jobs = take(self, query)
        if jobs:
            self.written.jobs |= {job.id: job for job in leased_all(jobs, query)}
            self._orders = None
        return jobs

    # Writing

    def write(self, changes: Changes) -> None:
        """Note changes; the commit writes them."""
        for group in changes.added:
            self._add(group)
        self._write(changes)

    def _write(self, changes: Changes) -> None:
        """Note changes other than added jobs."""
        written = self.written
        self._orders = None
        if changes.swapped or changes.archived or changes.removed or changes.forgotten:
            self._write_jobs(changes)
        if changes.data:
            written.data |= changes.data
        if changes.results:
            written.results |= changes.results
        if changes.counts:
            written.counts = _added(written.counts, changes.counts) if written.counts else changes.counts
        if changes.tallies:
            # They come once in a batch, with its last changes.
            written.tallies = changes.tallies
        if changes.rows:
            written.rows |= changes.rows
            dues = {key: due for key, due in written.dues.items() if key not in changes.rows}
            written.dues = dues | {**changes.dues}
        if changes.notice != UNCHANGED:
            written.notice = changes.notice

    def _add(self, group: NewJobs) -> None:
        seen, written = self.seen, self.written
        for job, data in group.jobs():
            live = written.jobs[job.id] if job.id in written.jobs else seen.jobs.get(job.id)
            old = written.archive[job.id] if job.id in written.archive else seen.archive.get(job.id)
            if live is not None or old is not None:
                raise Conflict(f"there is a job {job.id} already")
            if job.id not in written.jobs and job.id not in written.archive:
                written.added.add(job.id)
            written.jobs[job.id] = job
            written.data[job.id] = data

    def _write_jobs(self, changes: Changes) -> None:
        written = self.written
        if changes.swapped:
            self._expect({job.id: job.version - 1 for job in changes.swapped})
            written.jobs |= {job.id: job for job in changes.swapped}
        if changes.archived:
            self._expect({job.id: job.version - 1 for job in changes.archived})
            written.jobs |= dict.fromkeys([job.id for job in changes.archived])
            written.archive |= {job.id: job for job in changes.archived}
        gone: list[int] = []
        if changes.removed:
            self._expect({job.id: job.version for job in changes.removed})
            gone = [job.id for job in changes.removed]
            written.jobs |= dict.fromkeys(gone)
        if changes.forgotten:
            if len(self.archived(changes.forgotten)) < len({*changes.forgotten}):
                raise Conflict("an archived job is gone")
            written.archive |= dict.fromkeys(changes.forgotten)
            gone = [*gone, *changes.forgotten]
        if gone:
            written.data |= dict.fromkeys(gone)
            written.results |= dict.fromkeys(gone)

    def _expect(self, versions: dict[int, int]) -> None:
        """Check that jobs have these versions.

        A job that this process wrote in that version is not read: the commit checks that it is unchanged.
        """
        seen, written, held = self.seen, self.written.jobs, self._held
        unseen = [id for id in versions if id not in written and id not in seen.jobs]
        # Another commit of this process may remove one meanwhile.
        found = {id: held.get(id) for id in unseen}
        known = {id: one for id, one in found.items() if one is not None and one[1].version == versions[id]}
        if known:
            seen.jobs |= {id: job for id, (_, job) in known.items()}
            seen.stamps |= {id: stamp for id, (stamp, _) in known.items()}
        if len(known) < len(unseen):
            self.fetch(unseen)
        for id, version in versions.items():
            job = written[id] if id in written else seen.jobs[id]
            if job is None or job.version != version:
                raise Conflict(f"job {id} is not of version {version}")

    # The commit

    def note_last(self, changes: Changes) -> Sequence[NewJobs]:
        """Note the last changes; return the groups of new jobs that nothing else in the batch refers to.

        Most added jobs are such, and their groups are written as templates.
        """
        groups: Sequence[NewJobs] = ()
        if changes.added and self._is_new(changes):
            groups = [group for group in changes.added if group.rows]
            self._write(changes)
        else:
            self.write(changes)
        return groups

    def _is_new(self, changes: Changes) -> bool:
        """Whether nothing else in the changes refers to the added jobs."""
        listed = [id for group in changes.added for id, _ in group.rows]
        ids = {*listed}
        if len(ids) < len(listed):
            raise Conflict("a job is added twice")
        if changes.swapped or changes.archived or changes.removed:
            others = (*changes.swapped, *changes.archived, *changes.removed)
            if not ids.isdisjoint([job.id for job in others]):
                return False
        seen, written = self.seen, self.written
        for known in (seen.jobs, seen.archive, written.jobs, written.archive, changes.data, changes.results):
            if known and not ids.isdisjoint(known):
                return False
        return True

    def plan(self, groups: Sequence[NewJobs], stamp: bytes) -> CommitPlan:
        """The plan of the commit."""
        plan, seen, written = self._new_plan(stamp), self.seen, self.written
        plan.check(seen, self._new_domains() if written.rows else {})
        for group in groups:
            plan.add(group)
        if self.taken:
            self._settle_taken(plan)
        if written.archive:
            # Before the live records go, which have the data.
            plan.archive(written.archive, written.data)
        if written.jobs:
            plan.move(written, seen)
        if written.data or written.results:
            plan.put_bodies(written)
        if written.counts or written.tallies:
            plan.count(written.counts, written.tallies)
        if written.rows:
            plan.put_rows(written.rows, written.dues)
        if written.notice != UNCHANGED:
            plan.put_notice(written.notice, self.known.layout + stamp.hex().encode())
        return plan

    def _new_plan(self, stamp: bytes) -> CommitPlan:
        return CommitPlan(self.keys, stamp)

    def _new_domains(self) -> dict[str, int]:
        """The domains that get a row, and their numbers of jobs when these were counted.

        A job that was added meanwhile is missing in the count.
        """
        rows, domain_sizes = self.seen.rows, self.seen.domain_sizes
        put = [
            key for (table, key), value in self.written.rows.items() if table == DOMAIN and value is not None
        ]
        return {key: domain_sizes[key] for key in put if key in domain_sizes and rows[DOMAIN, key] is None}

    def _settle_taken(self, plan: CommitPlan) -> None:
        """Put back jobs that were taken and not used, or found misplaced."""
        if self._misplaced:
            plan.leave_process(self._misplaced)
        unused = [self.seen.jobs[id] for id in self.taken if id not in self.written.jobs]
        for job in unused:
            if job is not None:
                plan.put_back(job)

    def give_back(self) -> None:
        """Put taken jobs back into READY, because the batch has failed."""
        if self.unanswered_ms:
            self._find_taken()
        taken, self.taken, seen = self.taken, set(), self.seen
        # Except those with unreadable records, which `repair.py` handles.
        jobs = {id: seen.jobs[id] for id in taken if id in seen.jobs}
        give_back(self.server, self.keys, self.known.layout, jobs, seen.stamps)

    def _find_taken(self) -> None:
        """Note what a claim has taken whose reply was lost.

        Another claim may have the same deadline. To put back what that has taken does no harm: of two claims
        that have taken a job, the second to commit finds that its record has changed.
        """
        until = self.unanswered_ms
        found = self.server.call(b"ZRANGE", self.keys.in_process_queue, until, until, b"BYSCORE")
        if found:
            ids = [*map(int, found)]
            self.note_jobs(ids, self.server.call(b"HMGET", self.keys.jobs, *found))
            jobs = [job for id in ids if (job := self.seen.jobs[id]) is not None]
            self.taken |= {job.id for job in jobs if job.place is Place.READY}


class RedisKeepingTxn(RedisTxn):
    """A batch on a store of a newer layout: records keep the fields that this version does not know."""

    def _write(self, changes: Changes) -> None:
        if changes.notice != UNCHANGED:
            raise unmovable()
        super()._write(replace(changes, rows=keep_rows(changes.rows, self.rows)))

    def _new_plan(self, stamp: bytes) -> CommitPlan:
        stamps = self.seen.stamps
        ids = [id for id in self.written.jobs if id in stamps]
        raws = self.ask([(b"HMGET", self.keys.jobs, *map(member, ids))])[0] if ids else []
        before = {id: raw or b"" for id, raw in zip(ids, raws, strict=True)}
        if any(raw[:STAMP_BYTES] != stamps[id] for id, raw in before.items()):
            raise Conflict("a job has changed")
        return KeepingPlan(self.keys, stamp, before)


def _added(one: Mapping[CountKey, int], other: Mapping[CountKey, int]) -> dict[CountKey, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
