"""One job: why it is where it is, its data, runs, log, result and family, and what can be done with it."""

import asyncio
from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from ....core import commands as c
from ....core import ids, rules
from ....core import queries as q
from ....core.bounds import MINUTE_MS
from ....core.errors import Forbidden, HoldfastError, NotFound
from ....core.job import Code, Job, Outcome, Place
from ....core.notes import JobLog, StepResult, entry_error, entry_name
from ....core.queries import JobPage, SearchJobs
from ....core.redaction import HIDDEN
from ....core.units import counted
from ....core.worker import Worker
from .. import parts
from ..layout import HEADERS, form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View

CHILDREN, LINES = 50, 200


async def job(view: View) -> Page:
    """The page of a job."""
    job_id = view.job_id
    found: Job = await view.ask(q.GetJob(job_id=job_id, as_claimed=True))
    why, data, ended, log, steps, owners, family = await asyncio.gather(
        view.ask(q.Explain(job_id=job_id)),
        _or_none(view, q.GetData(job_id=job_id)),
        _or_none(view, c.Await(job_id=job_id)),
        _or_none(view, q.GetLog(job_id=job_id) if found.log_lines else None),
        _or_none(view, last_steps(found)),
        _owners(view, found),
        _family(view, found),
    )
    reveal = view.can_manage and view.param("reveal") == "yes"
    whole = view.param("whole") == "yes"
    has_result = isinstance(ended, c.Ended) and found.has_result
    shown_data = await parts.show(data, reveal=reveal, whole=whole)
    shown_result = await parts.show(ended.result if has_result else None, reveal=reveal, whole=whole)
    body = join(
        _heading(view, found, str(why)),
        el(
            "div",
            el(
                "div",
                _body_card(view, "Data", shown_data),
                _body_card(view, "Result", shown_result) if has_result else None,
                _runs(view, found, owners),
                _log(view, log),
                signal_form(view, found) if view.can_manage else None,
                steps_card(view, found, steps, reveal=reveal),
                class_="wide",
            ),
            el("div", _facts(view, found, owners), _timeline(view, found), family),
            class_="columns uneven",
        ),
    )
    is_over = found.place is Place.DONE
    return Page(title=f"Job {job_id}", body=body, section="jobs", live=None if is_over else str(job_id))


async def _or_none(view: View, asked: Any) -> Any:
    """What is replied; None where there is nothing, or where it is damaged or not allowed."""
    if asked is None:
        return None
    try:
        return await view.ask(asked)
    except HoldfastError:
        return None


async def data(view: View) -> Response:
    """The data of a job as a file of plain text, as it is kept."""
    found: Any = await view.ask(q.GetData(job_id=view.job_id))
    if found is None:
        raise NotFound("data of job", view.job_id)
    if not view.can_manage and (HIDDEN in str(found) or (await parts.show(found)).hidden):
        raise Forbidden("the data has values that are hidden; a token with scope manage can download it")
    raw = found if isinstance(found, bytes) else found.encode()
    name = f'attachment; filename="job-{view.job_id}.{"bin" if isinstance(found, bytes) else "json"}"'
    return Response(raw, 200, HEADERS | {"Content-Disposition": name}, "application/octet-stream")


def _heading(view: View, found: Job, why: str) -> Markup:
    return join(
        el(
            "p",
            el("a", "Jobs", href=view.url("/jobs")),
            " / ",
            parts.task_link(view, found.task, found.tenant),
            class_="path",
        ),
        parts.heading(
            join(user_text(found.task), " ", parts.state_badge(found)),
            _actions(view, found) if view.can_manage else None,
            lead=el("span", str(found.id), class_="mono copy", data_copy=found.id),
        ),
        el("p", el("strong", "Why: "), user_text(why), class_="why"),
        el("div", parts.progress(found), class_="progress") if found.progress else None,
    )


def _actions(view: View, found: Job) -> Markup:
    shown = []
    for verb in rules.offered_verbs(found):
        label, at = label_of(found, verb), f"/jobs/{found.id}/{verb}"
        if verb == "edit":
            shown.append(el("a", label, href=view.url(at), class_="button"))
            continue
        kind = "danger" if verb in ("delete", "force_cancel") else ""
        kind = "primary" if verb == "requeue" and found.place is not Place.RUNNING else kind
        sure = "Delete this job?" if verb == "delete" else None
        shown.append(form(view, at, parts.button(label, kind=kind), data_confirm=sure))
    return join(*shown)


