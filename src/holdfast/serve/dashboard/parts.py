"""Parts that pages share: states, times, tables, tiles, empty states, progress, and JSON that folds.

The values of keys such as `password` are not sent to the browser, unless a client that may manage jobs asks
for them. What is large is cut, with a link to all of it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...core import queries as q
from ...core.job import Body, Job, Place, State
from ...core.queries import JobPage, SearchJobs
from ...core.redaction import HIDDEN, redact
from ...core.redaction import redact_named as redact_named
from ...core.units import counted, iso
from .markup import Markup, el, hidden, join, user_text
from .view import View

# Paths of a 24 × 24 drawing, in lines.
_ICONS = {
    "holdfast": "M12 3c2 3-2 5 0 9M12 12c-1 3-4 3-5 8M12 12c1 3 4 3 5 8M12 12v9M7 5v6M17 5v6",
    "overview": "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
    "jobs": "M4 6h16M4 12h16M4 18h10",
    "tasks": "M12 3l8 4.500-8 4.500-8-4.500zM4 12l8 4.500 8-4.500M4 16.500L12 21l8-4.500",
    "schedules": "M12 21a9 9 0 100-18 9 9 0 000 18zM12 7v5l3.500 2",
    "limits": "M4 18a8 8 0 1116 0M12 18l4-6",
    "workers": "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
    "handlers": "M8 7l-5 5 5 5M16 7l5 5-5 5M13.500 5l-3 14",
    "journal": "M6 3h12v18H6zM9 3v18M12 8h3M12 12h3",
    "consumers": "M4 5v14M9 8h11M9 12h7M9 16h9",
    "settings": "M4 7h9M17 7h3M15 5v4M4 17h3M11 17h9M9 15v4M4 12h12M20 12h0M18 10v4",
}
# What people call where a job stands, and the colour that it has.
_PLACES = {
    Place.SCHEDULED: ("scheduled", "scheduled"),
    Place.READY: ("ready", "waiting"),
    Place.HELD: ("held", "held"),
    Place.RUNNING: ("running", "running"),
    Place.PAUSED: ("waits for family", "paused"),
}


def icon(name: str) -> Markup:
    """A small drawing beside a word."""
    return el("svg", el("path", d=_ICONS[name]), viewBox="0 0 24 24", class_="icon", aria_hidden="true")


def status_of(job: Job) -> tuple[str, str]:
    """What people call the state of a job, and its colour."""
    if job.place is Place.DONE:
        ended = (job.ended or State.FINISHED).value.lower()
        return ended, ended
    if job.place is Place.SCHEDULED and job.attempts:
        return "retries later", "scheduled"
    if job.place is Place.RUNNING and not job.started_at:
        return "claimed", "running"
    return _PLACES[job.place]


def badge(label: str, colour: str) -> Markup:
    """A word with a dot in its colour."""
    return el("span", el("i", aria_hidden="true"), label, class_=f"badge {colour}")


def state_badge(job: Job) -> Markup:
    """The state of a job."""
    return badge(*status_of(job))


def moment(at_ms: int, now_ms: int) -> Markup:
    """A time: how long ago, with the exact moment at hand; the page's script may show it in local time."""
    if not at_ms:
        return el("span", "–", class_="none")
    text = iso(at_ms)
    return el("time", since(at_ms, now_ms), datetime=text, title=text, data_ms=at_ms)


def since(at_ms: int, now_ms: int) -> str:
    """How long ago, or ahead, in words."""
    ms = now_ms - at_ms
    if abs(ms) < 1_000:
        return "now"
    return f"{span(ms)} ago" if ms > 0 else f"in {span(-ms)}"


def unlisted(owner: int) -> str:
    """A process that no live worker claims by: it has ended, or is a program that claims by itself."""
    return f"unlisted process {owner}"


def span(ms: int) -> str:
    """A duration in one or two units."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    seconds = ms // 1000
    for size, unit, below, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // below
            return f"{seconds // size} {unit}" + (f" {rest} {part}" if rest and seconds < 10 * size else "")
    return f"{seconds} s"


def number(count: int | float) -> str:
    """A number as people read it."""
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def job_link(view: View, job_id: int, label: str | None = None) -> Markup:
    """A link to a job."""
    return el("a", label or str(job_id), href=view.url(f"/jobs/{job_id}"), class_="mono")


def task_link(view: View, task: str, tenant: str = "") -> Markup:
    """A link to the jobs of a tenant's task."""
    words = qualifier("task", task)
    return el("a", user_text(task), href=view.url("/jobs", q=words, tenant=pinned(view, tenant)))


def pinned(view: View, tenant: str) -> str | None:
    """The tenant that an address must name to be about one tenant; None: there are no others."""
    return tenant if view.has_tenants or view.tenant is not None else None


def tenant_note(tenant: str) -> Markup | None:
    """The tenant of a row beside its name."""
    return el("span", " ", user_text(tenant), class_="note") if tenant else None


