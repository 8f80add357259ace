"""`holdfast cancel`."""

from typing import TYPE_CHECKING, Any

import click

from ...core.errors import Refused
from ..many import Many, choosing
from ..session import Session

if TYPE_CHECKING:
    from ...core.job import Job
    from ...queue.aio import AsyncQueue


@click.command()
@click.option("--force", is_flag=True, help="End the claims of running jobs at once.")
@choosing
@click.pass_obj
def cancel(session: Session, /, *, ids: tuple[int, ...], force: bool, **options: Any) -> None:
    """Take jobs out of the queue.

    A running job is asked to stop; with --force its claim ends at once. A selection without --state
    takes jobs that have not ended. Use --state FAILED to cancel failed jobs.
    """

    async def verb(queue: "AsyncQueue", job_id: int) -> "Job":
        job = await queue.cancel(job_id, force=force)
        if str(job.state) == "FINISHED":
            raise Refused("cancel", job_id, found="FINISHED", needed="in any other state")
        return job

    many = Many(session, "cancel", _past)
    many.run(many.choose(ids, options, default=lambda job: job.ended is None), verb)


def _past(job: "Job | None") -> str:
    return "asked {} to stop" if job is not None and job.ended is None else "cancelled {}"
