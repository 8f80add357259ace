"""`holdfast retention`: how long a store keeps ended jobs."""

import click

from ..output import answer, span
from ..session import Session, settings


@click.command()
@click.argument("time", required=False)
@settings()
@click.pass_obj
def retention(session: Session, /, *, time: str | None) -> None:
    """Show how long ended jobs are kept, or keep them for TIME, such as 7d; 0: not at all.

    FAILED jobs are kept until they are retried, cancelled or deleted.
    """
    with session.existing() as queue:
        if time is not None:
            queue.set_retention(time)
        kept_ms = round(queue.retention().total_seconds() * 1000)
    answer({"retention_ms": kept_ms}, span(kept_ms), as_json=session.as_json)
