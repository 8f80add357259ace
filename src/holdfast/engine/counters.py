"""Counts that are kept, not counted: what a change of a job adds to which."""

from collections import Counter

from ..core.job import Job
from ..store.contract import CountKey


def key_of(job: Job) -> CountKey:
    """What a job is counted under."""
    return CountKey(job.tenant, job.task, job.place, job.state)


def note(counts: Counter[CountKey], before: Job | None, after: Job | None) -> None:
    """Add what changes when a job goes from `before` to `after`. A `fresh` job was in no count yet."""
    if before is not None and not before.fresh:
        counts[key_of(before)] -= 1
    if after is not None:
        counts[key_of(after)] += 1
