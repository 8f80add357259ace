"""`holdfast journal`: shows what a journal contains, and which of its jobs the store refused."""

from typing import TYPE_CHECKING, Any

import click

from ...core.units import counted
from ..output import NOTHING, Grid, Listing, answer, show_list, since
from ..session import Session, settings

if TYPE_CHECKING:
    from ...journal.folder import RefusedLine
    from ...journal.status import JournalStatus

COLUMNS = ("WAITING", "OLDEST", "SEGMENTS", "BYTES", "PROCESS", "IDS UNTIL", "REFUSED", "DAMAGED")


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--refused", is_flag=True, help="List the jobs that the store refused.")
@click.option("--ingest", is_flag=True, help="Bring what is waiting to the store, and wait for it.")
@settings()
@click.pass_obj
def journal(session: Session, /, *, folder: str, refused: bool, ingest: bool) -> None:
    """Show what is in the journal DIR and not in the store yet.

    WAITING counts jobs, OLDEST is the first of them. PROCESS is the process that uses the journal. Until IDS
    UNTIL it accepts jobs without the store. REFUSED are jobs that the store will never accept, DAMAGED
    places that could not be read; see docs/journal.md. With --ingest no process may use the journal.
    """
    from ...journal.folder import JournalFolder
    from ...journal.status import read_status
    from ...store.common.clock import system_clock

    if refused:
        lines = JournalFolder(folder).refused()
        show_list(REFUSED, lines, system_clock(), as_json=session.as_json)
        return
    before = read_status(folder)
    if ingest:
        _ingest(session, folder, before)
        return
    grid = Grid(COLUMNS, [_row(before, system_clock())], COLUMNS)
    answer(_record(before), "", grid, as_json=session.as_json)


def _ingest(session: Session, folder: str, before: "JournalStatus") -> None:
    import random

    from ...journal.connection import JournalMaker
    from ...queue.connect import store_maker

    session.check()
    maker = store_maker(session.store, join=False, follow=False, create=False)
    connection = JournalMaker(maker, folder).connect(retention_ms=None, rng=random.random)
    try:
        connection.ingest()
    finally:
        connection.close()
    text = f"ingested {counted(before.waiting, 'job')}"
    answer({"ingested": before.waiting}, text, as_json=session.as_json)


def _record(status: "JournalStatus") -> dict[str, Any]:
    return {name: getattr(status, name) for name in status.__struct_fields__}


def _row(status: "JournalStatus", now: int) -> tuple[str, ...]:
    return (
        f"{status.waiting:,}",
        since(status.oldest_ms, now) if status.oldest_ms else NOTHING,
        f"{status.segments:,}",
        f"{status.bytes:,}",
        str(status.owner) if status.owner else NOTHING,
        since(status.ids_until_ms, now) if status.ids_until_ms else NOTHING,
        f"{status.refused:,}",
        f"{status.damaged:,}",
    )


def _refused_row(line: "RefusedLine", now: int) -> tuple[str, ...]:
    return line.id, line.tenant, line.task, since(line.at_ms, now), line.error


def _refused_record(line: "RefusedLine", _now: int) -> dict[str, Any]:
    import msgspec

    from ...core.commands import NewJob

    job = msgspec.to_builtins(msgspec.msgpack.decode(line.job, type=NewJob))
    names = ("at_ms", "id", "tenant", "task", "code", "error")
    return {name: getattr(line, name) for name in names} | {"job": job}


REFUSED = Listing(
    "no refused jobs",
    ("ID", "TENANT", "TASK", "REFUSED", "ERROR"),
    _refused_row,
    _refused_record,
    right=("ID",),
)
