"""Tasks: how many jobs of each stand where, how fast they go and how often they fail."""

from ....core import queries as q
from ....core.bounds import HOUR_MS
from ....core.history import Bucket, GetHistory, TaskEnds
from ....core.queries import ListTasks, TaskState
from .. import parts
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View
from . import history

WAIT, RUN = "Wait p50 / p95 / p99", "Run p50 / p95 / p99"
NUMBERS = ("Waiting", "Scheduled", "Running", "Failed", "Ended/h", "Failed share", WAIT, RUN)


async def tasks(view: View) -> Page:
    """A page of the tasks that have jobs."""
    asked = ListTasks(
        tenant=view.tenant, after_tenant=view.param("after_tenant"), after_task=view.param("after")
    )
    found, following = await parts.page(view, asked)
    pauses: list[q.Paused] = await view.ask(q.ListPauses(tenant=view.tenant))
    buckets = await view.ask(GetHistory(tenant=view.tenant, span_ms=HOUR_MS, timings=True))
    lead = "Rate, failed share and percentiles are of the last hour." if found else None
    body = join(
        parts.heading("Tasks", lead=lead),
        _table(view, found, pauses, buckets),
        history.unlisted_note(buckets),
        parts.turn(view, "/tasks", following, after="after_task", after_tenant="after_tenant"),
    )
    return Page(title="Tasks", body=body, section="tasks")


async def task(view: View) -> Page:
    """How the runs of a task, or of all, ended over time, and how long they waited and took."""
    name = view.param("task")
    jobs = view.url("/jobs", q=parts.qualifier("task", name) if name else None)
    body = join(
        el("p", el("a", "Tasks", href=view.url("/tasks")), class_="path"),
        parts.heading(user_text(name) if name else "All tasks", el("a", "Jobs", href=jobs, class_="button")),
        await history.card(view, "/task", name or None),
    )
    return Page(title=f"Task {name}" if name else "All tasks", body=body, section="tasks")


def _chart(view: View, one: TaskState) -> str:
    return view.url("/task", task=one.task, tenant=parts.pinned(view, one.tenant))


def _table(
    view: View,
    found: list[TaskState],
    pauses: list[q.Paused],
    buckets: list[Bucket],
) -> Markup:
    if not found:
        return parts.empty("No tasks yet", "A task is listed here once it has a job.")
    ends, is_complete = history.by_task(buckets), not any(bucket.unlisted for bucket in buckets)
    listed = []
    for one in found:
        known = ends.get((one.tenant, one.task), TaskEnds() if is_complete else None)
        listed.append(_row(view, one, pauses, known, "" if is_complete else "≥ "))
    head = ("Task", "Waiting", "Oldest waits", "Scheduled", "Running", "Failed")
    return parts.table(
        (*head, "Ended/h", "Failed share", WAIT, RUN, ""), listed, caption="Tasks", right=NUMBERS
    )


def _row(
    view: View, one: TaskState, pauses: list[q.Paused], ends: TaskEnds | None, least: str
) -> tuple[object, ...]:
    """The cells of a task; `ends` None: it is not known how its runs ended. `least` is "≥ " if in part."""
    paused = parts.pauses_of(pauses, one.tenant, one.task)
    name = join(
        parts.task_link(view, one.task, one.tenant),
        parts.tenant_note(one.tenant),
        [parts.pause_badge(pause) for pause in paused],
        " ",
        el("a", "chart", href=_chart(view, one), class_="note", aria_label=f"chart of {one.task}"),
    )
    failed = el("a", parts.number(one.failed), href=_failed(view, one)) if one.failed else "0"
    return (
        name,
        parts.number(one.waiting),
        parts.waits(one.first_due_at, view.now_ms),
        parts.number(one.scheduled),
        parts.number(one.running),
        failed,
        *_ended(ends, least),
        _pauses(view, one, paused) if view.can_manage else None,
    )


def _ended(ends: TaskEnds | None, least: str) -> tuple[str, ...]:
    """How many runs ended, the share that failed, and how long they waited and took."""
    if ends is None:
        return ("not known",) * 4
    runs = ends.finished + ends.failed + ends.retried
    return (
        least + parts.number(ends.finished + ends.failed + ends.cancelled),
        f"{(ends.failed + ends.retried) / runs:.1%}" if runs else "–",
        history.percentile_text(ends.waits),
        history.percentile_text(ends.runs),
    )


def _failed(view: View, one: TaskState) -> str:
    words = f"{parts.qualifier('task', one.task)} state:failed"
    return view.url("/jobs", q=words, tenant=parts.pinned(view, one.tenant))


def _pauses(view: View, one: TaskState, paused: list[q.Paused]) -> Markup:
    """A button to end each pause, and one that pauses this tenant's task if nothing does yet."""
    own: q.Paused = (one.tenant, one.task, None)
    ends = [_pause(view, one, pause, on=False) for pause in paused if view.grant.tenant in (None, pause[0])]
    return el("div", ends, None if paused else _pause(view, one, own, on=True), class_="actions")


def _pause(view: View, one: TaskState, pause: q.Paused, *, on: bool) -> Markup:
    tenant, task, _ = pause
    label = "Pause" if on else "Resume"
    what = " for all tenants" if tenant is None else "" if task is not None else f" tenant {tenant or 'none'}"
    named = f"{label}{what} {one.task}" + (f" of {one.tenant}" if one.tenant else "")
    fields = hidden(tenant=tenant, task=task, on="yes" if on else "no")
    return form(view, "/tasks/pause", fields, parts.button(f"{label}{what}", kind="small", said=named))
