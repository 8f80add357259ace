"""`holdfast bench`: how fast it is here, beside the raw limit of the same engine in the same run."""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .bench_measures import Figure


@click.command()
@click.argument("measures", nargs=-1)
@click.option("--scale", type=float, default=0.1, show_default=True, help="How much to do: 1 is full size.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Rounds of each side."
)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to put the stores.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(measures: tuple[str, ...], scale: float, rounds: int, folder: Path | None, as_json: bool) -> None:
    """Measure this machine: ours beside the raw limit of SQLite, in turns."""
    from .bench_measures import MEASURES, Bench

    unknown = [name for name in measures if name not in MEASURES]
    if unknown:
        raise click.UsageError(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=folder) as name:
        figures = [
            MEASURES[measure](Bench(Path(name), scale=scale, rounds=rounds, tick=_tick))
            for measure in measures or MEASURES
        ]
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    (_print_json if as_json else _print_table)(figures, scale)


def _tick(name: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{name} …", nl=False, err=True)


def _settings(scale: float) -> dict[str, str]:
    import apsw

    library = f"SQLite {apsw.sqlite_lib_version()}, apsw"
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return {
        "store": f"{library}, WAL, synchronous=FULL, archive on, 100 bytes of data",
        "machine": f"{os.cpu_count()} cores, {system}",
        "scale": f"{scale:g}",
    }


def _print_json(figures: "list[Figure]", scale: float) -> None:
    rows = [figure._asdict() for figure in figures]
    click.echo(json.dumps({"settings": _settings(scale), "figures": rows}, indent=2))


def _print_table(figures: "list[Figure]", scale: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "ours", "raw", "ratio", "rounds", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in figures:
        form = "{:,.0f}" if one.unit == "jobs/s" else "{:.2f} ms"
        table.add_row(
            one.name, form.format(one.ours), form.format(one.raw), f"{one.ratio:.2f}", str(one.rounds)
        )
    console = Console()
    for name, value in _settings(scale).items():
        console.print(f"{name}: {value}", highlight=False)
    console.print(table)
