"""Workers that are alive, and the jobs that run."""

from ....core import queries as q
from ....core.worker import Worker
from .. import parts
from ..layout import form
from ..markup import Markup, el, join, user_text
from ..view import Page, View
from . import rows

SHOWN_TASKS = 8


async def workers(view: View) -> Page:
    """All workers, and the running jobs whose leases end first."""
    found: q.Overview = await view.ask(q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None))
    alive = len(found.workers)
    lead = f"{alive} worker{'s' if alive != 1 else ''}, {len(found.running)} running jobs." if alive else None
    body = join(parts.heading("Workers", lead=lead), _table(view, found), _running(view, found))
    return Page(title="Workers", body=body, section="workers")


def _table(view: View, found: q.Overview) -> Markup:
    if not found.workers:
        return parts.empty(
            "No worker is alive", join("Start one: ", el("code", "holdfast worker app:queue --store URL"))
        )
    listed = [
        (
            join(
                user_text(one.name),
                parts.badge("stopping", "paused") if one.stopping else None,
                el("span", f" {one.host} · {one.pid}" if one.pid else "", class_="note"),
            ),
            _tasks(one),
            f"{one.processes} × {one.threads}",
            parts.number(one.running),
            parts.number(one.done),
            parts.moment(one.started_at, found.now_ms),
            parts.moment(one.said_at, found.now_ms),
            _stop(view, one) if view.can_manage and not one.stopping else None,
        )
        for one in found.workers
    ]
    return parts.table(
        ("Worker", "Tasks", "Processes × threads", "Running", "Done", "Started", "Last seen", ""),
        listed,
        caption="Workers",
        right=("Running", "Done"),
    )


def _stop(view: View, one: Worker) -> Markup | None:
    if view.grant.tenant is not None and any(served.tenant != view.grant.tenant for served in one.serves):
        return None
    button = el("button", "Stop", type="submit", class_="small danger", aria_label=f"Stop {one.name}")
    field = el("input", type="hidden", name="name", value=one.name)
    return form(view, "/workers/stop", field, button, data_confirm=f"Stop worker {one.name}?")


def _tasks(one: Worker) -> Markup:
    names = [task for served in one.serves for task in served.tasks]
    shown = [el("li", user_text(name)) for name in names[:SHOWN_TASKS]]
    more = el("li", f"and {len(names) - SHOWN_TASKS} more") if len(names) > SHOWN_TASKS else None
    return el("ul", shown, more, class_="chips")


def _running(view: View, found: q.Overview) -> Markup:
    if not found.running:
        return parts.card("Running jobs", parts.empty("Nothing runs", "Jobs that run now are shown here."))
    listed = [
        (
            parts.job_link(view, job.id),
            parts.task_link(view, job.task, job.tenant),
            str(job.owner),
            parts.moment(job.started_at, found.now_ms),
            parts.moment(job.lease_until, found.now_ms),
            rows.progress(job),
        )
        for job in found.running
    ]
    table = parts.table(
        ("Job", "Task", "Owner", "Started", "Lease ends", "Progress"), listed, caption="Running jobs"
    )
    return parts.card("Running jobs", table)
