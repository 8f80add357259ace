"""Actions on many jobs: on the selected ones, or on all that match, after a preview that says how many."""

import asyncio
from collections.abc import Sequence

from ...core import queries as q
from ...core import rules
from ...core.bounds import PAGE_JOBS
from ...core.errors import BadInput, HoldfastError
from ...core.job import Job, Place, State
from ...core.queries import JobPage
from ...core.units import counted
from . import audit, parts
from .actions import JOB_COMMANDS, done
from .layout import form
from .markup import Markup, el, join
from .search import JobSearch, read_search
from .view import Page, PageOrResponse, View, read_job_id

# The most jobs that one request changes, and one command; the page says how many are left.
MOST, CHUNK = 10_000, 500
VERBS = {"requeue": "Retry", "cancel": "Cancel", "delete": "Delete"}


async def bulk(view: View) -> PageOrResponse:
    """Ask for a confirmation, or do it."""
    action = view.field("action")
    if action not in VERBS:
        raise BadInput("action", action, needed=f"one of {', '.join(VERBS)}")
    search = read_search(view.field("q"))
    if view.field("all") == "yes":
        if view.field("sure") != "yes":
            return await _preview(view, action, search)
        ids, more = await _matching(view, search, MOST)
    else:
        ids, more = [read_job_id(one) for one in view.form.get("id", ())][:MOST], False
    count = await _run(view, action, ids)
    if count:
        await audit.record(view, f"{action} many", jobs=count, of=len(ids), search=search.text)
    if more:
        return _again(view, action, search, count)
    return done(view, "bulk", count=count, left=len(ids) - count)


async def _matching(view: View, search: JobSearch, most: int) -> tuple[list[int], bool]:
    """The ids of jobs that match, and whether there are more than `most`."""
    before, ids = 0, list[int]()
    if (job_id := search.job_id) is not None:
        return [job_id], False
    while len(ids) <= most:
        asked = await search.query(view, before=before, limit=PAGE_JOBS)
        page: JobPage = await view.ask(asked)
        ids += [job.id for job in page.jobs]
        before = page.before
        if not before:
            break
    return ids[:most], len(ids) > most


async def _run(view: View, action: str, ids: Sequence[int]) -> int:
    """Send a command for each job whose state allows it; many at once, which are committed together."""

    async def one(job: Job) -> bool:
        try:
            await view.ask(JOB_COMMANDS[action](job))
        except HoldfastError:
            # It has ended, gone or started meanwhile.
            return False
        return True

    count = 0
    for at in range(0, len(ids), CHUNK):
        some = ids[at : at + CHUNK]
        live: q.Loaded = await view.ask(q.LoadJobs(job_ids=tuple(some)))
        found = [live.jobs.get(job_id) or _archived(job_id) for job_id in some]
        allowed = [job for job in found if rules.is_offered_for_many(job, action)]
        count += sum(await asyncio.gather(*map(one, allowed)))
    return count


def _archived(job_id: int) -> Job:
    """What is known of a job that is not live, if there is one."""
    return Job(id=job_id, task="", place=Place.DONE, ended=State.FINISHED)


async def _preview(view: View, action: str, search: JobSearch) -> Page:
    ids, more = await _matching(view, search, MOST)
    count = f"more than {MOST:,} jobs that match" if more else f"{counted(len(ids), 'job')} that match"
    each = f" They are done {MOST:,} at a time." if more else ""
    text = f"{VERBS[action]} {count} now?{each}"
    return _ask(view, action, search, text, VERBS[action])


def _again(view: View, action: str, search: JobSearch, count: int) -> Page:
    text = f"Done: {counted(count, 'job')}. More match: continue?"
    return _ask(view, action, search, text, "Continue")


def _ask(view: View, action: str, search: JobSearch, text: str, label: str) -> Page:
    fields: Markup = join(
        el("input", type="hidden", name="action", value=action),
        el("input", type="hidden", name="q", value=search.text),
        el("input", type="hidden", name="all", value="yes"),
        el("input", type="hidden", name="sure", value="yes"),
        el(
            "div",
            parts.button(label, kind="danger" if action == "delete" else "primary"),
            el("a", "Back", href=view.url("/jobs", q=search.text or None), class_="button"),
            class_="actions",
        ),
    )
    body = join(
        parts.heading(f"{VERBS[action]} many jobs"),
        parts.card("Are you sure?", el("p", text), el("p", el("code", search.text or "all live jobs"))),
        form(view, "/jobs/bulk", fields),
    )
    return Page(title=f"{VERBS[action]} many jobs", body=body, section="jobs", live=None)