def qualifier(name: str, value: str) -> str:
    """A word of a search: quoted where it has blanks."""
    quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    is_plain = value and not any(char.isspace() or char in '"\\' for char in value)
    return f"{name}:{value if is_plain else quoted}"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str,
    right: Sequence[str] = (),
    kind: str = "",
) -> Markup:
    """A table. Columns in `right` are numbers; `kind` is a class for its look."""
    marks = ["right" if name in right else None for name in head]
    # Boxes come first, buttons last: their columns have names that are only said.
    said = [
        name or el("span", "Actions" if at else "Select", class_="unseen") for at, name in enumerate(head)
    ]
    titles = [el("th", name, scope="col", class_=mark) for name, mark in zip(said, marks, strict=True)]
    body = [
        el(
            "tr",
            [
                el("td", cell, class_=mark, data_label=name)
                for cell, mark, name in zip(row, marks, head, strict=True)
            ],
        )
        for row in rows
    ]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, class_="unseen"),
            el("thead", el("tr", titles)),
            el("tbody", body),
        ),
        class_=f"scroll {kind}".rstrip(),
        role="region",
        aria_label=caption,
        tabindex="0",
    )


def empty(title: str, *hint: Any) -> Markup:
    """What stands where there is nothing yet, and how something would come there."""
    return el("div", icon("holdfast"), el("p", title, class_="title"), el("p", *hint), class_="empty")


def card(title: Any, *children: Any, aside: Any = None, id: str | None = None) -> Markup:
    """A part of a page with a heading."""
    heading = el("div", el("h2", title), aside, class_="heading")
    return el("section", heading, *children, class_="card", id=id)


def heading(title: Any, *aside: Any, lead: Any = None) -> Markup:
    """The heading of a page, with what can be done beside it."""
    return el(
        "div",
        el("div", el("h1", title), el("p", lead, class_="lead") if lead else None),
        el("div", *aside, class_="actions") if aside else None,
        class_="top",
    )


def tile(label: str, value: Any, *, colour: str = "", href: str | None = None) -> Markup:
    """A number that matters, with its name."""
    inside = join(el("span", label, class_="label"), el("strong", value))
    return (
        el("a", inside, href=href, class_=f"tile {colour}")
        if href
        else el("div", inside, class_=f"tile {colour}")
    )


def bar(fraction: float, label: str) -> Markup:
    """A bar that is so far filled."""
    width = max(0.0, min(fraction, 1.0)) * 100
    return el(
        "svg",
        el("rect", width="100", height="6", rx="3", class_="track"),
        el("rect", width=f"{width:.2f}", height="6", rx="3", class_="fill"),
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=label,
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Names and values; what is None or "" is left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "")]
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in shown], class_="facts")


def button(label: str, *, kind: str = "", said: str = "") -> Markup:
    """The button of a form; `said`: its name for screen readers, where several are alike."""
    return el("button", label, type="submit", class_=kind or None, aria_label=said or None)


def search_form(view: View, path: str, button: str, label: str, **box: Any) -> Markup:
    """The form of a search, which keeps the tenant that was chosen; `box` are attributes of its field."""
    return el(
        "form",
        el("label", label, for_=box["id"], class_="unseen"),
        el("input", type="search", **box),
        hidden(tenant=view.tenant) if view.grant.tenant is None else None,
        el("button", button, type="submit"),
        method="get",
        action=f"{view.base}{path}",
        class_="search",
        role="search",
    )


