"""`holdfast delete`."""

from functools import partial
from typing import Any

import click

from ..many import Many, choosing
from ..session import Session


@click.command()
@partial(choosing, archived=True)
@click.pass_obj
def delete(session: Session, /, *, ids: tuple[int, ...], **options: Any) -> None:
    """Delete jobs, including archived ones.

    A job that is running, or that its parent waits for, is refused: cancel it first.
    """
    many = Many(session, "delete", lambda _reply: "deleted {}")
    many.run(many.choose(ids, options), lambda queue, job_id: queue.delete(job_id))
