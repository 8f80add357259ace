"""Counts that are kept, not counted: what a change of a job adds to which."""

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

from ...core.job import Job
from ...store.contract import CountKey

# What a job is counted by, and what its state follows from. States are looked up at the end, once for each
# kind that there was: jobs are counted by the thousand.
_FIELDS = ("tenant", "task", "place", "ended", "retry_after", "lapsed")
_kind = attrgetter(*_FIELDS)


class Counts:
    """What one transaction changes in the counts."""

    def __init__(self) -> None:
        self._came: Counter[tuple[object, ...]] = Counter()
        self._went: Counter[tuple[object, ...]] = Counter()

    def came(self, jobs: Iterable[Job]) -> None:
        """Jobs that are there from now on, as they are now."""
        self._came.update(map(_kind, jobs))

    def came_alike(self, job: Job, count: int) -> None:
        """So many jobs that are counted as this one."""
        self._came[_kind(job)] += count

    def went(self, jobs: Iterable[Job]) -> None:
        """Jobs that are there no more, as they were."""
        self._went.update(map(_kind, jobs))

    def take(self) -> dict[CountKey, int]:
        """The differences, less those that came to nothing; and begin anew."""
        changes: Counter[CountKey] = Counter()
        for counts, sign in ((self._came, 1), (self._went, -1)):
            for kind, count in counts.items():
                changes[_key(kind)] += sign * count
            counts.clear()
        return {key: change for key, change in changes.items() if change}


def _key(kind: tuple[object, ...]) -> CountKey:
    job = Job(id=0, **dict(zip(_FIELDS, kind, strict=True)))  # type: ignore[arg-type]
    return CountKey(job.tenant, job.task, job.place, job.state)
