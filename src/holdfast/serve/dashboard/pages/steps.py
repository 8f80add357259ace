"""What a job has done and waits for, on its page; the forms that send a signal and requeue from a step."""

from typing import Any

from ....core import queries as q
from ....core import rules
from ....core.job import Job, Place
from ....core.notes import StepResult
from ....core.units import counted
from .. import json_view, parts
from ..layout import form
from ..markup import Markup, el, join, user_text
from ..view import View

# How many entries are shown, the last ones, and how much of each.
SHOWN, SHOWN_CHARS = 100, 500


def last_steps(found: Job) -> q.GetSteps | None:
    """The query for the last entries of a job; None: it has none."""
    if not found.steps:
        return None
    return q.GetSteps(job_id=found.id, after=max(found.steps - SHOWN, 0), limit=SHOWN)


def steps_card(view: View, found: Job, steps: list[StepResult] | None, *, reveal: bool) -> Markup | None:
    """The entries of a job, each with its time and result; of a FAILED job with a button to go back to it."""
    if not steps:
        return None
    goes_back = view.can_manage and "requeue" in rules.offered_verbs(found) and found.place is Place.DONE
    shown = [
        (
            str(step.number),
            _name(step),
            parts.moment(step.at, view.now_ms),
            _result(view, step, reveal),
            *((_back_to(view, found, step),) if goes_back else ()),
        )
        for step in steps
    ]
    columns = ("", "Step", "When", "Result", *(("Again",) if goes_back else ()))
    cut = found.steps - len(steps)
    note = el("span", f"{parts.number(cut)} earlier ones are not shown", class_="note") if cut else None
    table = parts.table(columns, shown, caption="What the job has done and waits for")
    return parts.card("Steps", table, aside=note)


def signal_form(view: View, found: Job) -> Markup | None:
    """The form that sends the signal that a job waits for."""
    wait = found.waits_for
    if not rules.waits_for_signal(found) or wait is None:
        return None
    inside = join(
        el("input", type="hidden", name="name", value=wait.name),
        el("label", "Data, as JSON", for_="signal-data"),
        el(
            "textarea",
            view.typed("data", "null"),
            id="signal-data",
            name="data",
            rows="3",
            spellcheck="false",
        ),
        el("div", parts.button("Send the signal", kind="primary"), class_="actions"),
    )
    title = join("Waits for the signal ", user_text(wait.name))
    return parts.card(title, form(view, f"/jobs/{found.id}/signal", inside, class_="fields"))


def _back_to(view: View, found: Job, step: StepResult) -> Markup:
    return form(
        view,
        f"/jobs/{found.id}/requeue",
        el("input", type="hidden", name="from", value=str(step.number)),
        parts.button("From here"),
        data_confirm=f"Do step {step.number} and all after it again?",
    )


def _name(step: StepResult) -> Markup:
    kind = {"step": "", "error": "failed: "}.get(step.kind, f"{step.kind} ")
    took = f", {parts.span(step.took_ms)}" if step.took_ms else ""
    return join(kind, user_text(step.name), took)


def _result(view: View, step: StepResult, reveal: bool) -> Any:
    """The result of an entry, or what it waits for."""
    if step.kind == "sleep" or (step.until and not step.ended):
        return join("until ", parts.moment(step.until, view.now_ms))
    if not step.result:
        return f"waits for {counted(len(step.jobs), 'job')}" if step.jobs else "waits"
    text = step.result if reveal else json_view.redact_named(step.name, step.result)
    return user_text(text[:SHOWN_CHARS])
