"""`holdfast requeue`."""

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ...core.counting import counted
from ...core.errors import NotFound
from ..many import Many, choosing, confirm_change
from ..session import Session

if TYPE_CHECKING:
    from ...core.job import Job


@click.command()
@click.option("--run-at", metavar="MOMENT", help="Do not start before this time: 2026-11-15T01:02:03Z.")
@choosing
@click.pass_obj
def requeue(session: Session, /, *, ids: tuple[int, ...], run_at: str | None, **options: Any) -> None:
    """Put jobs back in the queue, with their attempts reset.

    By id you can requeue a job in any state, except archived jobs; of running ones you are asked, since they
    may then run a second time beside themselves. A selection without --state takes FAILED jobs, or stuck jobs
    with --stuck.
    """
    from ...core.durations import moment_ms

    if run_at is not None:
        moment_ms(run_at, name="--run-at")
    many, is_sure = Many(session, "requeue", lambda _job: "requeued {}"), options["yes"]
    chosen = many.choose(ids, options, default=lambda job: _is_down(job) or options["stuck"])
    # A selection was confirmed as a whole.
    confirmed = chosen if is_sure or not ids else _confirm_running(session, chosen)
    many.run(
        chosen,
        lambda queue, job_id: queue.requeue(job_id, run_at=run_at, unless_running=job_id not in confirmed),
    )


def _is_down(job: "Job") -> bool:
    return str(job.ended) == "FAILED"


def _confirm_running(session: Session, ids: list[int]) -> Collection[int]:
    """Ask before running jobs are requeued; returns which of these jobs run."""
    from ...core.job import Place

    running = set()
    with session.existing() as queue:
        for job_id in ids:
            # What is missing is refused later.
            with suppress(NotFound):
                if queue.get(job_id).place is Place.RUNNING:
                    running.add(job_id)
    if running:
        confirm_change(f"requeue {counted(len(running), 'running job')}, which may then run twice at once?")
    return running