def label_of(found: Job, verb: str) -> str:
    """What a verb is called for a job in its state."""
    if verb == "edit":
        return "Edit and retry" if found.place is Place.DONE else "Edit"
    if verb == "requeue" and found.place is not Place.RUNNING:
        return "Retry" if found.place is Place.DONE else "Retry now" if found.attempts else "Run now"
    return verb.replace("_", " ").capitalize()


def ask_first(view: View, found: Job, verb: str) -> Page:
    """The question before a running job is taken away from its worker."""
    label = label_of(found, verb)
    happens = (
        "It goes back into the queue with its attempts reset, and the next worker runs it a second time."
        if verb == "requeue"
        else "It ends as cancelled."
    )
    body = join(
        parts.heading(f"{label} a running job", lead=user_text(found.task)),
        parts.card(
            "Are you sure?",
            el("p", "Job ", parts.job_link(view, found.id), " runs now. Its claim ends at once. ", happens),
            el(
                "p",
                "Its handler is not stopped at that moment: it may go on until its worker notices, and what "
                "it returns is dropped. To let it stop in order, use Cancel and wait.",
            ),
        ),
        form(
            view,
            f"/jobs/{found.id}/{verb}",
            hidden(sure="yes"),
            parts.button(label, kind="danger"),
            el("a", "Back", href=view.url(f"/jobs/{found.id}"), class_="button"),
            class_="actions",
        ),
    )
    return Page(title=f"{label} job {found.id}", body=body, section="jobs", live=None)


def _body_card(view: View, title: str, shown: parts.Shown) -> Markup:
    at = view.url(f"/jobs/{view.job_id}", reveal="yes")
    whole = view.url(f"/jobs/{view.job_id}", whole="yes")
    notes = join(
        el(
            "p",
            f"{parts.number(shown.hidden)} hidden. ",
            el("a", "Show", href=at) if view.can_manage else None,
            class_="note",
        )
        if shown.hidden
        else None,
        el(
            "p",
            f"{parts.number(shown.cut)} more characters. ",
            el("a", "Show all", href=whole),
            class_="note",
        )
        if shown.cut
        else None,
    )
    copy = el("button", "Copy", type="button", class_="quiet copy-text", hidden=True)
    text = el(
        "textarea", shown.text, class_="unseen copied", readonly=True, tabindex="-1", aria_hidden="true"
    )
    return parts.card(title, shown.markup, text if shown.text and not shown.cut else None, notes, aside=copy)


async def _owners(view: View, found: Job) -> dict[int, str]:
    """The names of live workers by the process that claims for them; a server may claim for several."""
    if found.outcome is None and not found.errors and found.place is not Place.RUNNING:
        return {}
    workers: list[Worker] = await _or_none(view, q.ListWorkers(tenant=view.tenant)) or []
    names: dict[int, list[str]] = {}
    for one in workers:
        names.setdefault(one.owner, []).append(one.name)
    return {owner: " or ".join(sorted(found)) for owner, found in names.items() if owner}


def _owner(owners: dict[int, str], owner: int) -> Markup:
    return user_text(owners[owner]) if owner in owners else el("span", parts.unlisted(owner))


def _runs(view: View, found: Job, owners: dict[int, str]) -> Markup | None:
    last = found.outcome
    ends = [*found.errors] + ([last] if last is not None and last not in found.errors else [])
    ends.sort(key=lambda end: end.at)
    if not ends:
        return None
    shown = [_run(view, found, one, owners) for one in reversed(ends)]
    lead = el(
        "span",
        f"{found.attempts} of {found.max_attempts} attempts"
        + (f", {found.losses} lost" if found.losses else ""),
        class_="note",
    )
    return parts.card("Runs", el("ol", shown, class_="runs", reversed=True), aside=lead)


