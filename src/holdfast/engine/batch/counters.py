"""The differences that a transaction adds to the counts and tallies of jobs."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from msgspec import Struct

from ...core import history
from ...core.history import NO_PLACE, TallyKey
from ...core.job import Code, Job, Place, State, counted
from ...store.contract import CountKey

# The fields that a job is counted by, and those that determine its state.
_FIELDS = ("tenant", "task", "place", "ended", "retry_after", "lapsed")
_kind = attrgetter(*_FIELDS)


class Counts(Struct, eq=False):
    """The differences of one transaction."""

    _changes: dict[tuple[Any, ...], int] = {}
    # How many runs of a (tenant, task) ended how, by the slots (`slot_of`) of how long they waited and took,
    # -1 if they never started; and how long they took together.
    ends: dict[tuple[str, str, State | None, int, int], tuple[int, int]] = {}
    moved: Mapping[TallyKey, int] = {}
    # What the stored counts lack (`RepairCounts`).
    _missing: Mapping[CountKey, int] = {}

    def came(self, jobs: Iterable[Job]) -> None:
        """Count jobs that were added, or changed to these."""
        self._add(jobs, 1)

    def came_alike(self, job: Job, count: int) -> None:
        """Count this many jobs like `job`."""
        kind, changes = _kind(job), self._changes
        changes[kind] = changes[kind] + count if kind in changes else count

    def went(self, jobs: Iterable[Job]) -> None:
        """Uncount jobs that were removed, or were like these before a change."""
        self._add(jobs, -1)

    def _add(self, jobs: Iterable[Job], sign: int) -> None:
        changes = self._changes
        for job in jobs:
            kind = _kind(job) if job.waits_for is None else _waiting(job)
            changes[kind] = changes[kind] + sign if kind in changes else sign

    def add_missing(self, missing: Mapping[CountKey, int]) -> None:
        """Correct the stored counts by these differences."""
        self._missing = missing

    def take(self) -> dict[CountKey, int]:
        """The differences that are not zero; the counters start again."""
        sums: dict[CountKey, int] = {**self._missing}
        for kind in self._changes:
            key, count = _key(kind), self._changes[kind]
            count = sums[key] + count if key in sums else count
            if count:
                sums[key] = count
            elif key in sums:
                del sums[key]
        self._changes, self._missing = {}, {}
        return sums

    def count_changes(
        self, changed: Iterable[int], before: Mapping[int, Job], after: Mapping[int, Job | None]
    ) -> None:
        """Count jobs that changed, and tally those of their runs that ended."""
        changes = self._changes
        done, running, paused = Place.DONE, Place.RUNNING, Place.PAUSED
        for job_id in changed:
            job, was = after[job_id], before[job_id] if job_id in before else None  # noqa: SIM401
            if was is not None:
                kind = _kind(was) if was.waits_for is None else _waiting(was)
                changes[kind] = changes[kind] - 1 if kind in changes else -1
            if job is None:
                continue
            kind = _kind(job) if job.waits_for is None else _waiting(job)
            changes[kind] = changes[kind] + 1 if kind in changes else 1
            if job.place is done:
                if was is None or was.place is not done:
                    self._tally(job, was, job.ended, job.finished_at)
            # A suspended one goes on later, as a parent does after its children: counted when it has ended.
            elif was is not None and was.place is running and job.place not in (running, paused):
                outcome = job.outcome
                if outcome is not was.outcome and not (outcome and outcome.code is Code.SUSPEND):
                    # It runs again: a repeat, or another attempt.
                    is_ok = outcome is not None and outcome.code is Code.OK
                    ended_at = outcome.at if outcome is not None else 0
                    self._tally(job, was, State.FINISHED if is_ok else None, ended_at)

    def _tally(self, job: Job, was: Job | None, ended: State | None, ended_at: int) -> None:
        """Count a run that ended, with the time that it took and the slots of its times."""
        started_at, ends = job.started_at, self.ends
        ran_ms = ended_at - started_at if 0 < started_at < ended_at else 0
        waited = ran = -1
        if started_at:
            due = job if was is None else was
            waited = slot_of(max(started_at - (due.run_at or due.created_at), 0))
            ran = slot_of(ran_ms)
        key = (job.tenant, job.task, ended, waited, ran)
        count, run_ms = ends[key] if key in ends else (0, 0)  # noqa: SIM401
        ends[key] = (count + 1, run_ms + ran_ms)

    def move_tallies(self, tallies: Mapping[TallyKey, int]) -> None:
        """These tallies are in a bucket now."""
        self.moved = tallies

    def take_tallies(self) -> dict[TallyKey, int]:
        """The differences of the tallies; the tallies start again."""
        taken = {key: -number for key, number in self.moved.items()} if self.moved else {}
        for end in self.ends:
            count, run_ms = self.ends[end]
            kind, ran = _tally_keys(*end)
            taken[kind] = taken[kind] + count if kind in taken else count
            if run_ms:
                taken[ran] = taken[ran] + run_ms if ran in taken else run_ms
        self.ends, self.moved = {}, {}
        return taken


def slot_of(ms: int) -> int:
    """The slot of a duration: two for each power of two, so that a slot is at most half of its times wide."""
    bits = ms.bit_length()
    return bits * 2 + (ms >> (bits - 2) & 1) if bits > 1 else bits


# None: it runs again, after an error or a retry.
_TALLIES = {
    State.FINISHED: history.FINISHED,
    State.FAILED: history.FAILED,
    State.CANCELLED: history.CANCELLED,
    None: history.RETRIED,
}


def _waiting(job: Job) -> tuple[Any, ...]:
    return (*_kind(job), counted(job))


@lru_cache(maxsize=4096)
def _key(kind: tuple[Any, ...]) -> CountKey:
    job = Job(id=0, **dict(zip(_FIELDS, kind[: len(_FIELDS)], strict=True)))
    key = CountKey(job.tenant, job.task, job.place, job.state)
    return key if len(kind) == len(_FIELDS) else key._replace(counted=kind[-1])


@lru_cache(maxsize=4096)
def _tally_keys(
    tenant: str, task: str, ended: State | None, waited: int, ran: int
) -> tuple[TallyKey, TallyKey]:
    """What a run that ended so adds to: how often that was, and how long runs took."""
    kind = _TALLIES[ended] if ran < 0 else f"{_TALLIES[ended]}:{waited}:{ran}"
    return (
        TallyKey(tenant, task, NO_PLACE, kind),
        TallyKey(tenant, task, NO_PLACE, history.RUN_MS),
    )
