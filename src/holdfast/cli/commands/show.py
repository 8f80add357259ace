"""`holdfast show`: everything about a job."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ...core.units import counted, iso
from ..output import clean, cut, emit, painted, say, since, span
from ..session import Session, now_ms, settings
from ..words import JobId

if TYPE_CHECKING:
    from ...core.job import Children, Job
    from ...core.notes import StepResult
    from ...queue.queue import Queue

# Longer data is shown only with --json.
SHOWN_CHARS = 4_000
SHOWN_CHILDREN = 20
SHOWN_LINES = 50
SHOWN_RESULT = 80

# Where an option came from, as text.
_SOURCES = {
    "given": "given when it was added",
    "task": "from its task",
    "port": "from the job-command port",
    "default": "default",
}
# A label and its text; fields without a text are not shown.
Lines = Iterator[tuple[str, str]]


@click.command()
@click.argument("job_id", metavar="ID", type=JobId())
@settings()
@click.pass_obj
def show(session: Session, /, *, job_id: int) -> None:
    """Show everything about a job.

    Its record, data, result, steps, log, last errors and children.
    """
    from ...core.defaults import FOLLOWED, source_of
    from ...core.queries import GetJob
    from ..records import job_record, line_record, outcome_record, plain, step_record

    with session.existing() as queue:
        job: Job = queue.connection.ask(GetJob(job_id=job_id, as_claimed=True))
        timeline = queue.timeline(job_id)
        record = {
            **job_record(job),
            "option_sources": {option: source_of(job, option) for option in FOLLOWED},
            "why": queue.why(job_id),
            "data": plain(queue.data(job_id)),
            "result": plain(queue.result(job_id)) if job.has_result and _finished(job) else None,
            "outcome": outcome_record(job.outcome) if job.outcome else None,
            "errors": [outcome_record(end) for end in job.errors],
            "steps": [step_record(step) for step in timeline],
            "log": [line_record(line) for line in queue.log(job_id)],
        }
        if session.as_json:
            emit(record)
            return
        now, children = now_ms(queue), _children(queue, job)
        workers = queue.workers() if job.owner else []
        holder = " or ".join(sorted(one.name for one in workers if one.owner == job.owner))
    _show_record(job, record["why"], now, holder)
    _show_body("data", record["data"])
    if job.has_result:
        _show_body("result", record["result"])
    _show_steps(timeline)
    _show_log(job, record["log"])
    _show_errors(job, now)
    _show_children(job, children, now)


def _finished(job: "Job") -> bool:
    return str(job.ended) == "FINISHED"


def _children(queue: "Queue", job: "Job") -> "list[Job]":
    tally = job.children
    if not _live(tally):
        return []
    return queue.jobs(parent=job.id, limit=SHOWN_CHILDREN)


def _show_record(job: "Job", reason: str, now: int, holder: str) -> None:
    """The fields that have a value, one per line."""
    click.echo(f"job {job.id}: {clean(job.task)}, {painted(str(job.state))}")
    say(f"  {reason}\n")
    lines = {label: text for label, text in (*_where(job, holder), *_times(job, now), *_rules(job)) if text}
    width = max(map(len, lines))
    for label, text in lines.items():
        say(f"  {label:<{width}}  {text}")


def _where(job: "Job", holder: str) -> Lines:
    from ..records import key_text, task_of

    yield "tenant", job.tenant
    yield "place", "" if job.place.name in ("DONE", str(job.state)) else job.place.name
    yield "parent", str(job.parent_id or "")
    yield "then", f"{task_of(job.then)}, job {job.then_id}" if job.then else ""
    yield "on failure", task_of(job.on_failure) or ""
    yield "schedule", job.schedule
    yield "domain", key_text(job.domain)
    yield "unique", key_text(job.unique)
    yield "trace", job.trace_id
    if job.owner:
        yield "worker" if holder else "owner", f"{holder or job.owner}, claim {job.claim}"
    if job.progress is not None:
        yield "progress", f"{job.progress.fraction:.0%} {job.progress.note}"
    if job.cancel_requested:
        yield "asked to stop", "yes"


def _times(job: "Job", now: int) -> Lines:
    moments = {
        "added": job.created_at,
        "due": job.run_at,
        "started": job.started_at,
        "ended": job.finished_at,
    }
    moments |= {"leased until": job.lease_until, "expires": job.expires_at}
    for label, at in moments.items():
        yield label, f"{iso(at)}  ({since(at, now)})" if at else ""


def _rules(job: "Job") -> Lines:
    from ...core.defaults import source_of

    yield "priority", str(job.priority)
    for label, option, text in _options(job):
        yield label, f"{text}  ({_SOURCES[source_of(job, option)]})" if text else ""


def _options(job: "Job") -> Iterator[tuple[str, str, str]]:
    """The options that may come from the task: label, option and text; "" if it is not shown."""
    from ...core.defaults import source_of

    yield "attempts", "attempts", f"{job.attempts} of {job.max_attempts or 'any number'}"
    losses = f"{job.losses} of {job.max_losses or 'any number'}"
    yield "losses", "losses", losses if job.losses or source_of(job, "losses") != "default" else ""
    backoff = f"{span(job.backoff.first_ms)} to {span(job.backoff.most_ms)}"
    yield "backoff", "backoff", backoff if source_of(job, "backoff") != "default" else ""
    yield "timeout", "timeout", span(job.timeout_ms) if job.timeout_ms else ""
    after = job.retry_after
    yield "retry after", "retry_after", after if isinstance(after, str) else span(after) if after else ""
    yield "repeat", "repeat", job.repeat


def _show_body(name: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    rest = len(text) - SHOWN_CHARS
    say(f"\n{name}:")
    say(_indented(text[:SHOWN_CHARS]))
    if rest > 0:
        say(f"  … and {counted(rest, 'more character')}; --json shows all")


def _show_steps(steps: "list[StepResult]") -> None:
    from ...core.notes import entry_error, entry_name

    if not steps:
        return
    say(f"\nsteps, {counted(len(steps), 'entry', 'entries')}:")
    if len(steps) > SHOWN_LINES:
        say(f"  … {len(steps) - SHOWN_LINES:,} before; --json shows all")
    for step in steps[-SHOWN_LINES:]:
        text = entry_error(step) or step.result
        if step.kind == "sleep" or (step.until and not step.ended):
            text = f"until {iso(step.until)}"
        elif step.jobs and not step.ended:
            text = f"waits for {counted(len(step.jobs), 'job')}"
        line = f"  {step.number:>3}  {iso(step.at)}  {entry_name(step)}  {cut(text, SHOWN_RESULT)}"
        say(line.rstrip())


def _show_log(job: "Job", lines: list[dict[str, Any]]) -> None:
    if not lines:
        return
    say(f"\nlog, {counted(job.log_lines, 'line')}:")
    shown = lines[-SHOWN_LINES:]
    if len(shown) < job.log_lines:
        say(f"  … {counted(job.log_lines - len(shown), 'line')} before; --json shows all that are kept")
    for line in shown:
        say(f"  {line['at']}  claim {line['claim']}  {line['text']}")


def _show_errors(job: "Job", now: int) -> None:
    for end in job.errors:
        say(f"\n{end.code} {since(end.at, now)}, {iso(end.at)}:")
        say(_indented(end.error or "no details"))
        if end.traceback:
            say(_indented(end.traceback.rstrip()))


def _show_children(job: "Job", children: "list[Job]", now: int) -> None:
    from ..jobs import job_table

    tally = job.children
    ended = tally.kept + tally.archived
    if not _live(tally) + tally.archived:
        return
    say(f"\nchildren: {tally.pending:,} pending, {tally.failed:,} failed, {ended:,} finished or cancelled")
    if children:
        job_table(children, now)
    if _live(tally) > len(children):
        say(f"  … and more: holdfast jobs --parent {job.id}")
    if tally.archived:
        say(f"  archived: {tally.archived:,}; holdfast jobs --archived --parent {job.id}")


def _live(tally: "Children") -> int:
    return tally.pending + tally.failed + tally.kept


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
