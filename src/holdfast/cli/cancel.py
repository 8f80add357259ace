"""`holdfast cancel`."""

from typing import Any

import click

from .many import Many, choosing
from .session import Session


@click.command()
@click.option("--force", is_flag=True, help="End the claims of running jobs at once.")
@choosing
@click.pass_obj
def cancel(session: Session, /, *, ids: tuple[int, ...], force: bool, **options: Any) -> None:
    """Take jobs out of the queue.

    One that runs is asked to stop; with --force its worker loses it. A selection without --state
    takes those that have not ended; --state FAILED lays failed jobs to rest.
    """
    many = Many(session, "cancel", "cancelled")
    chosen = many.choose(ids, options, default=lambda job: job.ended is None)
    many.run(chosen, lambda queue, job_id: queue.cancel(job_id, force=force))
