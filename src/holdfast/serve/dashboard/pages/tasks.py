"""Tasks: how many jobs of each stand where, how fast they go and how often they fail."""

from ....core import queries as q
from ....core.bounds import HOUR_MS
from ....core.history import GetHistory, TaskEnds
from ....core.searching import ListTasks, TaskState
from .. import parts
from ..layout import form
from ..markup import Markup, el, join, user_text
from ..view import Page, View
from . import history, rows

SHOWN = 200
NUMBERS = ("Waiting", "Scheduled", "Running", "Failed", "Ended/h", "Failed share", "Mean run")


async def tasks(view: View) -> Page:
    """All tasks that have jobs."""
    found: list[TaskState] = await view.ask(ListTasks(tenant=view.tenant, limit=SHOWN + 1))
    pauses: list[q.Paused] = await view.ask(q.ListPauses(tenant=view.tenant))
    buckets = await view.ask(GetHistory(tenant=view.tenant, span_ms=HOUR_MS))
    lead = "Rate, failed share and mean run are of the last hour." if found else None
    body = join(parts.heading("Tasks", lead=lead), _table(view, found, pauses, history.by_task(buckets)))
    return Page(title="Tasks", body=body, section="tasks")


def _table(
    view: View,
    found: list[TaskState],
    pauses: list[q.Paused],
    ends: dict[tuple[str, str], TaskEnds],
) -> Markup:
    if not found:
        return parts.empty("No tasks yet", "A task is listed here once it has a job.")
    paused = {(whose, task) for whose, task, domain in pauses if domain is None}
    listed = [_row(view, one, paused, ends.get((one.tenant, one.task), TaskEnds())) for one in found[:SHOWN]]
    head = ("Task", "Waiting", "Oldest waits", "Scheduled", "Running", "Failed")
    table = parts.table(
        (*head, "Ended/h", "Failed share", "Mean run", ""), listed, caption="Tasks", right=NUMBERS
    )
    more = el("p", f"Only the first {SHOWN} tasks are shown.", class_="note") if len(found) > SHOWN else None
    return join(table, more)


def _row(
    view: View, one: TaskState, paused: set[tuple[str | None, str | None]], ends: TaskEnds
) -> tuple[object, ...]:
    is_paused = any((whose, task) in paused for whose in (None, one.tenant) for task in (None, one.task))
    runs = ends.finished + ends.failed + ends.retried
    name = join(
        parts.task_link(view, one.task),
        el("span", " ", user_text(one.tenant), class_="note") if one.tenant else None,
        parts.badge("paused", "paused") if is_paused else None,
    )
    failed = el("a", parts.number(one.failed), href=_failed(view, one)) if one.failed else "0"
    return (
        name,
        parts.number(one.waiting),
        rows.waits(one, view.now_ms),
        parts.number(one.scheduled),
        parts.number(one.running),
        failed,
        parts.number(ends.finished + ends.failed + ends.cancelled),
        f"{(ends.failed + ends.retried) / runs:.1%}" if runs else "–",
        parts.span(ends.run_ms // runs) if runs else "–",
        _pause(view, one, is_paused=is_paused) if view.can_manage else None,
    )


def _failed(view: View, one: TaskState) -> str:
    return view.url("/jobs", q=f"{parts.qualifier('task', one.task)} state:failed")


def _pause(view: View, one: TaskState, *, is_paused: bool) -> Markup:
    label = "Resume" if is_paused else "Pause"
    return form(
        view,
        "/tasks/pause",
        el("input", type="hidden", name="task", value=one.task),
        el("input", type="hidden", name="on", value="no" if is_paused else "yes"),
        el("button", label, type="submit", class_="small", aria_label=f"{label} {one.task}"),
    )
