"""`holdfast jobs`: a list of jobs."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ..output import cut, emit, note, say, since, table
from ..selection import Selecting, Selection, find, selecting
from ..session import Session, now_ms, settings
from ..words import JobId

if TYPE_CHECKING:
    from ...core.job import Job

COLUMNS = ("ID", "TASK", "STATE", "WHEN", "PRIORITY", "TRIES", "NOTE")


@click.command(cls=Selecting)
@selecting()
@click.option("--after", type=JobId(), default=0, metavar="ID", help="Start after this job.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    metavar="N",
    help="The most jobs to list.  [100]",
)
@settings(create=True)
@click.pass_obj
def jobs(session: Session, /, *, after: int, limit: int, **options: Any) -> None:
    """List jobs, oldest first.

    FINISHED and CANCELLED jobs are in the archive: use --archived, or --state with one of the two. TRIES
    counts the runs of a job: runs that failed, runs that were lost, and the current or last run.
    """
    from ..records import job_record

    with session.existing() as queue:
        now = now_ms(queue)
        found = islice(find(queue, Selection(**options), now=now, after=after), limit + 1)
        if session.as_json:
            for job in islice(found, limit):
                emit(job_record(job))
            return
        shown = list(found)
    if not shown:
        say("no jobs" + (" match" if not Selection(**options).is_empty else ""))
        return
    job_table(shown[:limit], now)
    if len(shown) > limit:
        note(f"there are more: --after {shown[limit - 1].id}, or a larger --limit")


def job_table(found: "list[Job]", now: int) -> None:
    """A table of jobs."""
    table(COLUMNS, [_row(job, now) for job in found], right=("PRIORITY", "TRIES"))


def _row(job: "Job", now: int) -> tuple[str, ...]:
    state = str(job.state)
    return (
        str(job.id),
        job.task,
        state,
        when(job, now),
        str(job.priority),
        f"{tries(job):,}",
        _note(job, now),
    )


def tries(job: "Job") -> int:
    """The number of runs: failed ones, lost ones, and the current or last one."""
    goes_on = job.place.name == "RUNNING"
    # `attempts` counts only errors, not the run whose answer ended the job.
    by_answer = job.ended == "FINISHED" or (
        job.ended == "FAILED" and job.outcome is not None and job.outcome.code == "failed"
    )
    return job.attempts + job.losses + (1 if goes_on or by_answer else 0)


def when(job: "Job", now: int) -> str:
    """The most relevant time of a job."""
    match job.place.name:
        case "SCHEDULED" | "READY" | "HELD":
            return f"due {since(job.run_at, now)}"
        case "RUNNING" if not job.started_at:
            return "claimed"
        case "RUNNING":
            return f"since {since(job.started_at, now).removesuffix(' ago')}"
        case "PAUSED":
            return f"added {since(job.created_at, now)}"
    # The time may have been lost with a damaged record.
    return f"ended {since(job.finished_at, now)}" if job.finished_at else "ended"


def _note(job: "Job", now: int) -> str:
    from ..records import key_text

    if job.place.name == "RUNNING":
        if job.lease_until <= now:
            return "past its lease" if job.lease_until else "without a lease"
        if job.cancel_requested:
            return "asked to stop"
        if job.progress is not None:
            return cut(f"{job.progress.fraction:.0%} {job.progress.note}")
    if job.place.name == "HELD":
        return cut(f"held by domain {key_text(job.domain)}")
    return cut(job.reason or (job.errors[-1].error if job.errors and not job.ended else ""))
