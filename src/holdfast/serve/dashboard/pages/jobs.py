"""The list of jobs: by state with counts, found by a search, with actions on many."""

from typing import Any

from msgspec.structs import replace

from ....core import queries as q
from ....core import rules
from ....core.errors import BadInput, NotFound
from ....core.job import Job, Place, State
from ....core.queries import JobPage
from ....core.units import iso
from ....core.why import waits_in_short
from ....store.common.clock import monotonic_s
from .. import parts
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..search import TABS, JobSearch, read_search
from ..view import Page, PageOrResponse, View, read_job_id

PAGE = 50
# How long a page searches on for jobs of which few match; then it says how far it came.
SEARCH_S = 1.0
LABELS = {
    "": "All live",
    "ready": "Ready",
    "held": "Held back",
    "scheduled": "Scheduled",
    "running": "Running",
    "paused": "Paused",
    "failed": "Failed",
    "finished": "Finished",
    "cancelled": "Cancelled",
}
ACTIONS = {"requeue": "Retry", "cancel": "Cancel", "delete": "Delete"}


async def jobs(view: View) -> PageOrResponse:
    """The list of jobs."""
    text = view.param("q")
    try:
        search = read_search(text)
        found = await find(view, search)
    except BadInput as error:
        body = join(parts.heading("Jobs"), _search_box(view, text), el("p", str(error), class_="problem"))
        return Page(title="Jobs", body=body, section="jobs", status=400, live=None)
    asked = q.CountJobs(tenant=_tenant(view, search), task=search.words.get("task"), merged=True)
    counts: list[tuple[q.JobKind, int]] = await view.ask(asked)
    body = join(
        parts.heading("Jobs"),
        _search_box(view, text),
        _tabs(view, search, _count(counts, search)),
        _progress(view, found) if found.is_cut and found.jobs else None,
        _list(view, search, found),
    )
    return Page(title="Jobs", body=body, section="jobs")


def _tenant(view: View, search: JobSearch) -> str | None:
    return search.words.get("tenant", view.tenant)


async def find(view: View, search: JobSearch) -> JobPage:
    """A page of the jobs that match."""
    if (job_id := search.job_id) is not None:
        try:
            return JobPage(jobs=(await view.ask(q.GetJob(job_id=job_id)),))
        except NotFound:
            return JobPage()
    before = read_job_id(view.param("before") or "0")
    begun_s, jobs = monotonic_s(), list[Job]()
    while True:
        asked = await search.query(view, before=before, limit=PAGE - len(jobs))
        found: JobPage = await view.ask(asked)
        jobs, before = [*jobs, *found.jobs], found.before
        # In steps of a fraction of a second, between which other requests have their turn.
        if not found.is_cut or len(jobs) >= PAGE or monotonic_s() - begun_s > SEARCH_S:
            return replace(found, jobs=tuple(jobs))


def _count(counts: list[tuple[q.JobKind, int]], search: JobSearch) -> dict[str, int]:
    """How many jobs each tab has; none where the search has more words than counts are kept by."""
    if search.data or not search.words.keys() <= {"task", "tenant", "state"}:
        return {}
    found = {tab: sum(n for key, n in counts if _is_in(key, how)) for tab, how in TABS.items() if tab}
    found[""] = sum(n for tab, n in found.items() if tab not in ("finished", "cancelled"))
    return found


def _is_in(key: q.JobKind, how: dict[str, Any]) -> bool:
    if "state" in how:
        return key.place is Place.DONE and key.state is how["state"]
    return key.place is how["place"]


def _search_box(view: View, text: str) -> Markup:
    hint = "task:resize state:failed error:timeout since:2h data.user.id:42"
    box = {"id": "q", "name": "q", "value": text, "placeholder": hint, "autocomplete": "off"}
    return parts.search_form(view, "/jobs", "Search", "Search jobs", **box)


def _tabs(view: View, search: JobSearch, counts: dict[str, int]) -> Markup:
    links = [
        el(
            "a",
            el("span", label),
            el("b", parts.number(counts[tab])) if counts else None,
            href=view.url("/jobs", q=search.with_tab(tab).text or None),
            aria_current="page" if tab == search.tab else None,
            class_=tab or "all",
        )
        for tab, label in LABELS.items()
    ]
    return el("nav", links, class_="tabs", aria_label="Jobs by state")


