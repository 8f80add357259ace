"""`holdfast top`: a live view of a store. It only reads, at a constant cost.

throughput       the growth of the counts of ended jobs since the last frame
depth            the counts of waiting jobs
first in line    the first entry of the index that claims use
workers          the registry
running          the first jobs by the end of their leases
"""

import sys
from collections import Counter
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from ...core.units import iso
from ..output import NOTHING, clean, cut, emit, since, style_of, terminal
from ..records import pause_text, worker_record
from ..session import Session, settings
from ..verb_commands import WORKERS

if TYPE_CHECKING:
    from ...core.queries import Overview
    from ...queue.queue import Queue

SHOWN_TASKS, SHOWN_RUNNING, SHOWN_WORKERS = 15, 15, 10
# The columns that are cut where a frame is wider than the terminal.
CUT = ("TASK", "TASKS", "PROGRESS")
STATES = ("WAITING", "SCHEDULED", "RUNNING", "PAUSED", "FINISHED", "FAILED")


@click.command()
@click.option("--interval", default="1s", show_default=True, help="Time between frames.")
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@settings(create=True)
@click.pass_obj
def top(session: Session, /, *, interval: str, once: bool) -> None:
    """Watch throughput, queue depth, workers and running jobs. Ctrl-C ends it."""
    from ...core.units import duration_ms

    pause_s = max(duration_ms(interval, name="interval") / 1000, 0.05)
    with session.existing() as queue:
        if once or session.as_json or not sys.stdout.isatty():
            frame = _second(queue, session.tenant, pause_s)
            if session.as_json:
                emit(_record(frame))
            else:
                _print(frame)
            return
        _watch(queue, session.tenant, pause_s)


class Frame:
    """Two snapshots, and the difference between them."""

    def __init__(self, before: "Overview", now: "Overview") -> None:
        self.now = now
        seconds = max(now.now_ms - before.now_ms, 1) / 1000
        # Archived jobs may have been purged meanwhile: then the rate is unknown.
        self.per_s = {
            state: max(now.count_ended(state) - before.count_ended(state), 0) / seconds for state in ENDED
        }
        self.added_per_s = max(now.count_all() - before.count_all(), 0) / seconds


ENDED = ("FINISHED", "FAILED", "CANCELLED")


def _second(queue: "Queue", tenant: str, pause_s: float) -> Frame:
    before = _look(queue, tenant)
    sleep(pause_s)
    return Frame(before, _look(queue, tenant))


def _look(queue: "Queue", tenant: str) -> "Overview":
    from ...core.queries import GetOverview

    found: Overview = queue.connection.ask(GetOverview(tenant=tenant or None))
    return found


def _watch(queue: "Queue", tenant: str, pause_s: float) -> None:
    from rich.live import Live

    before = _look(queue, tenant)
    with Live(console=terminal(), screen=True, auto_refresh=False) as live:
        while True:
            now = _look(queue, tenant)
            live.update(_drawing(Frame(before, now)), refresh=True)
            before = now
            sleep(pause_s)


def _print(frame: Frame) -> None:
    console = terminal()
    with console.capture() as drawing:
        console.print(_drawing(frame))
    click.echo("\n".join(line.rstrip() for line in drawing.get().splitlines()))


def _drawing(frame: Frame) -> Any:
    from rich.console import Group
    from rich.text import Text

    now = frame.now
    rates = f"{frame.per_s['FINISHED']:,.1f} finished/s, {frame.per_s['FAILED']:,.1f} failed/s"
    lines = [f"{iso(now.now_ms)}  {rates}, {frame.added_per_s:,.1f} added/s"]
    if now.first is not None:
        lines.append(
            f"first in line: {now.first.id} {cut(now.first.task)}, due {since(now.first.run_at, now.now_ms)}"
        )
    lines += [f"paused: {pause_text(one)}" for one in now.pauses]
    parts: list[Any] = [Text(clean("\n".join(lines))), Text()]
    parts.append(_grid(("TASK", *STATES), _task_rows(now), right=STATES))
    workers = [WORKERS.row(worker, now.now_ms) for worker in now.workers[:SHOWN_WORKERS]]
    parts += [Text(), _grid(WORKERS.columns, workers, "no worker is alive", ("PID", "RUNNING", "DONE"))]
    running = [_running_row(job, now.now_ms) for job in now.running[:SHOWN_RUNNING]]
    parts += [Text(), _grid(("ID", "TASK", "STARTED", "CLAIM", "PROGRESS"), running, "nothing runs")]
    return Group(*parts)


def _grid(
    columns: tuple[str, ...], rows: list[tuple[str, ...]], none: str = "no jobs", right: Any = ()
) -> Any:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(none)
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left", no_wrap=name not in CUT)
    for cells in rows:
        styled = ((clean(cell), style_of(name, cell)) for name, cell in zip(columns, cells, strict=True))
        grid.add_row(*(Text(cell, style, no_wrap=True, overflow="ellipsis") for cell, style in styled))
    return grid


def _task_rows(now: "Overview") -> list[tuple[str, ...]]:
    counted = [(task, Counter(counts)) for task, counts in now.tasks.items()]
    tasks = sorted(counted, key=lambda item: (-item[1]["WAITING"], -item[1]["RUNNING"], item[0]))
    rows = [
        (cut(task), *(_number(counts[state]) for state in STATES)) for task, counts in tasks[:SHOWN_TASKS]
    ]
    rest: Counter[str] = Counter()
    for _, counts in tasks[SHOWN_TASKS:]:
        rest.update(counts)
    if rest:
        rows.append((f"… {len(tasks) - SHOWN_TASKS} more", *(_number(rest[state]) for state in STATES)))
    return rows


def _number(count: int) -> str:
    return f"{count:,}" if count else NOTHING


def _running_row(job: Any, now: int) -> tuple[str, ...]:
    progress = f"{job.progress.fraction:.0%} {job.progress.note}".strip() if job.progress else ""
    started = since(job.started_at, now) if job.started_at else NOTHING
    return str(job.id), job.task, started, str(job.claim), cut(progress)


def _record(frame: Frame) -> dict[str, Any]:
    from ..records import job_record

    now = frame.now
    return {
        "at": iso(now.now_ms),
        "per_s": {**{state.lower(): rate for state, rate in frame.per_s.items()}, "added": frame.added_per_s},
        "tasks": now.tasks,
        "first_in_line": job_record(now.first) if now.first else None,
        "paused": [pause_text(one) for one in now.pauses],
        "workers": [worker_record(worker) for worker in now.workers],
        "running": [job_record(job) for job in now.running],
    }
