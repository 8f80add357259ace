"""The rest of a claim's picks."""

from collections import Counter
from collections.abc import Iterable

from ...core.job import Job
from ..contract import Pick


def picks_left(picks: tuple[Pick, ...], taken: Iterable[Job]) -> tuple[Pick, ...]:
    """The picks less the claimed jobs. A pick of 0 jobs stays: without picks a claim takes any job."""
    if not picks:
        return picks
    count = Counter((job.tenant, job.task) for job in taken)
    return tuple((tenant, task, most - count[tenant, task]) for tenant, task, most in picks)
