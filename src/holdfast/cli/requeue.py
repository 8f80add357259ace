"""`holdfast requeue`."""

from typing import Any

import click

from .many import Many, choosing
from .session import Session


@click.command()
@click.option("--run-at", metavar="MOMENT", help="Not before: 2026-11-15T01:02:03Z.")
@choosing
@click.pass_obj
def requeue(session: Session, /, *, ids: tuple[int, ...], run_at: str | None, **options: Any) -> None:
    """Put jobs back in the queue, their attempts forgiven.

    A job by its id whatever its state, but for archived ones; a selection without --state takes
    FAILED jobs only.
    """
    from ..core.durations import moment_ms

    if run_at is not None:
        moment_ms(run_at, name="run_at")
    many = Many(session, "requeue", "requeued")
    chosen = many.choose(ids, options, default=lambda job: str(job.ended) == "FAILED" or options["stuck"])
    many.run(chosen, lambda queue, job_id: queue.requeue(job_id, run_at=run_at))
