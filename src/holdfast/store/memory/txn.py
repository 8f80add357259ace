"""The writes of the memory store: claims, and the fields of `Changes` in their order."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice

from ...core.errors import Conflict
from ...core.job import Job, Place
from ...core.jump import Jump
from ...core.kinds import Names
from ..contract import UNCHANGED, Changes, ClaimQuery, CountKey, NewJobs, TallyKey, Txn, leased_all
from .data import MemoryData, StoredRow
from .reads import MemoryReads


class MemoryTxn(MemoryReads, Txn):
    """One batch, under the store's lock. Its changes are in the undo log until it commits."""

    def __init__(self, data: MemoryData, now_ms: int, jump: Jump | None) -> None:
        self.data, self.now_ms, self.jump = data, now_ms, jump

    def read_ahead(self, rows: Names) -> None:
        """Nothing: there are no round trips to save."""

    # Claims

    def claim(self, query: ClaimQuery) -> list[Job]:
        found = self.find(query)
        self.lease(found, query, {})
        return found

    def find(self, query: ClaimQuery) -> list[Job]:
        """The first READY jobs that match."""
        return self._picked(query) if query.picks else self._matching(Place.READY, query, query.limit)

    def lease(self, jobs: Sequence[Job], query: ClaimQuery, counts: Mapping[CountKey, int]) -> None:
        """Lease jobs that were found, and write these differences of the counts."""
        for job in leased_all(jobs, query):
            self.data.jobs.put(job.id, job)
        self._count(counts)

    def _matching(self, index: Hashable, query: ClaimQuery, limit: int) -> list[Job]:
        ready = (self.data.jobs[id] for _, id in self.data.jobs.index(index))
        return list(islice((job for job in ready if query.matches(job)), max(limit, 0)))

    def _picked(self, query: ClaimQuery) -> list[Job]:
        plain = query._replace(mock=False)
        jobs = [
            job for tenant, task, most in query.picks for job in self._matching((tenant, task), plain, most)
        ]
        return sorted(jobs, key=lambda job: (job.rank, job.id))[: max(query.limit, 0)]

    # Changes

    def write(self, changes: Changes) -> None:
        """Write the fields in their order; after a `Conflict` the store rolls back what was written."""
        for group in changes.added:
            self._add(group)
        for job in changes.swapped:
            self._expect(job.id, job.version - 1)
            self.data.jobs.put(job.id, job)
        for job in changes.archived:
            self._expect(job.id, job.version - 1)
            self.data.jobs.put(job.id, None)
            self.data.archive.put(job.id, job)
        for job in changes.removed:
            self._expect(job.id, job.version)
            self.data.jobs.put(job.id, None)
            self._drop_bodies(job.id)
        for job_id in changes.forgotten:
            self._forget(job_id)
        for job_id in changes.data:
            self.data.data.put(job_id, changes.data[job_id])
        for job_id in changes.results:
            self.data.results.put(job_id, changes.results[job_id])
        if changes.counts:
            self._count(changes.counts)
        if changes.tallies:
            self._tally(changes.tallies)
        for key in changes.rows:
            value = changes.rows[key]
            row = None if value is None else StoredRow(value, changes.dues.get(key))
            self.data.rows.put(key, row)
        if changes.notice != UNCHANGED:
            self.data.notice.put("", changes.notice)

    def _add(self, group: NewJobs) -> None:
        for job, data in group.jobs():
            if job.id in self.data.jobs or job.id in self.data.archive:
                raise Conflict(f"there is a job {job.id} already")
            self.data.jobs.put(job.id, job)
            self.data.data.put(job.id, data)

    def _expect(self, job_id: int, version: int) -> None:
        stored = self.data.jobs.get(job_id)
        if stored is None or stored.version != version:
            raise Conflict(f"job {job_id} is not of version {version}")

    def _forget(self, job_id: int) -> None:
        if job_id not in self.data.archive:
            raise Conflict(f"there is no archived job {job_id}")
        self.data.archive.put(job_id, None)
        self._drop_bodies(job_id)

    def _drop_bodies(self, job_id: int) -> None:
        self.data.data.put(job_id, None)
        self.data.results.put(job_id, None)

    def _tally(self, differences: Mapping[TallyKey, int]) -> None:
        tallies = self.data.tallies
        for key in differences:
            tallies.put(
                key, (tallies[key] + differences[key]) or None if key in tallies else differences[key]
            )

    def _count(self, differences: Mapping[CountKey, int]) -> None:
        counts, pairs = self.data.counts, []
        for key, difference in differences.items():
            before = counts.get(key, 0)
            counts.put(key, (before + difference) or None)
            if key.place is Place.READY and (not before or not before + difference):
                pairs.append((key.tenant, key.task))
        # Last: one of a pair's two READY counts may have moved to the other.
        for pair in pairs:
            is_ready = self.ready_of(*pair) > 0
            if is_ready != (pair in self.data.ready):
                self.data.ready.put(pair, is_ready or None)
