"""Counts that are kept, not counted: what a change of a job adds to which."""

from collections.abc import Iterable, Sized
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ...core.job import Job
from ...store.contract import CountKey

# What a job is counted by, and what its state follows from.
_FIELDS = ("tenant", "task", "place", "ended", "retry_after", "lapsed")
_kind = attrgetter(*_FIELDS)


class Counts:
    """What one transaction changes in the counts."""

    def __init__(self) -> None:
        self._changes: dict[tuple[Any, ...], int] = {}

    def came(self, jobs: Iterable[Job]) -> None:
        """Jobs that are there from now on, as they are now."""
        self._add(jobs, 1)

    def came_alike(self, job: Job, rows: Sized) -> None:
        """As many jobs as there are rows, which are counted as this one."""
        kind, changes = _kind(job), self._changes
        changes[kind] = changes[kind] + len(rows) if kind in changes else len(rows)

    def went(self, jobs: Iterable[Job]) -> None:
        """Jobs that are there no more, as they were."""
        self._add(jobs, -1)

    def _add(self, jobs: Iterable[Job], sign: int) -> None:
        changes = self._changes
        for kind in map(_kind, jobs):
            changes[kind] = changes[kind] + sign if kind in changes else sign

    def take(self) -> dict[CountKey, int]:
        """The differences, less those that came to nothing; and begin anew."""
        sums: dict[CountKey, int] = {}
        for kind in self._changes:
            key, count = _key(kind), self._changes[kind]
            count = sums[key] + count if key in sums else count
            if count:
                sums[key] = count
            elif key in sums:
                del sums[key]
        self._changes = {}
        return sums


@lru_cache(maxsize=4096)
def _key(kind: tuple[Any, ...]) -> CountKey:
    job = Job(id=0, **dict(zip(_FIELDS, kind, strict=True)))
    return CountKey(job.tenant, job.task, job.place, job.state)
