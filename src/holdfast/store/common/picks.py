"""What is left of a claim's picks."""

from collections import Counter
from collections.abc import Iterable

from ...core.job import Job
from ..contract import Pick


def picks_left(picks: tuple[Pick, ...], taken: Iterable[Job]) -> tuple[Pick, ...]:
    """What picks still want. One that wants nothing stays, so that they are never all gone."""
    if not picks:
        return picks
    count = Counter((job.tenant, job.task) for job in taken)
    return tuple((tenant, task, most - count[tenant, task]) for tenant, task, most in picks)
