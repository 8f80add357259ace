"""Tasks: how many jobs of each stand where, and whether it is paused."""

from ....core import queries as q
from .. import parts
from ..layout import form
from ..markup import Markup, el, join
from ..view import Page, View

SHOWN = 200
COLUMNS = ("Waiting", "Scheduled", "Running", "Paused", "Failed", "Finished")


async def tasks(view: View) -> Page:
    """All tasks that have jobs."""
    found: q.Overview = await view.ask(q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None))
    lead = f"{len(found.tasks)} tasks have jobs." if found.tasks else None
    body = join(parts.heading("Tasks", lead=lead), _table(view, found))
    return Page(title="Tasks", body=body, section="tasks")


def _table(view: View, found: q.Overview) -> Markup:
    if not found.tasks:
        return parts.empty("No tasks yet", "A task is listed here once it has a job.")
    paused = {task for whose, task, domain in found.pauses if domain is None and whose in (None, view.tenant)}
    listed = sorted(found.tasks.items(), key=lambda one: (-one[1].get("WAITING", 0), one[0]))
    rows = []
    for task, counts in listed[:SHOWN]:
        ended = counts.get("FINISHED", 0) + counts.get("FAILED", 0)
        share = f"{counts.get('FAILED', 0) / ended:.1%}" if ended else "–"
        is_paused = task in paused
        rows.append(
            (
                join(parts.task_link(view, task), parts.badge("paused", "paused") if is_paused else None),
                *(parts.number(counts.get(name.upper(), 0)) for name in COLUMNS),
                share,
                _pause(view, task, is_paused=is_paused) if view.can_manage else None,
            )
        )
    table = parts.table(
        ("Task", *COLUMNS, "Failed share", ""), rows, caption="Tasks", right=(*COLUMNS, "Failed share")
    )
    more = el("p", f"{len(listed) - SHOWN} more tasks are not shown.", class_="note")
    return join(table, more if len(listed) > SHOWN else None)


def _pause(view: View, task: str, *, is_paused: bool) -> Markup:
    label = "Resume" if is_paused else "Pause"
    return form(
        view,
        "/tasks/pause",
        el("input", type="hidden", name="task", value=task),
        el("input", type="hidden", name="on", value="no" if is_paused else "yes"),
        el("button", label, type="submit", class_="small", aria_label=f"{label} {task}"),
    )
