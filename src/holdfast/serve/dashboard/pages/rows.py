"""Cells and lists that several pages show."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from ....core import queries as q
from ....core.job import Job
from ....core.queries import JobPage, SearchJobs
from ....core.units import counted
from .. import parts
from ..markup import Markup, el, join, user_text
from ..view import View

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
    return join(" ", parts.badge(f"paused{wide}", "paused"))


def progress(job: Job) -> Markup | None:
    """How far a job says it is."""
    if job.progress is None:
        return None
    part = f"{job.progress.fraction:.0%}"
    return join(
        parts.bar(job.progress.fraction, f"Progress {part}"),
        el("span", part, " ", user_text(job.progress.note), class_="note"),
    )


def no_running(view: View, found: q.Overview) -> Markup:
    """What stands where no running job is shown."""
    count = sum(counts.get("RUNNING", 0) for counts in found.tasks.values())
    if not count:
        return parts.empty("Nothing runs", "Jobs that run now are shown here.")
    link = el("a", "See them", href=view.url("/jobs", q="state:running"))
    return parts.empty(f"{counted(count, 'job')} running", link)


def why_failed(job: Job) -> str:
    """The reason of a failure in one line."""
    last = job.errors[-1] if job.errors else job.outcome
    text = (last.error if last else "") or job.reason or "no reason given"
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def waits(first_due_at: int, now_ms: int) -> Markup:
    """Since when the job waits that is claimed next; 0: none waits, or it is not known."""
    return parts.moment(first_due_at, now_ms) if first_due_at else el("span", "–", class_="none")
