"""`holdfast move`: a live queue from one store to another."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...core.bounds import BATCH_JOBS, PAGE_JOBS
from ..output import answer, note, progress
from ..session import Session, settings

if TYPE_CHECKING:
    from ...engine.migrate.move import Summary
    from ...store.contract import AnyStore

_PHASES = {
    "copying": "copying; the queue stays in use",
    "stopping": "copying the last changes; writes to the old store wait",
}


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="[TO]", required=False)
@click.option("--dry-run", is_flag=True, help="Only check whether the move is possible.")
@click.option(
    "--batch",
    type=click.IntRange(1, BATCH_JOBS),
    default=PAGE_JOBS,
    show_default=True,
    metavar="N",
    help="Number of rows in a batch.",
)
@click.option("--undo", is_flag=True, help="Undo an unfinished move of FROM.")
@settings()
@click.pass_obj
def move(
    session: Session, /, *, source: str, target: str | None, dry_run: bool, batch: int, undo: bool
) -> None:
    """Move a live queue from one store to another.

    FROM and TO are addresses of stores. TO must be empty. Everything moves: ids, claims, leases, rates,
    schedules, results. Producers and workers keep running; their writes wait for a moment at the end. Then
    the old store sends them to the new address. If the move is interrupted, run the same command again.
    """
    if undo:
        _undo(session, source, target)
        return
    if target is None:
        raise click.UsageError("Missing argument 'TO'.", click.get_current_context())
    from ...engine.migrate.move import StoreMove
    from ...queue.addresses import bare_url

    here, there = bare_url(source), bare_url(target)
    with ExitStack() as opened:
        stores = [opened.enter_context(_open(url, exists=url == source)) for url in (source, target)]
        tell, phase = opened.enter_context(_telling())
        moving = StoreMove(*stores, here=here, there=there, batch=batch, tell=tell, phase=phase)
        if dry_run:
            moving.check()
            answer({"from": here, "to": there, "possible": True}, "it can be done", as_json=session.as_json)
            return
        summary = moving.run()
    _report(session, here, there, summary)


def _undo(session: Session, source: str, target: str | None) -> None:
    if target is not None:
        raise click.UsageError("--undo takes FROM alone", click.get_current_context())
    from ...engine.migrate.move import undo
    from ...queue.addresses import bare_url

    here = bare_url(source)
    with _open(source, exists=True) as store:
        found = undo(store, here=here)
    text = f"{here} is in use again; the copy in {found.other} stays closed: drop it before you use it"
    answer({"store": here, "given_up": found.other}, text, as_json=session.as_json)


@contextmanager
def _open(url: str, *, exists: bool) -> "Iterator[AnyStore]":
    from ...queue.connect import store_maker

    Session.of(url).check()
    store = store_maker(url, join=False, follow=False, create=not exists)()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _telling() -> Iterator[tuple[Callable[[str, int, int], None], Callable[[str], None]]]:
    """Shows the progress: a line for each phase, and the number of rows read."""
    with progress("moving", unit="rows") as advance:

        def phase(name: str) -> None:
            if sys.stderr.isatty():
                note(_PHASES[name])

        yield (lambda _part, rows, _written: advance(rows)), phase


def _report(session: Session, here: str, there: str, summary: "Summary") -> None:
    parts: dict[str, Any] = {name.replace(" ", "_"): rows for name, rows in summary.rows.items()}
    record = {"from": here, "to": there, "rows": parts, "stopped_ms": round(summary.stopped_s * 1000)}
    jobs = summary.rows.get("jobs", 0), summary.rows.get("archive", 0)
    counted = f"{jobs[0]:,} live and {jobs[1]:,} archived jobs" if summary.rows else "all that was left"
    text = f"moved {counted} to {there}; writes waited for {summary.stopped_s:.1f} s"
    answer(record | {"digest": summary.digest}, f"{text}\ndigest {summary.digest}", as_json=session.as_json)
