"""`holdfast stats`: rates, waits, durations and failures by task, from log files."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import IO

import click

from ..output import emit, note, say, span, table
from ..words import open_input, stdin

COLUMNS = (
    *("TENANT", "TASK", "ADDED", "RUNS", "PER S", "RETRIED", "LOST", "FAILED", "FAILED %"),
    *("WAIT P50", "WAIT P99", "RUN P50", "RUN P95", "RUN P99"),
)


@click.command()
@click.argument("files", metavar="LOGFILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.pass_context
def stats(ctx: click.Context, /, *, files: tuple[str, ...], as_json: bool) -> None:
    """Sum up log files: rates, waits, failures by task.

    The files are what `holdfast worker` and `holdfast serve` write with -v (or -vv) and --log-format json;
    `-` is the standard input, and names that end in .gz are decompressed. docs/logging.md lists the fields.
    """
    from ..logstats import read_lines, stats_record
    from ..session import Session

    found = read_lines(_lines(files))
    records = [stats_record(*pair, task) for pair, task in found.tasks.items()]
    if as_json or ctx.ensure_object(Session).as_json:
        for record in records:
            emit(record)
    elif not records:
        say("no jobs")
    else:
        table(COLUMNS, [_row(record) for record in records], right=COLUMNS[2:])
    if found.others:
        note(f"{found.others:,} other lines")


def _lines(files: tuple[str, ...]) -> Iterator[bytes]:
    for name in files:
        with nullcontext(stdin()) if name == "-" else open_input(name) as file:
            yield from _decompressed(name, file) if name.endswith(".gz") else file


def _decompressed(name: str, file: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from gzip.GzipFile(fileobj=file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise click.UsageError(f"{name}: {error}") from None


def _row(record: dict[str, object]) -> tuple[str, ...]:
    from ..logstats import ENDED, FAILED

    def count(*names: str) -> str:
        return f"{sum(int(str(record[name])) for name in names):,}"

    waited, lasted = record["waited_ms"], record["duration_ms"]
    assert isinstance(waited, dict) and isinstance(lasted, dict)
    return (
        str(record["tenant"]),
        str(record["task"]),
        count("added"),
        count(*ENDED),
        f"{record['per_s']:,.1f}" if record["per_s"] else "–",
        count("retry"),
        count("lost"),
        count(*FAILED),
        f"{record['failed_percent']:g}",
        *(_shown(waited[name]) for name in ("p50", "p99")),
        *(_shown(lasted[name]) for name in ("p50", "p95", "p99")),
    )


def _shown(ms: float | None) -> str:
    if ms is None:
        return "–"
    return f"{ms:g} ms" if ms < 1000 else span(round(ms))