def _run(view: View, found: Job, end: Outcome, owners: dict[int, str]) -> Markup:
    colours = {Code.OK: "finished", Code.FAILED: "failed", Code.ERROR: "failed"}
    is_last_ok = end.code in (Code.OK, Code.SUSPEND) and end is found.outcome and found.started_at
    ran_ms = max(end.at - found.started_at, 0) if is_last_ok else end.ran_ms
    trace = el("details", el("summary", "Traceback"), el("pre", user_text(end.traceback), tabindex="0"))
    return el(
        "li",
        el(
            "div",
            parts.badge(end.code.value, colours.get(end.code, "scheduled")),
            parts.moment(end.at, view.now_ms),
            el("span", f"ran {parts.span(ran_ms)} on ", _owner(owners, end.owner), class_="note")
            if end.owner
            else None,
            class_="line",
        ),
        el("pre", user_text(end.error), class_="error", tabindex="0") if end.error else None,
        trace if end.traceback else None,
    )


def _log(view: View, log: JobLog | None) -> Markup | None:
    if log is None or not log.lines:
        return None
    lines = [el("div", parts.moment(one.at, view.now_ms), user_text(one.text)) for one in log.lines[-LINES:]]
    cut = log.cut + max(len(log.lines) - LINES, 0)
    note = el("span", f"{parts.number(cut)} earlier lines are not shown", class_="note") if cut else None
    return parts.card("Log", el("div", lines, class_="log", tabindex="0", role="log"), aside=note)


def _facts(view: View, found: Job, owners: dict[int, str]) -> Markup:
    domain = None if found.domain is None else user_text(found.domain.decode(errors="replace"))
    unique = None if found.unique is None else user_text(found.unique.decode(errors="replace"))
    return parts.card(
        "Details",
        parts.facts(
            (
                ("Tenant", user_text(found.tenant) if found.tenant else None),
                ("Priority", str(found.priority)),
                ("Attempts", f"{found.attempts} of {found.max_attempts}"),
                ("Timeout", parts.span(found.timeout_ms) if found.timeout_ms else None),
                ("Domain", domain),
                ("Unique key", unique),
                ("Repeats", found.repeat),
                ("Schedule", user_text(found.schedule) if found.schedule else None),
                (
                    "Trace",
                    el("span", found.trace_id, class_="mono copy", data_copy=found.trace_id)
                    if found.trace_id
                    else None,
                ),
                (
                    "Owner",
                    join(_owner(owners, found.owner), f", claim {found.claim}")
                    if found.place is Place.RUNNING
                    else None,
                ),
                (
                    "Lease until",
                    parts.moment(found.lease_until, view.now_ms)
                    if found.place is Place.RUNNING and found.lease_until
                    else None,
                ),
                ("Expires", parts.moment(found.expires_at, view.now_ms) if found.expires_at else None),
                ("Data", join(f"{parts.number(found.size)} bytes, ", _download(view))),
                ("Follow-up job", parts.job_link(view, found.then_id) if found.then_id else None),
            )
        ),
    )


def _download(view: View) -> Markup:
    return el("a", "download", href=view.url(f"/jobs/{view.job_id}/data"))


def _timeline(view: View, found: Job) -> Markup:
    moments = (
        ("Added", found.created_at),
        ("Due", found.run_at if found.run_at != found.created_at else 0),
        ("Started", found.started_at),
        (status if (status := parts.status_of(found)[0]) else "", found.finished_at),
    )
    shown = [
        el("li", el("span", name.capitalize()), parts.moment(at, view.now_ms)) for name, at in moments if at
    ]
    return parts.card("Timeline", el("ol", shown, class_="timeline"))


async def _family(view: View, found: Job) -> Markup | None:
    """The parent and its children, of which the job is one, as a tree; also when they have ended."""
    parent: Job | None = found
    if found.parent_id:
        parent = await _or_none(view, q.GetJob(job_id=found.parent_id))
    children = [found] if parent is None else await _children(view, parent)
    if not found.parent_id and not children:
        return None
    listed = el("ul", [el("li", _relative(view, one, found)) for one in children])
    root = f"job {found.parent_id}, which is gone" if parent is None else _relative(view, parent, found)
    sums = found.children if parent is None else parent.children
    counts = {"pending": sums.pending, "failed": sums.failed, "ended": sums.kept + sums.archived}
    lead = ", ".join(f"{parts.number(count)} {name}" for name, count in counts.items())
    more = el("a", "All children", href=view.url("/jobs", q=f"parent:{parent.id}")) if parent else None
    return parts.card(
        "Family",
        el("p", lead, class_="note") if parent else None,
        el("ul", el("li", root, listed), class_="tree"),
        more if sum(counts.values()) > CHILDREN else None,
    )


