"""`holdfast bench`: how fast Holdfast is on this machine."""

import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..output import progress
from ..session import STORE, Session, settings

if TYPE_CHECKING:
    from ..bench.measures import Figure
    from ..bench.places import BenchPlace


@click.command()
@click.argument("measures", nargs=-1, metavar="[MEASURE]...")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Number of jobs; 1 is full size.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds of each measure."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder of the temporary stores.  [beside --store, or the system's temporary folder]",
)
@settings()
@click.pass_obj
def bench(
    session: Session, measures: tuple[str, ...], scale: float, rounds: int, folder: Path | None
) -> None:
    """Measure how fast Holdfast is on this machine.

    Uses the public API with default options, and prints the median of several rounds. The stores are
    temporary: --store chooses their kind and place, and is not changed itself. The measures are add,
    add_many, next, drain and latency; all of them run unless you name some.
    """
    from ..bench.measures import MEASURES, Bench, Figure
    from ..bench.places import place_of

    unknown = [name for name in measures if name not in MEASURES]
    if unknown:
        raise click.UsageError(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    if not 0 < scale <= 100:
        raise click.UsageError(f"--scale is {scale:g}, and must be above 0 and at most 100")
    place = place_of(None if session.store == STORE else session.store, folder)
    chosen = list(dict.fromkeys(measures)) or list(MEASURES)
    figures = []
    with _exit_on_sigterm():
        for name in chosen:
            what, unit, once = MEASURES[name]
            values = []
            with progress(what, rounds, unit="rounds") as advance:
                for _ in range(rounds):
                    values.append(once(Bench(place, scale=scale)))
                    advance(1)
            figures.append(Figure(name, what, statistics.median(values), unit, rounds))
    show = _print_json if session.as_json else _print_table
    show(figures, _settings(place, scale, rounds))


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the processes and stores of a measure are removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _settings(place: "BenchPlace", scale: float, rounds: int) -> dict[str, str]:
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return {
        "holdfast": sys.modules["holdfast"].__version__,
        "store": place.settings(),
        "machine": f"{os.cpu_count()} cores, {system}",
        "scale": f"{scale:g}",
        "rounds": f"{rounds}, the median of each",
    }


def _print_json(figures: "list[Figure]", settings: dict[str, str]) -> None:
    rows = [figure._asdict() for figure in figures]
    click.echo(json.dumps({"settings": settings, "figures": rows}, indent=2))


def _print_table(figures: "list[Figure]", settings: dict[str, str]) -> None:
    for name, value in settings.items():
        click.echo(f"{name}: {value}")
    click.echo()
    for one in figures:
        shown = f"{one.value:,.0f}" if one.unit == "jobs/s" else f"{one.value:.2f}"
        click.echo(f"{one.measure:<9} {one.what:<45} {shown:>10} {one.unit}")
