"""Plain jobs: what most are, and what the rules come to for them. They come and go by the thousand.

What is said here follows from `rules`, which says it for all; that both say the same is tested.
"""

from msgspec.structs import replace

from .job import NO_CHILDREN, Job, Outcome, Place, State


def starts_plainly(job: Job) -> bool:
    """Whether `claim` makes of a job just what a store makes of it by itself."""
    return not (
        job.expires_at
        or job.retry_after
        or job.timeout_ms
        or job.lapsed
        or job.again_at
        or job.damaged is not None
        or job.max_losses == 1
    )


def starts_alone(job: Job) -> bool:
    """Whether, besides, no domain has a say in it."""
    return job.domain is None and starts_plainly(job)


def ends_plainly(job: Job) -> bool:
    """Whether a good end of its run is the end of a job, and concerns nobody but its holder."""
    return not (
        job.place is not Place.RUNNING
        or job.parent_id
        or job.repeat
        or job.again_at
        or job.then
        or job.steps
        or job.log_lines
        or job.cancel_requested
        or job.strict
        or job.mock
        or job.lapsed
        or job.unique is not None
        or job.domain is not None
        # Whether the next may come is decided by what became of this one.
        or job.schedule
        or job.children != NO_CHILDREN
    )


def finish_plainly(
    job: Job, *, now_ms: int, end: Outcome, has_result: bool, ran_ms: int | None = None
) -> Job:
    """What `finish` makes of a job that `ends_plainly`, as its next version."""
    return replace(
        job,
        version=job.version + 1,
        place=Place.DONE,
        rank=now_ms,
        started_at=job.started_at or max(now_ms - (ran_ms or 0), 1),
        finished_at=now_ms,
        ended=State.FINISHED,
        reason="",
        owner=0,
        lease_until=0,
        progress=None,
        outcome=end,
        has_result=has_result or job.has_result,
    )
