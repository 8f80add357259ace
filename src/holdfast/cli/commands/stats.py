"""`holdfast stats`: rates, waits, durations and failures by task, from the JSON lines of log files.

Lines that are not events of jobs are counted and skipped. All durations are kept, eight bytes each, so that
percentiles are exact.
"""

import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from typing import IO, Any, NamedTuple

import click
import msgspec

from ...core.units import counted
from ..output import Listing, note, show_list, span
from ..words import open_input, stdin

LOGGER = "holdfast.job"
# Events of runs that ended, and of those that did not succeed.
ENDED = ("finished", "retry", "failed", "cancelled", "lost", "quarantined", "expired")
FAILED = ("failed", "quarantined", "expired")
PERCENTILES = (50, 95, 99)
COLUMNS = (
    *("TENANT", "TASK", "ADDED", "RUNS", "PER S", "RETRIED", "LOST", "FAILED", "FAILED %"),
    *("WAIT P50", "WAIT P99", "RUN P50", "RUN P95", "RUN P99"),
)


class Event(msgspec.Struct, frozen=True):
    """The fields that are read from a line."""

    time: str = ""
    logger: str = ""
    event: str = ""
    task: str = ""
    tenant: str = ""
    waited_ms: float | None = None
    duration_ms: float | None = None
    cpu_ms: float | None = None


class TaskStats:
    """The statistics of one task of a tenant."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.first_s = self.last_s = 0.0
        self.waited_ms, self.duration_ms = array("d"), array("d")
        self.cpu_ms = 0.0

    def note(self, event: Event, at_s: float) -> None:
        """Count an event."""
        self.events[event.event] += 1
        self.first_s = min(self.first_s or at_s, at_s)
        self.last_s = max(self.last_s, at_s)
        if event.event not in ENDED:
            # `started` repeats how long the job has waited.
            return
        self.cpu_ms += event.cpu_ms or 0.0
        if event.waited_ms is not None:
            self.waited_ms.append(event.waited_ms)
        if event.duration_ms is not None:
            self.duration_ms.append(event.duration_ms)

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return sum(self.events[name] for name in ENDED)

    @property
    def failed(self) -> int:
        """How many jobs have failed."""
        return sum(self.events[name] for name in FAILED)

    @property
    def per_s(self) -> float:
        """Runs per second, from the first line to the last; 0 if that is less than a second."""
        span_s = self.last_s - self.first_s
        return self.ended / span_s if span_s >= 1 else 0.0


class LogStats(NamedTuple):
    """The tasks by (tenant, task), and how many lines were not events."""

    tasks: dict[tuple[str, str], TaskStats]
    others: int


_decode = msgspec.json.Decoder(Event).decode


def read_lines(lines: Iterable[bytes]) -> LogStats:
    """The statistics of all lines, in any order."""
    tasks: dict[tuple[str, str], TaskStats] = {}
    others = 0
    for line in lines:
        event = read_event(line)
        if event is None:
            others += 1
            continue
        stats = tasks.setdefault((event.tenant, event.task), TaskStats())
        stats.note(event, datetime.fromisoformat(event.time).timestamp())
    return LogStats(dict(sorted(tasks.items())), others)


def read_event(line: bytes) -> Event | None:
    """The event of a line; None: it is not an event."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        event = _decode(line)
        datetime.fromisoformat(event.time)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    return event if event.logger == LOGGER and event.event and event.task else None


def percentile(values: "array[float]", percent: int) -> float | None:
    """The percentile of the values; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def stats_record(tenant: str, task: str, stats: TaskStats) -> dict[str, Any]:
    """The statistics of a task, as JSON."""
    spans = {"waited_ms": stats.waited_ms, "duration_ms": stats.duration_ms}
    return {
        "tenant": tenant,
        "task": task,
        **{name: stats.events[name] for name in ("added", "started", *ENDED)},
        "per_s": round(stats.per_s, 3) or None,
        "failed_percent": round(100 * stats.failed / stats.ended, 2) if stats.ended else 0.0,
        **{
            name: {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
            for name, values in spans.items()
        },
        "cpu_ms": round(stats.cpu_ms, 1),
    }


@click.command()
@click.argument("files", metavar="LOGFILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.pass_context
def stats(ctx: click.Context, /, *, files: tuple[str, ...], as_json: bool) -> None:
    """Sum up log files: rates, waits, failures by task.

    The files are what `holdfast worker` and `holdfast serve` write with -v (or -vv) and --log-format json;
    `-` is the standard input, and names that end in .gz are decompressed. docs/logging.md lists the fields.
    """
    from ..session import Session

    found = read_lines(_lines(files))
    records = [stats_record(*pair, task) for pair, task in found.tasks.items()]
    as_json = as_json or ctx.ensure_object(Session).as_json
    show_list(LISTING, records, 0, as_json=as_json)
    if found.others:
        text = counted(found.others, "other line")
        note(text if found.tasks else f"{text}: it reads what workers write with -v --log-format json")


def _lines(files: tuple[str, ...]) -> Iterator[bytes]:
    for name in files:
        with nullcontext(stdin()) if name == "-" else open_input(name) as file:
            yield from _decompressed(name, file) if name.endswith(".gz") else file


def _decompressed(name: str, file: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from gzip.GzipFile(fileobj=file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise click.UsageError(f"{name}: {error}") from None


def _row(record: dict[str, object], _now: int) -> tuple[str, ...]:
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


LISTING = Listing("no jobs", COLUMNS, _row, lambda record, _now: record, right=COLUMNS[2:])
