"""`holdfast why`: why a job is not running."""

import click

from ..output import answer
from ..session import Session, settings
from ..words import JobId


@click.command()
@click.argument("job_id", metavar="ID", type=JobId())
@settings()
@click.pass_obj
def why(session: Session, /, *, job_id: int) -> None:
    """Explain why a job is not running."""
    with session.existing() as queue:
        text = queue.why(job_id)
    answer({"id": str(job_id), "why": text}, text, as_json=session.as_json)
