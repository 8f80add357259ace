"""`holdfast requeue`."""

from typing import TYPE_CHECKING, Any

import click

from ..many import Many, choosing
from ..session import Session

if TYPE_CHECKING:
    from ...core.job import Job


@click.command()
@click.option("--run-at", metavar="MOMENT", help="Do not start before this time: 2026-11-15T01:02:03Z.")
@choosing
@click.pass_obj
def requeue(session: Session, /, *, ids: tuple[int, ...], run_at: str | None, **options: Any) -> None:
    """Put jobs back in the queue, with their attempts reset.

    By id you can requeue a job in any state, except archived jobs. A selection without --state takes FAILED
    jobs, or stuck jobs with --stuck.
    """
    from ...core.durations import moment_ms

    if run_at is not None:
        moment_ms(run_at, name="--run-at")
    many = Many(session, "requeue", lambda _job: "requeued {}")
    chosen = many.choose(ids, options, default=lambda job: _is_down(job) or options["stuck"])
    many.run(chosen, lambda queue, job_id: queue.requeue(job_id, run_at=run_at))


def _is_down(job: "Job") -> bool:
    return str(job.ended) == "FAILED"
