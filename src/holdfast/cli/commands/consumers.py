"""`holdfast consumers`: how far each indexed consumer is; `holdfast consumers set` puts one elsewhere."""

from typing import TYPE_CHECKING, Any

import click

from ...core.bounds import MAX_INDEX
from ...core.counting import counted
from ...core.errors import NotFound
from ..output import confirm, emit, note, say, since, table
from ..records import moment
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.indexed import Mark

COLUMNS = ("NAME", "PROCESSED", "HEAD", "LAG", "IN FLIGHT", "RATE", "MOVED", "LOG")
# An older rate is not shown.
RATE_MS = 30_000


@click.group(invoke_without_command=True)
@settings(create=True)
@click.pass_context
def consumers(ctx: click.Context, /) -> None:
    """List indexed consumers and their progress.

    HEAD is the last index. For a log it is read now; for other sources it is what the consumer saw when it
    last advanced. IN FLIGHT and RATE are also from then.
    """
    if ctx.invoked_subcommand is not None:
        return
    from ...indexed.progress import consumers as look

    session: Session = ctx.obj
    with session.existing() as queue:
        found = look(queue)
        now = now_ms(queue)
    if session.as_json:
        for name, mark in found.items():
            emit(_record(name, mark, now))
    elif not found:
        say("no consumers")
    else:
        table(COLUMNS, [_row(name, mark, now) for name, mark in found.items()], right=COLUMNS[1:6])


@consumers.command(name="set")
@click.argument("name")
@click.argument("index", type=click.IntRange(0, MAX_INDEX))
@click.option("--yes", is_flag=True, help="Do not ask.")
@settings()
@click.pass_obj
def set_index(session: Session, /, *, name: str, index: int, yes: bool) -> None:
    """Set the progress of a consumer to INDEX.

    If you set it forward, the indexes in between are never processed; if you set it back, they are processed
    again. A running consumer stops with an error, and continues there when you start it again.
    """
    from ...indexed.progress import consumers as look
    from ...indexed.progress import set_by_hand

    with session.existing() as queue:
        mark = look(queue).get(name)
        if mark is None:
            raise NotFound("consumer", name)
        note(f"warning: {_warning(name, mark.processed, index)}")
        if not yes and not confirm("Set it?"):
            say("nothing was changed")
            return
        after = set_by_hand(queue, name, index)
        now = now_ms(queue)
    if session.as_json:
        emit(_record(name, after, now))
    else:
        say(f"{name} continues after {after.processed:,}")


def _warning(name: str, processed: int, index: int) -> str:
    between = counted(abs(index - processed), "index", "indexes")
    if index > processed:
        return f"{between} after {processed:,} will never be processed by {name}"
    if index < processed:
        return f"{between} up to {processed:,} will be processed again by {name}"
    return f"{name} is already there; if it runs, it stops"


def _record(name: str, mark: "Mark", now: int) -> dict[str, Any]:
    return {
        "name": name,
        "processed": mark.processed,
        "head": mark.head,
        "lag": mark.lag,
        "in_flight": mark.in_flight,
        "per_s": round(_rate(mark, now), 1),
        "moved_at": moment(mark.moved_ms),
        "log": mark.log or None,
    }


def _rate(mark: "Mark", now: int) -> float:
    return mark.per_s if now - mark.moved_ms <= RATE_MS else 0.0


def _row(name: str, mark: "Mark", now: int) -> tuple[str, ...]:
    record = _record(name, mark, now)
    numbers = (f"{record[field]:,}" for field in ("processed", "head", "lag", "in_flight"))
    moved = since(mark.moved_ms, now) if mark.moved_ms else "never"
    return name, *numbers, f"{record['per_s']:,.1f}/s", moved, mark.log
