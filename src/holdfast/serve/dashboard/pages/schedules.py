"""Schedules: what is added when, and what was."""

from ....core import queries as q
from ....core.schedule import Schedule, upcoming
from ....core.units import counted
from .. import parts, tenants
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View

NEXT = 3


async def schedules(view: View) -> Page:
    """A page of the schedules of a tenant."""
    asked = q.ListSchedules(tenant=view.one_tenant, after_name=view.param("after"))
    found, following = await parts.page(view, asked)
    body = join(
        parts.heading("Schedules", lead=_lead(found) if found and parts.is_whole(view, following) else None),
        tenants.hint(view),
        _table(view, found),
        parts.turn(view, "/schedules", following, after="after_name"),
    )
    return Page(title="Schedules", body=body, section="schedules", live="schedules")


def _lead(found: list[q.Planned]) -> str:
    paused = sum(one.schedule.paused for one in found)
    return f"{counted(len(found), 'schedule')}, {paused:,} paused."


def _table(view: View, found: list[q.Planned]) -> Markup:
    if not found:
        hint = el("code", "holdfast schedule nightly report --cron '0 2 * * *'")
        return parts.empty(f"No schedules{tenants.whose(view)}", join("Make one: ", hint))
    listed = [
        (
            join(
                user_text(one.schedule.name),
                parts.badge("paused", "paused") if one.schedule.paused else None,
                parts.badge("ended", "cancelled") if one.schedule.ended else None,
            ),
            parts.task_link(view, one.task, one.schedule.tenant),
            when(one.schedule),
            _next(view, one.schedule),
            _history(view, one.schedule),
            _actions(view, one.schedule) if view.can_manage else None,
        )
        for one in found
    ]
    return parts.table(("Schedule", "Task", "When", "Next runs", "So far", ""), listed, caption="Schedules")


def when(schedule: Schedule) -> Markup:
    """The times of a schedule, as they were given."""
    text = schedule.cron or schedule.repeat or f"every {parts.span(schedule.every_ms)}"
    return join(el("code", text), el("span", f" {schedule.tz}", class_="note") if schedule.cron else None)


def _next(view: View, schedule: Schedule) -> Markup:
    moments = upcoming(schedule, view.now_ms, NEXT)
    if not moments:
        return el("span", "none known", class_="none")
    return el("ul", [el("li", parts.moment(at, view.now_ms)) for at in moments], class_="plain")


def _history(view: View, schedule: Schedule) -> Markup:
    skipped = f", {parts.number(schedule.skipped)} skipped" if schedule.skipped else ""
    jobs = view.url("/jobs", q=parts.qualifier("schedule", schedule.name))
    return join(
        el("a", counted(schedule.fired, "run"), href=jobs),
        skipped,
        el("span", " · last ", parts.job_link(view, schedule.last_id, "job"), " ")
        if schedule.last_id
        else None,
        parts.moment(schedule.last_at, view.now_ms) if schedule.last_at else None,
    )


def _actions(view: View, schedule: Schedule) -> Markup:
    name, field = schedule.name, hidden(name=schedule.name)
    label, on = ("Resume", "no") if schedule.paused else ("Pause", "yes")
    run = parts.button("Run now", kind="small", said=f"Run now: {name}")
    pause = parts.button(label, kind="small", said=f"{label} {name}")
    gone = parts.button("Delete", kind="small danger", said=f"Delete {name}")
    return el(
        "div",
        form(view, "/schedules/run", field, run),
        form(view, "/schedules/pause", field, hidden(on=on), pause),
        form(view, "/schedules/delete", field, gone, data_confirm=f"Delete schedule {name}?"),
        class_="actions",
    )
