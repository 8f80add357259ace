"""Handlers that the store keeps: the list, and the editor of one with its versions and a trial."""

from typing import Any

from ....core.access import Scope
from ....core.bounds import HANDLER_PAGE
from ....core.errors import BadInput, NotFound
from ....core.handler import SCRIPTS, GetHandler, Handler, ListHandlers, ListHandlerVersions
from ....work.runners.records import RunResult
from .. import parts, tenants
from ..layout import form
from ..markup import Markup, clean, el, hidden, join, user_text
from ..view import Page, View

LANGUAGES = ("python", "node", "shell", "http")
NUMBERS = {
    "batch_size": "Jobs of a batch",
    "memory_mb": "Memory, MB",
    "output_kb": "Output of a job, KB",
    "open_files": "Open files",
    "context_jobs": "Jobs until a new context",
}
DURATIONS = {
    "timeout": "Time of a job, such as 30s",
    "cpu": "CPU time of a job",
    "context_age": "Age of a context",
}
AROUND = {
    "before": "Before: once in each context",
    "before_each": "Before each batch",
    "after_each": "After each batch",
}
# How many lines of the code are seen at once.
LEAST_ROWS, MOST_ROWS = 8, 28
NO_SCOPE = "The scripts are shown to clients with the scope `handlers`."
NO_TRIAL = "This server does not run stored handlers. Try it on another machine: "


def can_edit(view: View) -> bool:
    """Whether the client may read and change scripts."""
    return view.allows(Scope.HANDLERS)


async def handlers(view: View) -> Page:
    """A page of the handlers of a tenant."""
    asked = ListHandlers(tenant=view.one_tenant, after_task=view.param("after"))
    found, following = await parts.page(view, asked)
    add = el("a", "New handler", href=view.url("/handler"), class_="button") if can_edit(view) else None
    body = join(
        parts.heading("Stored handlers", *([add] if add else [])),
        tenants.hint(view),
        _list(view, found),
        parts.turn(view, "/handlers", following, after="after_task"),
    )
    return Page(title="Stored handlers", body=body, section="handlers")


def _list(view: View, found: list[Handler]) -> Markup:
    if not found:
        hint = el("code", "holdfast handler set resize resize.py --lang python")
        return parts.empty(f"No stored handlers{tenants.whose(view)}", join("Set one: ", hint))
    listed = [
        (
            el("a", user_text(one.task), href=view.url("/handler", task=one.task)),
            one.lang,
            str(one.version),
            user_text(one.eid) if one.eid else None,
            parts.moment(one.created_at, view.now_ms),
        )
        for one in found
    ]
    return parts.table(("Task", "Language", "Version", "Shared as", "Set"), listed, caption="Stored handlers")


async def handler(view: View) -> Page:
    """One handler: its code to edit and try, and its versions; without a task a new one."""
    task, number = view.param("task"), view.param("version")
    if not task:
        return editor(view, Handler(task=""), [])
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
    versions: list[Handler] = await view.ask(
        ListHandlerVersions(task=task, tenant=view.one_tenant, limit=HANDLER_PAGE)
    )
    if not can_edit(view):
        return editor(view, versions[0], versions)
    shown: Handler = await view.ask(GetHandler(task=task, tenant=view.one_tenant, version=version))
    return editor(view, shown, versions)


async def page_of(view: View, draft: Handler, sample: str, result: RunResult) -> Page:
    """The editor with a draft that was tried, and how that ended."""
    versions = await _versions_of(view, draft.task)
    return editor(view, draft, versions, sample=sample, trial=await _result(result))


async def draft(view: View) -> Page:
    """The editor with what was typed and refused."""
    versions = await _versions_of(view, view.field("task"))
    # The name of a new handler may be what is wrong with it.
    return editor(view, Handler(task=view.field("task") if versions else ""), versions)


async def _versions_of(view: View, task: str) -> list[Handler]:
    asked = ListHandlerVersions(task=task, tenant=view.one_tenant, limit=HANDLER_PAGE)
    try:
        found: list[Handler] = await view.ask(asked)
    except (NotFound, BadInput):
        return []
    return found


def editor(
    view: View,
    shown: Handler,
    versions: list[Handler],
    *,
    sample: str = "{}",
    trial: Markup | None = None,
) -> Page:
    """The page of one handler."""
    title = shown.task or "New handler"
    jobs = el("a", "Jobs", href=view.url("/jobs", q=parts.qualifier("task", shown.task)), class_="button")
    aside = [jobs, _delete(view, shown.task) if can_edit(view) else None] if versions else []
    body = join(
        el("p", el("a", "Stored handlers", href=view.url("/handlers")), class_="path"),
        parts.heading(user_text(title), *aside, lead=_lead(shown)),
        trial,
        _edit(view, shown, sample) if can_edit(view) else el("p", NO_SCOPE, class_="note"),
        _versions(view, shown, versions) if versions else None,
    )
    return Page(
        title=f"Stored handler {title}" if shown.task else title, body=body, section="handlers", live=None
    )


def _lead(shown: Handler) -> str | None:
    if not shown.version:
        return None
    restores = f", as version {shown.restores}" if shown.restores else ""
    return f"{shown.lang}, version {shown.version}{restores}"