# What is shown of a value before a reader asks for all of it.
SHOWN_CHARS = 20_000
# A body that is larger is read in a thread.
LARGE_CHARS = 100_000
# Deeper values, and longer lists, are shown as text.
DEPTH, ITEMS = 12, 200
# A browser lays out only those blocks of a very long text that are seen; each begins a line.
BLOCK_CHARS = 20_000


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A body as it is shown: HTML, its text for copying, what was hidden and what was cut."""

    markup: Markup
    text: str
    hidden: int = 0
    cut: int = 0


async def show(body: Body | None, *, reveal: bool = False, whole: bool = False) -> Shown:
    """A body as people read it."""
    if body is None or len(body) <= LARGE_CHARS:
        return _show(body, reveal=reveal, whole=whole)
    # In a thread: other requests must not wait for megabytes of data.
    return await asyncio.to_thread(_show, body, reveal=reveal, whole=whole)


def _show(body: Body | None, *, reveal: bool, whole: bool) -> Shown:
    if body is None:
        return Shown(markup=el("p", "None was kept.", class_="none"), text="")
    if isinstance(body, bytes):
        text = body.hex(" ")
        lead = el("p", f"{number(len(body))} bytes, in hexadecimal:", class_="note")
        return _plain(text, whole=whole, lead=lead)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        # As of a number that is too large: no secret can be found, so all of it counts as one.
        return _plain(body, whole=whole) if reveal else Shown(markup=user_text(HIDDEN), text="", hidden=1)
    hidden = 0
    if not reveal:
        value, hidden = redact(value)
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > SHOWN_CHARS:
        shown = _plain(text, whole=whole)
        return Shown(markup=shown.markup, text=shown.text, hidden=hidden, cut=shown.cut)
    return Shown(markup=el("div", _tree(value, 0), class_="json", dir="ltr"), text=text, hidden=hidden)


def _plain(text: str, *, whole: bool, lead: Markup | None = None) -> Shown:
    cut = 0 if whole else max(len(text) - SHOWN_CHARS, 0)
    shown = text[:SHOWN_CHARS] if cut else text
    blocks = [shown[at : at + BLOCK_CHARS] for at in range(0, len(shown), BLOCK_CHARS)]
    inside = user_text(shown) if len(blocks) < 2 else [user_text(one, class_="block") for one in blocks]
    return Shown(markup=join(lead, el("pre", inside, tabindex="0")), text=shown, cut=cut)


def _tree(value: Any, depth: int, name: str | None = None, comma: bool = False) -> Markup:
    key = (
        join(user_text(msgspec.json.encode(name).decode(), class_="key"), ": ") if name is not None else None
    )
    end = "," if comma else ""
    if not isinstance(value, dict | list) or not value:
        return el("div", key, _leaf(value), end)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    size = f" {counted(len(value), 'field' if isinstance(value, dict) else 'item')} "
    items = list(value.items()) if isinstance(value, dict) else [(None, one) for one in value]
    if depth >= DEPTH or len(items) > ITEMS:
        return el("div", key, user_text(msgspec.json.encode(value).decode()), end)
    inside = [_tree(one, depth + 1, label, at < len(items) - 1) for at, (label, one) in enumerate(items)]
    return el(
        "details",
        el("summary", key, opening, el("span", f"{size}{closing}{end}", class_="folded")),
        el("div", inside, class_="inner"),
        el("div", closing, end),
        open=depth < 3 or None,
    )


def _leaf(value: Any) -> Markup:
    kind = (
        "text"
        if isinstance(value, str)
        else "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else "word"
    )
    if value == HIDDEN:
        kind = "hidden"
    text = msgspec.json.encode(value).decode() if value != HIDDEN else HIDDEN
    return user_text(text, class_=f"value {kind}")


# How many entries one page of a list shows.
PAGE = 50
P = TypeVar("P", bound=q.PagedQuery)


async def page(view: View, asked: P) -> tuple[Any, P | None]:
    """The entries of one page, and the query for the next one; None: there are no more."""
    found = await view.ask(replace(asked, limit=PAGE + 1))
    shown: Any = dict(islice(found.items(), PAGE)) if isinstance(found, dict) else found[:PAGE]
    return shown, replace(asked, limit=PAGE).next_page(shown) if len(found) > PAGE else None


def is_whole(view: View, following: q.PagedQuery | None) -> bool:
    """Whether a page of a list has all of it."""
    return following is None and not view.param("after")


def turn(view: View, path: str, following: q.PagedQuery | None, **fields: str) -> Markup | None:
    """Links to the next page, if there is one, and to the first. `fields`: the query's, by parameter."""
    is_first = not any(view.param(name) for name in fields)
    if is_first and following is None:
        return None
    after = {name: getattr(following, field, None) for name, field in fields.items()}
    shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in after.items()}
    return el(
        "nav",
        None if is_first else el("a", "First page", href=view.url(path)),
        None if following is None else el("a", "Next page", href=view.url(path, **shown), rel="next"),
        class_="pages",
        aria_label="Pages of the list",
    )


async def newest(view: View, wanted: q.JobFilter, limit: int) -> list[Job]:
    """The newest jobs that match."""
    found: JobPage = await view.ask(SearchJobs(filter=wanted, limit=limit))
    return list(found.jobs)


def pauses_of(pauses: Iterable[q.Paused], tenant: str | None, task: str) -> list[q.Paused]:
    """The pauses that stop a tenant's task: of all tenants, of the tenant, or of its task."""
    return [one for one in pauses if one[0] in (None, tenant) and one[1] in (None, task) and one[2] is None]


def pause_badge(pause: q.Paused) -> Markup:
    """That a task is paused, and what else is by the same pause."""
    wide = " for all tenants" if pause[0] is None else "" if pause[1] is not None else " with its tenant"
    return join(" ", badge(f"paused{wide}", "paused"))


def progress(job: Job) -> Markup | None:
    """How far a job says it is."""
    if job.progress is None:
        return None
    part = f"{job.progress.fraction:.0%}"
    return join(
        bar(job.progress.fraction, f"Progress {part}"),
        el("span", part, " ", user_text(job.progress.note), class_="note"),
    )


def no_running(view: View, found: q.Overview) -> Markup:
    """What stands where no running job is shown."""
    count = sum(counts.get("RUNNING", 0) for counts in found.tasks.values())
    if not count:
        return empty("Nothing runs", "Jobs that run now are shown here.")
    link = el("a", "See them", href=view.url("/jobs", q="state:running"))
    return empty(f"{counted(count, 'job')} running", link)


def why_failed(job: Job) -> str:
    """The reason of a failure in one line."""
    last = job.errors[-1] if job.errors else job.outcome
    text = (last.error if last else "") or job.reason or "no reason given"
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def waits(first_due_at: int, now_ms: int) -> Markup:
    """Since when the job waits that is claimed next; 0: none waits, or it is not known."""
    return moment(first_due_at, now_ms) if first_due_at else el("span", "–", class_="none")
