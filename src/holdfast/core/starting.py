"""How a run starts: whether a store can start it by itself, and when its handler did."""

from .job import Job

# A start that is reported again counts as the known one if it differs by no more.
START_SLACK_MS = 200


def starts_plainly(job: Job) -> bool:
    """Whether `rules.claim` changes nothing beyond what a store changes in a claim."""
    return not (
        job.expires_at
        or job.retry_after
        or job.timeout_ms
        or job.lapsed
        or job.again_at
        or job.damaged is not None
        or job.max_losses == 1
    )


def start_of(job: Job, *, now_ms: int, ran_ms: int | None) -> int:
    """When a job's handler started, if its holder reports that it has run for `ran_ms`; None: as recorded."""
    if ran_ms is None or (job.started_at and now_ms - ran_ms <= job.started_at + START_SLACK_MS):
        return job.started_at
    return now_ms - ran_ms if now_ms > ran_ms else 1
