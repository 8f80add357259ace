"""What people do by forms: each reads its fields, sends commands, writes down what was done, and leads back.

A form without the token of its session is refused before any of this runs (`app.py`).

Actions on many jobs are on the selected ones, or on all that match, after a preview that says how many.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from ...core import commands as c
from ...core import queries as q
from ...core import rules
from ...core.access import Scope, confine
from ...core.bounds import PAGE_JOBS
from ...core.checks import json_body
from ...core.commands import RunSchedule, SetRetention, StopWorker
from ...core.errors import BadInput, HoldfastError
from ...core.handler import DeleteHandler, Handler, RollBackHandler, SetHandler
from ...core.job import Job, Place, State
from ...core.limits import Limit
from ...core.queries import JobPage
from ...core.token import RANDOM_BYTES, Token, hash_of, secret_of
from ...core.units import counted, duration_ms
from ...queue.handlers import HandlerOptions, new_handler
from . import audit, parts
from .layout import HEADERS, form
from .markup import Markup, el, hidden, join
from .pages import handlers as pages
from .pages import job as job_pages
from .pages import jobs as job_list
from .pages import limits as limit_pages
from .pages import settings
from .search import JobSearch, read_search
from .view import Page, PageOrResponse, View, read_job_id

Act = Callable[[View], Awaitable[PageOrResponse]]
# The most old jobs that one press of a button deletes.
PURGED = 100_000
# What is said after an action, by its name: an address could say anything else in the page's name.
NOTICES = {
    "requeue": "Put back in the queue.",
    "cancel": "Cancelled, or asked to stop.",
    "force_cancel": "Cancelled.",
    "delete": "Deleted.",
    "edit": "Saved.",
    "edit and retry": "Saved and put back in the queue.",
    "signal": "The signal is sent.",
    "pause": "Paused.",
    "resume": "Resumed.",
    "limit": "The limit is set.",
    "lift": "The limit is lifted.",
    "schedule": "The schedule is deleted.",
    "run": "A job was added.",
    "revoke": "The token is revoked.",
    "purge": "Old jobs are deleted.",
    "progress": "The progress is set.",
    "stop": "The worker was asked to stop.",
    "retention": "The retention is set.",
    "bulk": "Done.",
    "handler": "The stored handler is saved.",
    "rollback": "The earlier version is the newest now.",
    "unhandle": "The stored handler is deleted.",
}


def done(
    view: View,
    notice: str,
    *,
    to: str | None = None,
    count: int | None = None,
    left: int = 0,
    **params: str,
) -> Response:
    """Lead back to where the form was, or to another page, with a notice.

    `count`: how many jobs were changed; `left`: how many were not.
    """
    back = view.field("back") if to is None else view.url(to, **params)
    if not back.startswith(f"{view.base}/") or back.startswith("//") or "\\" in back:
        back = view.url("/")
    path, _, query = back.partition("?")
    kept = [word for word in query.split("&") if word and not word.startswith(("done=", "count=", "left="))]
    kept += [f"done={quote(notice)}", *([f"count={count}"] if count is not None else [])]
    kept += [f"left={left}"] if left else []
    return RedirectResponse(f"{path}?{'&'.join(kept)}", 303, HEADERS)


# What each verb of `rules.offered_verbs` sends, for one job and for many. A job that waited or was FAILED may
# have been claimed since: then it is left alone.
JOB_COMMANDS: dict[str, Callable[[Job], c.Command]] = {
    "requeue": lambda job: c.Requeue(job_id=job.id, unless_running=job.place is not Place.RUNNING),
    "cancel": lambda job: c.Cancel(job_id=job.id),
    "force_cancel": lambda job: c.Cancel(job_id=job.id, force=True),
    "delete": lambda job: c.Delete(job_id=job.id),
}


def act_on_job(verb: str) -> Act:
    """The action that does a verb to the job of the path, if its state allows it.

    What ends the claim of a running job is asked about first.
    """

    async def act(view: View) -> PageOrResponse:
        job: Job = await view.ask(q.GetJob(job_id=view.job_id))
        rules.check_offered(job, verb)
        if rules.ends_claim(job, verb) and view.field("sure") != "yes":
            return job_pages.ask_first(view, job, verb)
        command = JOB_COMMANDS[verb](job)
        if isinstance(command, c.Requeue):
            command = replace(command, from_step=view.field("from"))
        await view.ask(command)
        await audit.record(view, verb.replace("_", " "), job=str(job.id))
        return done(view, verb, to="/jobs" if verb == "delete" else f"/jobs/{job.id}")

    return act


async def send_signal(view: View) -> Response:
    """Send the signal that a job waits for."""
    name, data = view.field("name"), json_body("data", view.field("data"))
    await view.ask(c.SendSignal(job_id=view.job_id, name=name, data=data))
    await audit.record(view, "signal", job=str(view.job_id), signal=name)
    return done(view, "signal", to=f"/jobs/{view.job_id}")


async def edit_job(view: View) -> Response:
    """Change a job's data and priority. A job that has failed is put back in the queue."""
    job: Job = await view.ask(q.GetJob(job_id=view.job_id))
    rules.check_offered(job, "edit")
    data = json_body("data", view.field("data")) if "data" in view.form else None
    await view.ask(c.Update(job_id=job.id, data=data, priority=whole_number(view, "priority")))
    did = "edit"
    if job.place is Place.DONE:
        did = "edit and retry"
        await view.ask(c.Requeue(job_id=job.id, unless_running=True))
    await audit.record(view, did, job=str(job.id))
    return done(view, did, to=f"/jobs/{job.id}")