def _relative(view: View, one: Job, found: Job) -> Markup:
    """A member of the family; the job itself is marked."""
    name = el("strong", "this job") if one.id == found.id else parts.job_link(view, one.id)
    return join(user_text(one.task), " ", name, " ", parts.state_badge(one))


async def _children(view: View, parent: Job) -> list[Job]:
    """The children of a job, by id: those that are live, and those that were archived with it."""
    found: list[Job] = await _or_none(view, q.ListChildren(job_id=parent.id, limit=CHILDREN)) or []
    count = min(CHILDREN - len(found), parent.children.archived)
    if count > 0:
        # They were added before it ended, so the search begins there. It takes a limited time.
        before = ids.first_at((parent.finished_at or view.now_ms) + MINUTE_MS)
        wanted = q.JobFilter(parent_id=parent.id, archived=True)
        page: JobPage | None = await _or_none(view, SearchJobs(filter=wanted, before=before, limit=count))
        found += page.jobs if page is not None else ()
    return sorted(found, key=lambda one: one.id)


def _data_field(view: View, body: Any) -> Markup:
    """The data of a job, to be edited."""
    if isinstance(body, bytes) or (body is not None and len(body) > parts.SHOWN_CHARS * 10):
        return el("p", "Data that is bytes, or very large, cannot be edited here.", class_="note")
    text = view.typed("data", body or "{}")
    return join(
        el("label", "Data, JSON", for_="data"),
        el("textarea", text, id="data", name="data", rows="16", spellcheck="false", class_="mono"),
    )


async def edit(view: View) -> Page:
    """The form that changes a job, and puts it back in the queue if it has failed. Secrets are shown."""
    if not view.can_manage:
        raise Forbidden("to edit a job needs a token with scope manage")
    found: Job = await view.ask(q.GetJob(job_id=view.job_id))
    rules.check_offered(found, "edit")
    inside = join(
        _data_field(view, await _or_none(view, q.GetData(job_id=view.job_id))),
        el("label", "Priority, 0 to 1000", for_="priority"),
        el(
            "input",
            type="number",
            id="priority",
            name="priority",
            min="0",
            max="1000",
            value=view.typed("priority", found.priority),
        ),
        el(
            "div",
            parts.button("Save and retry" if found.place is Place.DONE else "Save", kind="primary"),
            el("a", "Back", href=view.url(f"/jobs/{found.id}"), class_="button"),
            class_="actions",
        ),
    )
    after = "It is put back in the queue." if found.place is Place.DONE else "It keeps its time."
    shown = join(
        el(
            "p", el("a", "Jobs", href=view.url("/jobs")), " / ", parts.job_link(view, found.id), class_="path"
        ),
        parts.heading(label_of(found, "edit"), lead=user_text(found.task)),
        parts.card("Change", el("p", after), form(view, f"/jobs/{found.id}/edit", inside, class_="fields")),
    )
    return Page(title=f"Edit job {found.id}", body=shown, section="jobs", live=None)


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
        hidden(name=wait.name),
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
        hidden(from_=step.number),
        parts.button("From here"),
        data_confirm=f"Do step {step.number} and all after it again?",
    )


def _name(step: StepResult) -> Markup:
    took = f", {parts.span(step.took_ms)}" if step.took_ms else ""
    return join(user_text(entry_name(step)), took)


def _result(view: View, step: StepResult, reveal: bool) -> Any:
    """The result of an entry, or what it waits for."""
    if step.kind == "sleep" or (step.until and not step.ended):
        words = ("ended ", "ends ") if step.kind == "sleep" else ("timed out ", "times out ")
        return join(words[step.until > view.now_ms], parts.moment(step.until, view.now_ms))
    if not step.result:
        return f"waits for {counted(len(step.jobs), 'job')}" if step.jobs else "waits"
    text = step.result if reveal else parts.redact_named(step.name, step.result)
    text = entry_error(replace(step, result=text)) or text
    return user_text(text[:SHOWN_CHARS])
