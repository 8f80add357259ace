"""Counts that are kept, not counted: what a change of a job adds to which."""

from collections import Counter

from ..core.job import Job, Place, State, state
from ..store.contract import CountKey

# Kept as plain tuples while a batch goes on, which are made for every job: (tenant, task, place, state).
Counts = Counter[tuple[str, str, Place, State]]


def note(counts: Counts, before: Job | None, after: Job | None) -> None:
    """Add what changes when a job goes from `before` to `after`. A `fresh` job was in no count yet."""
    if before is not None and not before.fresh:
        counts[before.tenant, before.task, before.place, state(before)] -= 1
    if after is not None:
        counts[after.tenant, after.task, after.place, state(after)] += 1


def changes(counts: Counts) -> dict[CountKey, int]:
    """The differences, less those that came to nothing."""
    return {CountKey(*key): change for key, change in counts.items() if change}