async def pause_task(view: View) -> Response:
    """Pause or resume a task of a tenant; without a tenant of all, and without a task all of a tenant."""
    tenant, task = (view.field(name) if name in view.form else None for name in ("tenant", "task"))
    on = view.field("on") == "yes"
    await view.ask(c.Pause(task=task, tenant=tenant, on=on))
    await audit.record(view, "pause" if on else "resume", task=task, tenant=tenant)
    return done(view, "pause" if on else "resume")


async def pause_schedule(view: View) -> Response:
    """Pause or resume a schedule."""
    name, on = view.field("name"), view.field("on") == "yes"
    await view.ask(c.PauseSchedule(name=name, tenant=view.one_tenant, on=on))
    await audit.record(view, "pause" if on else "resume", schedule=name, tenant=view.one_tenant)
    return done(view, "pause" if on else "resume")


async def run_schedule(view: View) -> Response:
    """Add the job of a schedule now."""
    name = view.field("name")
    (job_id,) = await view.ask(RunSchedule(name=name, tenant=view.one_tenant))
    await audit.record(view, "run schedule", schedule=name, tenant=view.one_tenant, job=str(job_id))
    return done(view, "run")


async def stop_worker(view: View) -> Response:
    """Ask a worker to stop."""
    name = view.field("name")
    await view.ask(StopWorker(name=name, tenant=view.grant.tenant))
    await audit.record(view, "stop worker", worker=name)
    return done(view, "stop")


async def set_retention(view: View) -> Response:
    """Set how long ended jobs are kept."""
    text = view.field("retention")
    await view.ask(SetRetention(retention_ms=duration_ms(text, name="retention")))
    await audit.record(view, "set retention", retention=text)
    return done(view, "retention")


async def delete_schedule(view: View) -> Response:
    """Delete a schedule."""
    name = view.field("name")
    await view.ask(c.DeleteSchedule(name=name, tenant=view.one_tenant))
    await audit.record(view, "delete schedule", schedule=name, tenant=view.one_tenant)
    return done(view, "schedule")


