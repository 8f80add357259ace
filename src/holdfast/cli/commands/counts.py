"""`holdfast counts`: how many jobs there are."""

from collections import Counter

import click

from ..output import NOTHING, emit, say, since, table
from ..records import pause_text, paused
from ..session import Session, now_ms, settings
from ..words import STATES


@click.command()
@settings(create=True)
@click.pass_obj
def counts(session: Session) -> None:
    """Count jobs by task and state, including archived jobs."""
    from ..records import job_record

    with session.existing() as queue:
        tasks = queue.counts()
        oldest = queue.jobs(state="QUEUED", limit=1) if _waiting(tasks) else []
        stopped = paused(queue)
        now = now_ms(queue)
    totals: Counter[str] = Counter()
    for row in tasks.values():
        totals.update(row)
    if session.as_json:
        first = job_record(oldest[0]) if oldest else None
        texts = [pause_text(one) for one in stopped]
        emit({"tasks": tasks, "totals": dict(totals), "oldest_queued": first, "paused": texts})
        return
    _show(tasks, totals)
    if oldest:
        say(f"\noldest queued: {oldest[0].id}, {oldest[0].task}, added {since(oldest[0].created_at, now)}")
    for one in stopped:
        say(f"paused: {pause_text(one)}")


def _waiting(tasks: dict[str, dict[str, int]]) -> bool:
    return any(row.get("QUEUED") for row in tasks.values())


def _show(tasks: dict[str, dict[str, int]], totals: "Counter[str]") -> None:
    if not tasks:
        say("no jobs")
        return
    states = [state for state in STATES if totals[state]]
    rows = [_row(task, row, states) for task, row in sorted(tasks.items())]
    if len(rows) > 1:
        rows.append(_row("TOTAL", totals, states))
    table(("TASK", *states), rows, right=states)


def _row(name: str, row: dict[str, int], states: list[str]) -> tuple[str, ...]:
    return (name, *(f"{row[state]:,}" if row.get(state) else NOTHING for state in states))
