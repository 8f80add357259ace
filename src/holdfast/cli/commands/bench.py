"""`holdfast bench`: how fast it is here, beside the raw limit of the same engine in the same run."""

import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..session import STORE, Session, settings

if TYPE_CHECKING:
    from ..bench.measures import Figure
    from ..bench.raw import Side


PIPE_COLUMNS = 120


@click.command()
@click.argument("measures", nargs=-1, metavar="[MEASURE]...")
@click.option("--scale", type=float, default=0.1, show_default=True, help="How much to do: 1 is full size.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Rounds of each side."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where to put the stores; else beside --store, or wherever temporary files are.",
)
@settings()
@click.pass_obj
def bench(
    session: Session, measures: tuple[str, ...], scale: float, rounds: int, folder: Path | None
) -> None:
    """Measure how fast Holdfast is on this machine.

    Each figure stands beside what the bare engine can do, measured in turns. The stores are temporary;
    --store only says of which kind they are and where, and is not touched. The measures are add_many claim
    drain drain2 add add64 slow backlog domains latency latency2 idle asks, and all of them unless some are
    named.
    """
    from ..bench.measures import Bench
    from ..bench.raw import side_of
    from ..bench.table import MEASURES

    unknown = [name for name in measures if name not in MEASURES]
    if unknown:
        raise click.UsageError(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    if not 0 < scale <= 100:
        raise click.UsageError(f"--scale is {scale:g}, and must be above 0 and at most 100")
    side = side_of(None if session.store == STORE else session.store, folder)
    chosen = [MEASURES[name] for name in measures or MEASURES]
    with _exit_on_sigterm(), _progress(len(chosen) * rounds) as (tick, reach):
        figures = []
        for at, measure in enumerate(chosen, start=1):
            figures.append(measure(Bench(side, scale=scale, rounds=rounds, tick=tick)))
            reach(at * rounds)
    show = _print_json if session.as_json else _print_table
    show([figure for figure in figures if figure is not None], _settings(side, scale, rounds))


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, so that the processes and stores of a measure are removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[str, int], None], Callable[[int], None]]]:
    """Show on a terminal what is measured and how far it is."""
    if not sys.stderr.isatty():
        yield (lambda _name, _rounds: None), (lambda _rounds: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield (
            lambda name, rounds: bar.update(task, description=name, advance=rounds),
            lambda rounds: bar.update(task, completed=rounds),
        )


def _settings(side: "Side", scale: float, rounds: int) -> dict[str, str]:
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return {
        "holdfast": sys.modules["holdfast"].__version__,
        "store": side.settings(),
        "machine": f"{os.cpu_count()} cores, {system}",
        "scale": f"{scale:g}",
        "rounds": f"{rounds}, the median of each",
    }


def _print_json(figures: "list[Figure]", settings: dict[str, str]) -> None:
    rows = [figure._asdict() for figure in figures]
    click.echo(json.dumps({"settings": settings, "figures": rows}, indent=2))


def _print_table(figures: "list[Figure]", settings: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "ours", "raw", "ratio", "rounds", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in figures:
        cells = [_shown(one.ours, one.unit), _shown(one.raw, one.unit)]
        table.add_row(one.name, *cells, "" if one.ratio is None else f"{one.ratio:.2f}", str(one.rounds))
    # Whoever reads a pipe looks for whole lines.
    console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    for name, value in settings.items():
        console.print(f"{name}: {value}", highlight=False)
    console.print(table)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "jobs/s":
        return f"{value:,.0f}"
    return f"{value:.2f} ms" if unit == "ms" else f"{value:.2f} {unit}"