async def set_limit(view: View) -> Response:
    """Set the limit of a domain. If it has one that was not edited, what is not said stays as it is."""
    domain = view.field("domain")
    rate = view.field("rate").strip()
    burst, concurrency = whole_number(view, "burst"), whole_number(view, "concurrency")
    found = None if view.field("edits") == domain else await limit_pages.find_limit(view, domain)
    known = Limit() if found is None else found.limit
    try:
        limit = Limit(
            rate=float(rate) if rate else known.rate,
            burst=burst or known.burst,
            concurrency=known.concurrency if concurrency is None else concurrency,
        )
    except ValueError:
        raise BadInput("rate", rate, needed="starts a second, such as 10 or 0.5") from None
    if limit.rate is None and limit.concurrency is None:
        raise BadInput("limit", "nothing", needed="a rate, a number running at once, or both")
    await view.ask(c.SetLimit(domain=domain.encode(), tenant=view.one_tenant, limit=limit))
    await audit.record(
        view, "set limit", domain=domain, rate=limit.rate, burst=limit.burst, concurrency=limit.concurrency
    )
    return done(view, "limit", to="/limits")


async def lift_limit(view: View) -> Response:
    """Lift the limit of a domain."""
    domain = view.field("domain")
    await view.ask(c.SetLimit(domain=domain.encode(), tenant=view.one_tenant))
    await audit.record(view, "lift limit", domain=domain, tenant=view.one_tenant)
    return done(view, "lift")


async def create_token(view: View) -> PageOrResponse:
    """Create a token, and show its secret once."""
    name, tenant = view.field("name").strip(), view.field("tenant").strip()
    try:
        scopes = tuple(Scope(scope) for scope in view.form.get("scope", ()))
    except ValueError:
        raise BadInput("scope", view.form["scope"], needed="add, work, read, manage or handlers") from None
    expires = view.field("expires").strip()
    secret = secret_of(name, secrets.token_bytes(RANDOM_BYTES))
    token = Token(name=name, scopes=scopes, tenant=tenant or None, hash=hash_of(secret))
    expires_in_ms = duration_ms(expires, name="expires") if expires else 0
    await view.ask(c.CreateToken(token=token, expires_in_ms=expires_in_ms))
    await audit.record(view, "create token", name=name, tenant=tenant or None, scopes=list(scopes))
    return settings.created(view, name, secret)


async def revoke_token(view: View) -> Response:
    """Revoke a token."""
    name = view.field("name")
    await view.ask(c.RevokeToken(name=name))
    await audit.record(view, "revoke token", name=name)
    return done(view, "revoke")


async def purge(view: View) -> Response:
    """Delete old archived jobs."""
    older_ms = duration_ms(view.field("older"), name="older")
    before_ms, count = view.now_ms - older_ms, 0
    while count < PURGED:
        gone: int = await view.ask(c.Purge(before_ms=before_ms, tenant=view.tenant, limit=PAGE_JOBS))
        count += gone
        if gone < PAGE_JOBS:
            break
    await audit.record(view, "purge", older=view.field("older"), jobs=count)
    return done(view, "purge", count=count)


def whole_number(view: View, name: str) -> int | None:
    """A whole number of a form; None: it is empty."""
    text = view.field(name).strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise BadInput(name, text, needed="a whole number")
    return int(text)


async def set_handler(view: View) -> Response:
    """Make a new version of a handler."""
    kept: Handler = await view.ask(SetHandler(handler=_draft(view)))
    await audit.record(view, "set handler", task=kept.task, tenant=kept.tenant, version=kept.version)
    return done(view, "handler", to="/handler", task=kept.task)


async def roll_back_handler(view: View) -> Response:
    """Make a new version that is as an earlier one was."""
    task, version = view.field("task"), whole_number(view, "version") or 0
    kept: Handler = await view.ask(RollBackHandler(task=task, tenant=view.one_tenant, version=version))
    await audit.record(
        view, "roll back handler", task=task, tenant=view.one_tenant, version=kept.version, as_=kept.restores
    )
    return done(view, "rollback", to="/handler", task=task)


