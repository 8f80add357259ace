"""`holdfast import`: takes over the jobs that wait in another system."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from ...core.errors import BadInput
from ...core.units import counted
from ..foreign import READERS, OldQueue, errors_of
from ..output import Grid, answer
from ..session import Session, settings
from .tools import imported_queue

if TYPE_CHECKING:
    from ..foreign import Imported

# How many reasons are shown to people.
REASONS = 20


@click.command("import")
@click.argument("system", type=click.Choice([*READERS]))
@click.argument("url")
@click.argument("name", metavar="MODULE:QUEUE")
@click.option("--dry-run", is_flag=True, help="Only show what would be taken over.")
@click.option(
    "--task", "tasks", metavar="OLD=NEW", multiple=True, help="What a task is called here. Repeatable."
)
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Only this queue there. Repeatable.")
@click.option("--held", is_flag=True, help="Also jobs that its workers have: only when these have ended.")
@click.option("--keep", is_flag=True, help="Leave the jobs there as well.")
@settings()
@click.pass_obj
def import_(
    session: Session,
    /,
    *,
    system: str,
    url: str,
    name: str,
    dry_run: bool,
    tasks: tuple[str, ...],
    queues: tuple[str, ...],
    held: bool,
    keep: bool,
) -> None:
    """Take over the jobs that wait in another system.

    Waiting and scheduled ones, each once. URL is its Redis, the file of a SqliteHuey, or the PostgreSQL of
    Procrastinate. MODULE:QUEUE has tasks of the same names. Stop its workers first. What cannot be taken
    over stays there.
    """
    from ..foreign import Importer

    if session.said & {"store", "tenant"}:
        raise BadInput("store", session.store, needed="absent: a queue has its own store and tenant")
    importer = Importer(imported_queue(name), system, dict(_pair(text) for text in tasks))
    with errors_of(system, url), ExitStack() as stack:
        found = READERS[system](OldQueue(url, queues, held, stack))
        imported = importer.take(found, dry_run=dry_run, keep=keep)
    _show(imported, dry_run=dry_run, as_json=session.as_json)
    if imported.left:
        raise SystemExit(1)


def _pair(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not (old and new):
        raise BadInput("--task", text, needed="OLD=NEW")
    return old, new


def _show(imported: "Imported", *, dry_run: bool, as_json: bool) -> None:
    names = sorted({*imported.waiting, *imported.scheduled})
    left = [
        {"task": task, "reason": reason, "count": count}
        for (task, reason), count in imported.left.most_common()
    ]
    record = {
        "tasks": {
            one: {"waiting": imported.waiting[one], "scheduled": imported.scheduled[one]} for one in names
        },
        "left": left,
        "dry_run": dry_run,
    }
    rows = [(one, f"{imported.waiting[one]:,}", f"{imported.scheduled[one]:,}") for one in names]
    would = "would be" if dry_run else "were" if imported.count != 1 else "was"
    text = f"{counted(imported.count, 'job')} {would} taken over"
    if left:
        text += f"; {imported.left.total():,} stay where they are:"
    lines = [f"{one['count']:,} × {one['task']}: {one['reason']}" for one in left[:REASONS]]
    grid = Grid(("TASK", "WAITING", "SCHEDULED"), rows, right=("WAITING", "SCHEDULED")) if rows else None
    answer(record, "\n".join([text, *lines]), grid, as_json=as_json)