def _pages(view: View, search: JobSearch, found: JobPage) -> Markup:
    """The way to older jobs, and back to the newest."""
    text = search.text or None
    older = "Search older jobs" if found.is_cut else "Older jobs"
    return el(
        "div",
        el("a", "Newest jobs", href=view.url("/jobs", q=text)) if view.param("before") else None,
        el("a", older, href=view.url("/jobs", q=text, before=found.before), rel="next")
        if found.before
        else None,
        class_="pages",
    )


def _progress(view: View, found: JobPage) -> Markup:
    """How far a search came that has not looked through all jobs."""
    span_ms = max(view.now_ms - found.oldest_ms, 1)
    part = min((view.now_ms - found.searched_ms) / span_ms, 1.0) if found.oldest_ms else 0.0
    text = (
        f"Searched {part:.0%} of the time since the oldest job was added: back to {iso(found.searched_ms)}."
    )
    return join(parts.bar(part, f"Searched {part:.0%}"), el("p", text, class_="note", role="status"))


def _list(view: View, search: JobSearch, found: JobPage) -> Markup:
    if not found.jobs and found.is_cut:
        return join(parts.empty("Nothing yet", _progress(view, found)), _pages(view, search, found))
    if not found.jobs:
        return parts.empty("No jobs here", "No job matches. Try another state, or fewer words.")
    table = parts.table(
        (*(("",) if view.can_manage else ()), "Job", "Task", "State", "Added", "What"),
        [_row(view, job) for job in found.jobs],
        caption="Jobs",
        kind="jobs",
    )
    pages = _pages(view, search, found)
    if not view.can_manage:
        return join(table, pages)
    return join(form(view, "/jobs/bulk", _bulk_bar(search), table, class_="many"), pages)


def _row(view: View, job: Job) -> tuple[Any, ...]:
    box = el("input", type="checkbox", name="id", value=job.id, aria_label=f"Select job {job.id}")
    cells = (
        parts.job_link(view, job.id),
        join(
            parts.task_link(view, job.task, job.tenant),
            parts.tenant_note(job.tenant),
        ),
        parts.state_badge(job),
        parts.moment(job.created_at, view.now_ms),
        el("span", _what(view, job), class_="cut"),
    )
    return (box, *cells) if view.can_manage else cells


def _what(view: View, job: Job) -> Any:
    """What there is to say of a job in its state."""
    if job.place is Place.RUNNING:
        return parts.progress(job) or join("since ", parts.moment(job.started_at, view.now_ms))
    if job.place is Place.DONE and job.ended is State.FAILED:
        return user_text(parts.why_failed(job))
    if job.place is Place.DONE:
        ran = job.finished_at - job.started_at if job.started_at else 0
        return join(
            "ended ",
            parts.moment(job.finished_at, view.now_ms),
            f", ran {parts.span(ran)}" if ran > 0 else None,
        )
    waits = waits_in_short(job)
    if job.place is Place.PAUSED and waits:
        return user_text(waits)
    if job.place is Place.SCHEDULED:
        return join(user_text(f"{waits}, ") if waits else None, "due ", parts.moment(job.run_at, view.now_ms))
    if job.domain is not None:
        return join("domain ", user_text(job.domain.decode(errors="replace")))
    return f"priority {job.priority}" if job.priority != 500 else None


def _label(tab: str, verb: str) -> str:
    return "Run now" if (tab, verb) == ("scheduled", "requeue") else ACTIONS[verb]


def _is_offered(tab: str, verb: str) -> bool:
    """Whether all jobs of a tab allow a verb."""
    tabs = [tab] if tab else [one for one, how in TABS.items() if one and "archived" not in how]
    return all(rules.is_offered_for_many(_sample(one), verb) for one in tabs)


def _sample(tab: str) -> Job:
    """A job as a tab shows them."""
    how = TABS[tab]
    return Job(id=1, task="", place=how.get("place", Place.DONE), ended=how.get("state"))


def _bulk_bar(search: JobSearch) -> Markup:
    buttons = [
        el("button", _label(search.tab, verb), type="submit", name="action", value=verb, class_="small")
        for verb in ACTIONS
        if _is_offered(search.tab, verb)
    ]
    return el(
        "div",
        el(
            "label",
            el("input", type="checkbox", name="all", value="yes", id="all-matching"),
            "all that match, not only those selected",
        ),
        buttons,
        hidden(q=search.text),
        class_="bulk",
        role="group",
        aria_label="Act on several jobs",
    )
