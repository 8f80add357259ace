"""One atomic batch on the Redis store: what it has read and written, which one script commits.

    reads ──▶ seen       fn decides       written ──▶ commit.lua: is all that was seen still so? then write
      ▲                                                      │
      └───────────────── again, from the start ◀──── no ─────┘

No rule is here. See docs/decisions/0009.
"""

from collections.abc import Mapping, Sequence

from ...core.errors import Conflict
from ...core.job import Job, Place
from ...core.jump import Jump
from ...core.kinds import DOMAIN
from .. import fairness
from ..contract import UNCHANGED, Changes, ClaimQuery, CountKey, NewJobs, leased_all
from .claim import give_back, take
from .connection import Server
from .keys import Keys, Pair
from .plan import Plan
from .reads import RedisReads

# What a store remembers of jobs that it wrote, with their stamps: a finish of a held job reads nothing.
HeldJobs = dict[int, tuple[bytes, Job]]


class RedisTxn(RedisReads):
    """A batch; see `Txn` for what each verb promises."""

    # The clock is the server's.
    jump: Jump | None = None
    _mends = False

    def __init__(
        self, server: Server, keys: Keys, now_ms: int, notice: bytes | None, *, held: HeldJobs, timed: bool
    ) -> None:
        super().__init__(server, keys, now_ms, notice)
        self._held, self.timed = held, timed
        # Taken out of READY by this batch, or found misplaced: each is put where its record says in the end.
        self.taken: set[int] = set()
        self._misplaced: list[int] = []
        # The pairs that had their turn.
        self._served: list[Pair] = []

    # Reading

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place. One that was taken, and whose claim never followed, is put right."""
        self._mends = place is Place.RUNNING and up_to <= self.now_ms
        try:
            return super().first(place, up_to, limit)
        finally:
            self._mends = False

    def note_misplaced(self, job_id: int) -> None:
        """A claim took it out of READY and was not heard of again."""
        if self._mends:
            self.taken.add(job_id)
            self._misplaced.append(job_id)

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        if not self.trips:
            # Not along with the claim: what was taken then would not be known.
            self.begin()
        jobs = take(self, query)
        if jobs:
            self.written.jobs |= {job.id: job for job in leased_all(jobs, query)}
            self._orders = None
            pairs = {(job.tenant, job.task) for job in jobs}
            self._served += pairs if len(pairs) == 1 else fairness.served(jobs, query, 0).pairs
        return jobs

    # Writing

    def write(self, changes: Changes) -> None:
        """Note changes; the commit writes them."""
        for group in changes.added:
            self._add(group)
        self._write(changes)

    def _write(self, changes: Changes) -> None:
        """The same but for jobs that are added."""
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
        """Have jobs seen, which must be of these versions.

        One that this process wrote in that version is not read: the commit tells whether it is still so.
        """
        seen, written, held = self.seen, self.written.jobs, self._held
        unseen = [id for id in versions if id not in written and id not in seen.jobs]
        known = [id for id in unseen if id in held and held[id][1].version == versions[id]]
        if known:
            seen.jobs |= {id: held[id][1] for id in known}
            seen.stamps |= {id: held[id][0] for id in known}
        if len(known) < len(unseen):
            self.fetch(unseen)
        for id, version in versions.items():
            job = written[id] if id in written else seen.jobs[id]
            if job is None or job.version != version:
                raise Conflict(f"job {id} is not of version {version}")

    # The commit

    def finish(self, changes: Changes) -> Sequence[NewJobs]:
        """Note the last changes; the groups of new jobs that nothing else of the batch names.

        Most jobs that are added are such, and their groups are written as they are.
        """
        groups: Sequence[NewJobs] = ()
        if changes.added and self._is_new(changes):
            groups = [group for group in changes.added if group.rows]
            self._write(changes)
        else:
            self.write(changes)
        return groups

    def _is_new(self, changes: Changes) -> bool:
        """Whether all jobs that are added are named there alone."""
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

    def plan(self, groups: Sequence[NewJobs], session: bytes, stamp: bytes) -> Plan:
        """What the commit is to check and to write."""
        plan, seen, written = Plan(self.keys, session, stamp), self.seen, self.written
        plan.check(seen, self._new_domains() if written.rows else {})
        for group in groups:
            plan.add(group)
        if self.taken:
            self._settle_taken(plan)
        if written.jobs:
            plan.move(written, seen)
        if written.archive:
            plan.archive(written.archive)
        if written.data or written.results:
            plan.put_bodies(written.data, written.results)
        if written.counts or written.tallies:
            plan.count(written.counts, written.tallies)
        if written.rows:
            plan.put_rows(written.rows, written.dues)
        if written.notice != UNCHANGED:
            plan.put_notice(written.notice)
        if self._served:
            plan.serve(self._served)
        return plan

    def _new_domains(self) -> dict[str, int]:
        """The domains that get a row, and how many jobs they had when these were counted.

        A job that is added to one meanwhile is not in what was counted.
        """
        rows, domain_sizes = self.seen.rows, self.seen.domain_sizes
        put = [
            key for (table, key), value in self.written.rows.items() if table == DOMAIN and value is not None
        ]
        return {key: domain_sizes[key] for key in put if key in domain_sizes and rows[DOMAIN, key] is None}

    def _settle_taken(self, plan: Plan) -> None:
        """Put back what was taken and not used, or was found misplaced."""
        if self._misplaced:
            plan.leave_process(self._misplaced)
        unused = [self.seen.jobs[id] for id in self.taken if id not in self.written.jobs]
        for job in unused:
            if job is not None:
                plan.put_back(job)

    def give_back(self) -> None:
        """Put what was taken, and will not be written, back into READY."""
        taken, self.taken, seen = self.taken, set(), self.seen
        # Not those whose records could not be read: `repair.py` sees to them.
        give_back(self.server, self.keys, {id: seen.jobs[id] for id in taken if id in seen.jobs}, seen.stamps)


def _added(one: Mapping[CountKey, int], other: Mapping[CountKey, int]) -> dict[CountKey, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
