"""`holdfast schedules`: all schedules, and when they come next."""

from typing import TYPE_CHECKING

import click

from ..output import emit, say, since, span, table
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.schedule import Schedule
    from ...engine.commands.schedules import Kept

COLUMNS = ("NAME", "TASK", "TIMES", "LAST", "FIRED", "NEXT")


@click.command()
@click.option(
    "--next",
    "count",
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="How many next moments.  [3]",
)
@settings(create=True)
@click.pass_obj
def schedules(session: Session, /, *, count: int) -> None:
    """List schedules with their next moments."""
    from ...core.schedule import upcoming
    from ...engine import look
    from ..records import schedule_record

    with session.existing() as queue:
        found = queue.line.committer.read(lambda txn: look.schedules(txn, queue.tenant))
        now = now_ms(queue)
    if session.as_json:
        for kept in found:
            emit(schedule_record(kept.schedule, kept.job.task, upcoming(kept.schedule, now, count)))
    elif not found:
        say("no schedules")
    else:
        rows = [_row(kept, upcoming(kept.schedule, now, count), now) for kept in found]
        table(COLUMNS, rows, right=("FIRED",))


def _row(kept: "Kept", moments: list[int], now: int) -> tuple[str, ...]:
    from ...core.durations import iso

    one = kept.schedule
    last = since(one.last_at, now) if one.last_at else "–"
    if one.paused or one.ended:
        after = "paused" if one.paused else "ended"
    elif not moments:
        after = "when its job has ended"
    else:
        # Moments are whole seconds.
        after = ", ".join(iso(at).replace(".000Z", "Z") for at in moments)
    return one.name, kept.job.task, _times(one), last, f"{one.fired:,}", after


def _times(one: "Schedule") -> str:
    """When it comes, in the words that it was given in."""
    if one.every_ms:
        return f"every {span(one.every_ms)}"
    zone = "" if one.tz == "UTC" else f" {one.tz}"
    return (one.cron or one.repeat) + zone
