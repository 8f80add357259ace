"""`holdfast purge`: deletes old jobs."""

import click

from ...core.counting import counted
from ..output import answer, progress
from ..session import Session, now_ms, settings
from ..words import moment_word


@click.command()
@click.option(
    "--before",
    required=True,
    metavar="WHEN",
    help="How long ago they ended, such as 7d, or a time: 2026-11-15T01:02:03Z.",
)
@settings()
@click.pass_obj
def purge(session: Session, /, *, before: str) -> None:
    """Delete archived jobs that ended before a time.

    Old jobs are also purged automatically, after a day or after `connect(retention=…)`. FAILED jobs are not
    in the archive; `holdfast delete --state FAILED` deletes them.
    """
    from ...core.commands import Purge

    with session.existing() as queue, progress("purging") as advance:
        command = Purge(before_ms=moment_word("before", before, now_ms(queue)), tenant=queue.tenant)
        total = 0
        while gone := queue.connection.ask(command):
            total += gone
            advance(gone)
    answer({"purged": total}, f"purged {counted(total, 'job')}", as_json=session.as_json)