def _edit(view: View, shown: Handler, sample: str) -> Markup:
    if any(clean(text) != text or "\r" in text for text in (getattr(shown, one) for one in SCRIPTS)):
        text = "A script has characters that a browser would change. Edit it with holdfast handler set."
        return parts.card("Code", el("p", text, class_="note"))
    task = (
        hidden(task=shown.task)
        if shown.task
        else join(
            el("label", "Task", for_="task"),
            _input(view, "task", "", required=True),
        )
    )
    fields = join(
        task,
        el("label", "Language", for_="lang"),
        _input(view, "lang", shown.lang or LANGUAGES[0], list="languages", required=True),
        el("datalist", [el("option", value=one) for one in LANGUAGES], id="languages"),
        el("label", "Code, or the URL of an http handler", for_="body"),
        _area(view, "body", shown.body, rows=_rows(shown.body), required=True),
        _sample(view, shown, sample),
        el("div", parts.button("Save", kind="primary"), _try(view), class_="actions"),
        _more(view, shown),
    )
    return parts.card("Code", form(view, "/handlers/set", fields, class_="fields wide"))


def _more(view: View, shown: Handler) -> Markup:
    """What few handlers set: scripts around the jobs, and limits."""
    options = shown.options
    inside = join(
        [
            join(el("label", label, for_=name), _area(view, name, getattr(shown, name), rows=3))
            for name, label in AROUND.items()
        ],
        el("label", "Shared as: stored handlers with the same word may share a context", for_="eid"),
        _input(view, "eid", shown.eid),
        [
            join(
                el("label", label, for_=name),
                _input(view, name, _duration_text(getattr(options, f"{name}_ms"))),
            )
            for name, label in DURATIONS.items()
        ],
        [
            join(
                el("label", label, for_=name),
                _input(view, name, getattr(options, name) or "", inputmode="numeric"),
            )
            for name, label in NUMBERS.items()
        ],
        el(
            "label",
            el("input", type="checkbox", name="batch", value="yes", checked=options.batch),
            " http: one request for a batch",
        ),
    )
    is_set = (
        bool(view.form)
        or any(getattr(shown, name) for name in (*AROUND, "eid"))
        or shown.options != type(options)()
    )
    return el(
        "details", el("summary", "Scripts around jobs, and limits"), inside, class_="fields", open=is_set
    )


def _try(view: View) -> Markup | None:
    if view.trials is None:
        return None
    return el("button", "Try", type="submit", formaction=view.url("/handlers/try"))


def _sample(view: View, shown: Handler, sample: str) -> Markup:
    if view.trials is None:
        hint = el("code", "holdfast handler run ", shown.task or "TASK", " '{}'")
        return el("p", NO_TRIAL, hint, class_="note")
    label = "Sample data: Try runs the code above with it, saved or not, without a job"
    return join(el("label", label, for_="sample"), _area(view, "sample", sample, rows=3))


def _input(view: View, name: str, value: object, **attributes: Any) -> Markup:
    value = view.typed(name, value)
    return el("input", id=name, name=name, value=value, maxlength="255", autocomplete="off", **attributes)


def _area(view: View, name: str, text: str, *, rows: int, **attributes: Any) -> Markup:
    # A browser drops the first newline of a field.
    inside = "\n" + view.typed(name, text)
    return el(
        "textarea", inside, id=name, name=name, rows=rows, spellcheck="false", class_="mono", **attributes
    )


def _rows(text: str) -> int:
    return min(max(text.count("\n") + 2, LEAST_ROWS), MOST_ROWS)


def _duration_text(ms: int) -> str:
    return "" if not ms else f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


async def _result(result: RunResult) -> Markup:
    is_ok = result.exit_code // 100 == 2
    badge = parts.badge(f"{result.exit_code} {result.code.lower()}", "finished" if is_ok else "failed")
    used = f"{result.wall_ms:,.0f} ms, CPU {result.cpu_ms:,.0f} ms"
    log = [el("div", user_text(line)) for line in result.lines]
    added = [
        el("li", user_text(task), " ", user_text(data.decode(errors="replace"), class_="mono"))
        for task, data in result.new_jobs
    ]
    return parts.card(
        "Trial",
        el("p", badge, " ", el("span", used, class_="note")),
        el("p", user_text(result.error), class_="problem") if result.error else None,
        el("pre", user_text(result.traceback), tabindex="0") if result.traceback else None,
        (await parts.show(result.body, reveal=True)).markup if result.body is not None else None,
        join(el("p", "Log", class_="note"), el("div", log, class_="log plain", tabindex="0"))
        if log
        else None,
        join(el("p", "It would add", class_="note"), el("ul", added)) if added else None,
        id="trial",
    )


def _versions(view: View, shown: Handler, versions: list[Handler]) -> Markup:
    newest = versions[0].version
    rows = [
        (
            el("a", str(one.version), href=view.url("/handler", task=one.task, version=one.version)),
            one.lang,
            f"as version {one.restores}" if one.restores else None,
            parts.moment(one.created_at, view.now_ms),
            _roll_back(view, one) if can_edit(view) and one.version != newest else None,
        )
        for one in versions
    ]
    head = ("Version", "Language", "Brought back", "Set", "")
    return parts.card(f"Versions of {shown.task}", parts.table(head, rows, caption="Versions"))


def _roll_back(view: View, one: Handler) -> Markup:
    label = f"Roll back to version {one.version}"
    fields = hidden(task=one.task, version=one.version)
    button = parts.button("Roll back", kind="small", said=label)
    return form(view, "/handlers/rollback", fields, button, data_confirm=f"{label}?")


def _delete(view: View, task: str) -> Markup:
    question, button = (
        f"Delete the stored handler of {task} with all its versions?",
        parts.button("Delete", kind="danger"),
    )
    return form(view, "/handlers/delete", hidden(task=task), button, data_confirm=question)