async def delete_handler(view: View) -> Response:
    """Delete a handler with all its versions."""
    task = view.field("task")
    await view.ask(DeleteHandler(task=task, tenant=view.one_tenant))
    await audit.record(view, "delete handler", task=task, tenant=view.one_tenant)
    return done(view, "unhandle", to="/handlers")


async def try_handler(view: View) -> PageOrResponse:
    """Run the code of the form with sample data, and show how that ended; nothing is saved."""
    if view.trials is None:
        raise BadInput("trial", "this server", needed="one that runs handlers")
    draft, sample = _draft(view), view.field("sample")
    # A client that may not set the handler may not run it either.
    confined = confine(view.grant, SetHandler(handler=draft)).handler
    await audit.record(view, "try handler", task=draft.task, tenant=confined.tenant, lang=draft.lang)
    result = await view.trials.run(confined, sample.strip("\n").encode())
    return await pages.page_of(view, draft, sample, result)


def _draft(view: View) -> Handler:
    """The handler that the form describes."""
    said: dict[str, Any] = {name: view.field(name) for name in (*pages.AROUND, "eid")}
    said |= {name: text for name in pages.DURATIONS if (text := view.field(name).strip())}
    said |= {name: count for name in pages.NUMBERS if (count := whole_number(view, name))}
    options: HandlerOptions = {**said, "batch": view.field("batch") == "yes"}  # type: ignore[typeddict-item]
    task, lang = view.field("task").strip(), view.field("lang").strip()
    return new_handler(task, view.field("body"), lang, options, tenant=view.one_tenant)


# The most jobs that one request changes, and one command; the page says how many are left.
MOST, CHUNK = 10_000, 500


async def bulk(view: View) -> PageOrResponse:
    """Ask for a confirmation, or do it."""
    action = view.field("action")
    if action not in job_list.ACTIONS:
        raise BadInput("action", action, needed=f"one of {', '.join(job_list.ACTIONS)}")
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
    text = f"{job_list.ACTIONS[action]} {count} now?{each}"
    return _ask(view, action, search, text, job_list.ACTIONS[action])


def _again(view: View, action: str, search: JobSearch, count: int) -> Page:
    text = f"Done: {counted(count, 'job')}. More match: continue?"
    return _ask(view, action, search, text, "Continue")


def _ask(view: View, action: str, search: JobSearch, text: str, label: str) -> Page:
    fields: Markup = join(
        hidden(action=action, q=search.text, all="yes", sure="yes"),
        el(
            "div",
            parts.button(label, kind="danger" if action == "delete" else "primary"),
            el("a", "Back", href=view.url("/jobs", q=search.text or None), class_="button"),
            class_="actions",
        ),
    )
    body = join(
        parts.heading(f"{job_list.ACTIONS[action]} many jobs"),
        parts.card("Are you sure?", el("p", text), el("p", el("code", search.text or "all live jobs"))),
        form(view, "/jobs/bulk", fields),
    )
    return Page(title=f"{job_list.ACTIONS[action]} many jobs", body=body, section="jobs", live=None)


ACTIONS: dict[str, Act] = {
    **{f"/jobs/{{job_id}}/{verb}": act_on_job(verb) for verb in JOB_COMMANDS},
    "/jobs/bulk": bulk,
    "/jobs/{job_id}/edit": edit_job,
    "/jobs/{job_id}/signal": send_signal,
    "/tasks/pause": pause_task,
    "/schedules/pause": pause_schedule,
    "/schedules/run": run_schedule,
    "/schedules/delete": delete_schedule,
    "/workers/stop": stop_worker,
    "/limits/set": set_limit,
    "/limits/lift": lift_limit,
    "/settings/tokens/create": create_token,
    "/settings/tokens/revoke": revoke_token,
    "/settings/retention": set_retention,
    "/settings/purge": purge,
}
HANDLER_ACTIONS: dict[str, Act] = {
    "/handlers/set": set_handler,
    "/handlers/rollback": roll_back_handler,
    "/handlers/delete": delete_handler,
    "/handlers/try": try_handler,
}
