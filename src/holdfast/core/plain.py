"""Plain jobs: what most are, and what the rules come to for them. They come and go by the thousand.

What is said here follows from `rules`, which says it for all; that both say the same is tested.
"""

from msgspec.structs import replace

from .job import NO_CHILDREN, Job, Outcome, Place, State

# A start that is told again is taken for the one that is known if it differs by no more.
START_SLACK_MS = 200


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


def start_of(job: Job, *, now_ms: int, ran_ms: int | None) -> int:
    """When the handler of a job started, of which its holder says how long ago it was, or (None) nothing."""
    if ran_ms is None or (job.started_at and now_ms - ran_ms <= job.started_at + START_SLACK_MS):
        return job.started_at
    return now_ms - ran_ms if now_ms > ran_ms else 1


def finish_plainly(
    job: Job, *, now_ms: int, end: Outcome, has_result: bool, ran_ms: int | None = None
) -> Job:
    """What `finish` makes of a job that `ends_plainly`, as its next version."""
    return replace(
        job,
        version=job.version + 1,
        place=Place.DONE,
        rank=now_ms,
        started_at=start_of(job, now_ms=now_ms, ran_ms=ran_ms) or now_ms,
        finished_at=now_ms,
        ended=State.FINISHED,
        reason="",
        owner=0,
        lease_until=0,
        progress=None,
        outcome=end,
        has_result=has_result or job.has_result,
    )
