"""`holdfast show`: everything about a job."""

import json
from typing import TYPE_CHECKING, Any

import click

from .output import emit, say, since
from .session import Session, now_ms, settings
from .words import JobId

if TYPE_CHECKING:
    from ..core.job import Job
    from ..queue.queue import Queue

# More than a screen or two of somebody's data is shown to programs only.
SHOWN_CHARS = 4_000
SHOWN_CHILDREN = 20
_LATER = ("id", "tenant", "task", "state", "place", "children", "reason", "data_bytes")
_TIMES = ("created_at", "run_at", "started_at", "finished_at", "expires_at", "lease_until")


@click.command()
@click.argument("job_id", metavar="ID", type=JobId())
@settings()
@click.pass_obj
def show(session: Session, /, *, job_id: int) -> None:
    """Show everything about a job.

    Its record, data, result, last errors and children.
    """
    from .records import job_record, outcome_record, plain

    with session.existing() as queue:
        job = queue.get(job_id)
        record = {
            **job_record(job),
            "why": queue.why(job_id),
            "data": plain(queue.data(job_id)),
            "result": plain(queue.result(job_id)) if job.has_result and _finished(job) else None,
            "outcome": outcome_record(job.outcome) if job.outcome else None,
            "errors": [outcome_record(end) for end in job.errors],
        }
        if session.as_json:
            emit(record)
            return
        now, children = now_ms(queue), _children(queue, job)
    _show_record(record, now)
    _show_body("data", record["data"])
    if job.has_result:
        _show_body("result", record["result"])
    _show_errors(record["errors"], now)
    _show_children(job, children, now)


def _finished(job: "Job") -> bool:
    return str(job.ended) == "FINISHED"


def _children(queue: "Queue", job: "Job") -> "list[Job]":
    tally = job.children
    if not tally.pending + tally.failed + tally.kept:
        return []
    return queue.jobs(parent=job.id, limit=SHOWN_CHILDREN)


def _show_record(record: dict[str, Any], now: int) -> None:
    """The fields that say something, one a line."""
    from ..core.durations import moment_ms

    say(f"job {record['id']}: {record['task']}, {record['state']}")
    say(f"  {record['why']}")
    say()
    place = "" if record["place"] == record["state"] else record["place"]
    lines = {"tenant": record["tenant"], "place": place}
    for name, value in record.items():
        if name in _TIMES and value:
            lines[name] = f"{value}  ({since(moment_ms(value, name=name), now)})"
        elif (
            name not in _LATER
            and not isinstance(value, dict | list)
            and name not in ("why", "data", "result")
        ):
            lines[name] = "" if value in (None, False) else str(value)
    if record["progress"]:
        lines["progress"] = f"{record['progress']['fraction']:.0%} {record['progress']['note']}"
    width = max(len(name) for name, value in lines.items() if value)
    for name, value in lines.items():
        if value:
            say(f"  {name.replace('_', ' '):<{width}}  {value}")


def _show_body(name: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    rest = len(text) - SHOWN_CHARS
    say(f"\n{name}:")
    say(_indented(text[:SHOWN_CHARS]))
    if rest > 0:
        say(f"  … and {rest:,} characters more; --json shows all")


def _show_errors(errors: list[dict[str, Any]], now: int) -> None:
    from ..core.durations import moment_ms

    for end in errors:
        at = since(moment_ms(end["at"], name="at"), now)
        say(f"\n{end['code']} {at}, {end['at']}:")
        say(_indented(end["error"] or "no word about it"))
        if end["traceback"]:
            say(_indented(end["traceback"].rstrip()))


def _show_children(job: "Job", children: "list[Job]", now: int) -> None:
    from .jobs import job_table

    tally = job.children
    if not children:
        return
    tallied = f"{tally.pending:,} pending, {tally.failed:,} failed, {tally.kept:,} finished or cancelled"
    say(f"\nchildren: {tallied}")
    job_table(children, now)
    if tally.pending + tally.failed + tally.kept > len(children):
        say(f"  … and more: holdfast jobs --parent {job.id}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
