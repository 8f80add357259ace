"""Parts that pages share: states, times, tables, tiles, empty states, progress."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.job import Job, Place, State
from ...core.units import iso
from .markup import Markup, el, join, user_text
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


def button(label: str, *, kind: str = "") -> Markup:
    """The button of a form."""
    return el("button", label, type="submit", class_=kind or None)
