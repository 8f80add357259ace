"""`holdfast schedules`: lists all schedules and their next times."""

from typing import TYPE_CHECKING

import click

from ..output import emit, say, since, span, table
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.queries import Planned
    from ...core.schedule import Schedule

COLUMNS = ("NAME", "TASK", "TIMES", "LAST", "FIRED", "NEXT")


@click.command()
@click.option(
    "--next",
    "count",
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="How many next times to list.  [3]",
)
@settings(create=True)
@click.pass_obj
def schedules(session: Session, /, *, count: int) -> None:
    """List schedules and their next times."""
    from ...core.queries import ListSchedules, ask_all
    from ...core.schedule import upcoming
    from ..records import schedule_record

    with session.existing() as queue:
        found: list[Planned] = ask_all(queue.connection.ask, ListSchedules(tenant=queue.tenant))
        now = now_ms(queue)
    if session.as_json:
        for one in found:
            emit(schedule_record(one.schedule, one.task, upcoming(one.schedule, now, count)))
    elif not found:
        say("no schedules")
    else:
        rows = [_row(one, upcoming(one.schedule, now, count), now) for one in found]
        table(COLUMNS, rows, right=("FIRED",))


def _row(planned: "Planned", moments: list[int], now: int) -> tuple[str, ...]:
    from ...core.durations import iso

    one = planned.schedule
    last = since(one.last_at, now) if one.last_at else "–"
    if one.paused or one.ended:
        after = "paused" if one.paused else "ended"
    elif not moments:
        after = "when its job has ended"
    else:
        # These times are whole seconds.
        after = ", ".join(iso(at).replace(".000Z", "Z") for at in moments)
    return one.name, planned.task, _times(one), last, f"{one.fired:,}", after


def _times(one: "Schedule") -> str:
    """The times of a schedule, as they were given."""
    if one.every_ms:
        return f"every {span(one.every_ms)}"
    zone = "" if one.tz == "UTC" else f" {one.tz}"
    return (one.cron or one.repeat) + zone
