"""The first page: throughput, waiting jobs, workers, jobs that are held back and jobs that failed."""

from heapq import nsmallest

from ....core import queries as q
from ....core.job import Job, State
from ....core.limits import limit_text
from .. import parts, tenants
from ..markup import Markup, el, join, user_text
from ..view import Page, View
from . import history

SHOWN_TASKS, SHOWN_JOBS, SHOWN_LIMITS = 12, 8, 6


async def overview(view: View) -> Page:
    """The overview."""
    found: q.Overview = await view.ask(q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None))
    failed = await parts.newest(view, q.JobFilter(tenant=view.tenant, state=State.FAILED), SHOWN_JOBS)
    body = join(
        parts.heading("Overview", lead=_lead(view, found)),
        _tiles(view, found),
        await history.card(view),
        _tasks(view, found),
        el("div", _running(view, found), _workers(view, found), class_="columns"),
        await _limits(view),
        _failures(view, failed),
    )
    return Page(title="Overview", body=body, section="overview")


def _lead(view: View, found: q.Overview) -> str:
    waiting, running = _sum(found, "WAITING"), _sum(found, "RUNNING")
    if not found.count_all():
        return f"There are no jobs{tenants.whose(view) if view.tenant else ''} yet."
    if not found.worker_count:
        return f"No worker is alive. {parts.number(waiting)} jobs wait."
    alive = "1 worker is" if found.worker_count == 1 else f"{parts.number(found.worker_count)} workers are"
    runs = "1 job runs" if running == 1 else f"{parts.number(running)} jobs run"
    return f"{alive} alive, {runs}, {parts.number(waiting)} wait."


def _sum(found: q.Overview, name: str) -> int:
    return sum(counts.get(name, 0) for counts in found.tasks.values())


def _tiles(view: View, found: q.Overview) -> Markup:
    shown = (
        ("Waiting", "WAITING", "waiting", "state:ready"),
        ("Scheduled", "SCHEDULED", "scheduled", "state:scheduled"),
        ("Running", "RUNNING", "running", "state:running"),
        ("Failed", "FAILED", "failed", "state:failed"),
        ("Finished", "FINISHED", "finished", "state:finished"),
    )
    tiles = [
        parts.tile(label, parts.number(_sum(found, name)), colour=colour, href=view.url("/jobs", q=search))
        for label, name, colour, search in shown
    ]
    return el("div", tiles, class_="tiles")


def _tasks(view: View, found: q.Overview) -> Markup:
    """The tasks with the most waiting jobs."""
    if not found.tasks:
        hint = join("Add one: ", el("code", 'holdfast add resize \'{"path": "a.png"}\''))
        return parts.card("Tasks", parts.empty("No jobs yet", hint))
    # A task of all tenants is paused by what pauses it for all.
    whose = view.tenant if view.has_tenants else view.one_tenant
    table = parts.table(
        ("Task", "Waiting", "Oldest waits", "Scheduled", "Running", "Failed", "Finished"),
        [
            (
                join(
                    el("a", user_text(task), href=view.url("/jobs", q=parts.qualifier("task", task))),
                    [parts.pause_badge(pause) for pause in parts.pauses_of(found.pauses, whose, task)],
                ),
                _count(counts.get("WAITING", 0)),
                parts.waits(found.first_due.get(task, 0), found.now_ms),
                *(_count(counts.get(name, 0)) for name in ("SCHEDULED", "RUNNING", "FAILED", "FINISHED")),
            )
            for task, counts in nsmallest(SHOWN_TASKS, found.tasks.items(), key=_load)
        ],
        caption="Jobs by task",
        right=("Waiting", "Scheduled", "Running", "Failed", "Finished"),
    )
    more = el("a", "All tasks", href=view.url("/tasks"))
    return parts.card("Tasks", table, aside=more)


def _load(item: tuple[str, dict[str, int]]) -> tuple[int, int, str]:
    """What the busiest task has the least of."""
    task, counts = item
    return -counts.get("WAITING", 0), -counts.get("RUNNING", 0), task


def _count(count: int) -> Markup:
    return el("span", parts.number(count), class_=None if count else "none")


def _running(view: View, found: q.Overview) -> Markup:
    if not found.running:
        return parts.card("Running", parts.no_running(view, found))
    table = parts.table(
        ("Job", "Task", "Since", "Progress"),
        [
            (
                parts.job_link(view, job.id),
                user_text(job.task),
                parts.moment(job.started_at, found.now_ms),
                parts.progress(job),
            )
            for job in found.running[:SHOWN_JOBS]
        ],
        caption="Jobs that run",
    )
    return parts.card("Running", table, aside=el("a", "All", href=view.url("/jobs", q="state:running")))


def _workers(view: View, found: q.Overview) -> Markup:
    if not found.workers:
        hint = join("Start one: ", el("code", "holdfast worker app:queue"))
        return parts.card("Workers", parts.empty("No worker is alive", hint))
    table = parts.table(
        ("Worker", "Running", "As of", "Since"),
        [
            (
                user_text(one.name),
                parts.number(one.running),
                parts.moment(one.said_at, found.now_ms),
                parts.moment(one.started_at, found.now_ms),
            )
            for one in found.workers[:SHOWN_JOBS]
        ],
        caption="Workers that are alive",
        right=("Running",),
    )
    return parts.card("Workers", table, aside=el("a", "All", href=view.url("/workers")))


async def _limits(view: View) -> Markup | None:
    """The limits that hold jobs back now."""
    asked = q.ListLimits(tenant=view.one_tenant, holding=True, limit=SHOWN_LIMITS)
    found: list[q.LimitLoad] = await view.ask(asked)
    if not found:
        return None
    table = parts.table(
        ("Domain", "Limit", "Running", "Held back"),
        [
            (
                user_text(one.domain.decode(errors="replace")),
                limit_text(one.limit),
                parts.number(one.running),
                parts.number(one.held),
            )
            for one in found
        ],
        caption="Limits that hold jobs back",
        right=("Running", "Held back"),
    )
    return parts.card("Limits that hold jobs back", table, aside=el("a", "All", href=view.url("/limits")))


def _failures(view: View, failed: list[Job]) -> Markup:
    if not failed:
        return parts.card(
            "Recent failures", parts.empty("No failures", "Jobs that have failed for good are shown here.")
        )
    table = parts.table(
        ("Job", "Task", "Failed", "Why"),
        [
            (
                parts.job_link(view, job.id),
                parts.task_link(view, job.task, job.tenant),
                parts.moment(job.finished_at, view.now_ms),
                el("span", user_text(parts.why_failed(job)), class_="cut"),
            )
            for job in failed
        ],
        caption="Jobs that failed last",
    )
    return parts.card(
        "Recent failures", table, aside=el("a", "All", href=view.url("/jobs", q="state:failed"))
    )
