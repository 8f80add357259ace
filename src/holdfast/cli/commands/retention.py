"""`holdfast retention`: how long a store keeps ended jobs."""

import click

from ..output import answer, span
from ..session import Session, settings


@click.command()
@click.argument("time", required=False)
@settings()
@click.pass_obj
def retention(session: Session, /, *, time: str | None) -> None:
    """Show or set how long ended jobs are kept.

    TIME is a duration such as 7d; with 0 they are not kept. FAILED jobs are kept until they are retried,
    cancelled or deleted.
    """
    with session.existing() as queue:
        if time is not None:
            queue.set_retention(time)
        kept_ms = round(queue.retention().total_seconds() * 1000)
    answer({"retention_ms": kept_ms}, span(kept_ms), as_json=session.as_json)
