"""Workers that are alive, and the jobs that run."""

from ....core import queries as q
from ....core.units import counted
from ....core.worker import Worker
from .. import parts
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View

SHOWN_TASKS = 8


async def workers(view: View) -> Page:
    """A page of the workers, and the running jobs whose leases end first."""
    asked = q.ListWorkers(tenant=view.tenant, after_name=view.param("after"))
    listed, following = await parts.page(view, asked)
    found: q.Overview = await view.ask(q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None))
    body = join(
        parts.heading("Workers", lead=_lead(found)),
        _table(view, listed),
        parts.turn(view, "/workers", following, after="after_name"),
        _running(view, found),
    )
    return Page(title="Workers", body=body, section="workers")


def _lead(found: q.Overview) -> str:
    running = sum(counts.get("RUNNING", 0) for counts in found.tasks.values())
    return f"{counted(found.worker_count, 'worker')}, {counted(running, 'running job')}."


def _table(view: View, found: list[Worker]) -> Markup:
    if not found:
        return parts.empty(
            "No worker is alive", join("Start one: ", el("code", "holdfast worker app:queue --store URL"))
        )
    listed = [
        (
            join(
                user_text(one.name),
                parts.badge("stopping", "paused") if one.stopping else None,
                el("span", " ", user_text(one.host), f" · {one.pid}", class_="note") if one.pid else None,
            ),
            _tasks(one),
            f"{one.processes} × {one.threads}",
            parts.number(one.running),
            parts.number(one.done),
            parts.moment(one.said_at, view.now_ms),
            parts.moment(one.started_at, view.now_ms),
            _stop(view, one) if view.can_manage and not one.stopping else None,
        )
        for one in found
    ]
    return parts.table(
        ("Worker", "Tasks", "Processes × threads", "Running", "Done", "As of", "Started", ""),
        listed,
        caption="Workers",
        right=("Running", "Done"),
    )


def _stop(view: View, one: Worker) -> Markup | None:
    if view.grant.tenant is not None and any(served.tenant != view.grant.tenant for served in one.serves):
        return None
    button = parts.button("Stop", kind="small danger", said=f"Stop {one.name}")
    asked = f"Stop worker {one.name}?"
    return form(view, "/workers/stop", hidden(name=one.name), button, data_confirm=asked)


def _tasks(one: Worker) -> Markup:
    names = [task for served in one.serves for task in served.tasks]
    shown = [el("li", user_text(name)) for name in names[:SHOWN_TASKS]]
    more = el("li", f"and {len(names) - SHOWN_TASKS} more") if len(names) > SHOWN_TASKS else None
    return el("ul", shown, more, class_="chips")


def _running(view: View, found: q.Overview) -> Markup:
    if not found.running:
        return parts.card("Running jobs", parts.no_running(view, found))
    names = {one.owner: one.name for one in found.workers if one.owner}
    listed = [
        (
            parts.job_link(view, job.id),
            parts.task_link(view, job.task, job.tenant),
            user_text(names.get(job.owner) or parts.unlisted(job.owner)),
            parts.moment(job.started_at, found.now_ms),
            parts.moment(job.lease_until, found.now_ms),
            parts.progress(job),
        )
        for job in found.running[: parts.PAGE]
    ]
    table = parts.table(
        ("Job", "Task", "Owner", "Started", "Lease ends", "Progress"), listed, caption="Running jobs"
    )
    return parts.card("Running jobs", table, aside=el("a", "All", href=view.url("/jobs", q="state:running")))
