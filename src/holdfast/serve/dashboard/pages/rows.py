"""Cells and lists that several pages show."""

from collections.abc import Iterable

from ....core import queries as q
from ....core.job import Job
from ....core.searching import JobPage, SearchJobs, TaskState
from .. import parts
from ..markup import Markup, el, join, user_text
from ..view import View


async def newest(view: View, wanted: q.JobFilter, limit: int) -> list[Job]:
    """The newest jobs that match."""
    found: JobPage = await view.ask(SearchJobs(filter=wanted, limit=limit))
    return list(found.jobs)


def pauses_of(pauses: Iterable[q.Paused], tenant: str, task: str) -> list[q.Paused]:
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


def why_failed(job: Job) -> str:
    """The reason of a failure in one line."""
    last = job.outcome or (job.errors[-1] if job.errors else None)
    text = (last.error if last else "") or job.reason or "no reason given"
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def waits(one: TaskState, now_ms: int) -> Markup:
    """Since when the job waits that is claimed next."""
    if not one.first_due_at:
        return el("span", "–", class_="none")
    return parts.moment(one.first_due_at, now_ms)
