"""Which job a plan is about: chosen when its turn comes, so that most of them meet something."""

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.bounds import MINUTE_MS
from holdfast.core.handler import DeleteHandler, Handler, RollBackHandler, SetHandler
from holdfast.core.ids import SLOTS
from holdfast.core.job import Job, Place, Record
from holdfast.core.kinds import HANDLER, PAUSE
from holdfast.core.slots import with_slots
from holdfast.engine.records import read_pause

from .commands import GIVEN_ID, UNKNOWN_ID, Plan
from .view import View


class Scene(Record, frozen=True, kw_only=True):
    """What a plan is cast in: what there is, every claim that was ever handed out, and a mood.

    A mood is options that half of all new jobs have, so that some histories are about one thing.
    """

    view: View
    claims: list[Job]
    ids: list[int]
    mood: dict[str, Any]


def cast(plan: Plan, scene: Scene) -> c.Command:
    """The command of a plan, about a job that there is; sometimes about one that was, or never."""
    command = plan.command
    if plan.twist < 7 and _is_in_vain(command, scene):
        # Rather than nothing: get something to work on.
        return c.Claim(limit=3, lease_ms=MINUTE_MS, mock=plan.twist > 3, start=plan.twist > 1)
    if isinstance(command, c.Add):
        return _cast_add(command, plan, scene)
    if isinstance(command, c.Pause):
        return _lifted(scene) or command if plan.twist > 2 else command
    if isinstance(command, RollBackHandler | DeleteHandler) and plan.twist < 7:
        return _of_a_handler(command, plan, scene)
    if isinstance(command, c.SetSchedule):
        return replace(command, job=replace(command.job, id=0))
    if isinstance(command, c.Answer):
        job = _claim(plan, scene)
        held = {8: job, 9: scene.view.live.get(job.id)}.get(plan.twist) if job else None
        ran_ms = plan.twist * 100 if plan.twist % 2 else None
        return replace(command, hold=_held(job, plan), held=held, ran_ms=ran_ms)
    if getattr(command, "hold", None) is not None:
        job = _claim(plan, scene)
        changes: dict[str, Any] = {"hold": _held(job, plan)}
        if isinstance(command, c.Update):
            changes["job_id"] = job.id if job else UNKNOWN_ID
        return replace(command, **changes)
    return replace(command, job_id=_job(plan, scene)) if hasattr(command, "job_id") else command


def _is_in_vain(command: c.Command, scene: Scene) -> bool:
    """Whether it is about a claim or a parent, and there is none."""
    live = scene.view.live.values()
    if isinstance(command, c.Add) and command.jobs[0].parent_id:
        return not any(_may_have_children(job) for job in live)
    return getattr(command, "hold", None) is not None and not any(job.owner for job in live)


def _lifted(scene: Scene) -> c.Pause | None:
    """The end of a pause, so that there are seldom many."""
    standing = [read_pause(name) for kind, name in scene.view.records if kind == PAUSE]
    tenant, task, domain = standing[0] if standing else (None, None, None)
    return c.Pause(tenant=tenant, task=task, domain=domain, on=False) if standing else None


def _of_a_handler(command: RollBackHandler | DeleteHandler, plan: Plan, scene: Scene) -> c.Command:
    """About a handler that there is; if there is none, set one."""
    names = sorted(name for kind, name in scene.view.records if kind == HANDLER)
    if not names:
        handler = Handler(task=command.task, tenant=command.tenant, lang="shell", body="true")
        return SetHandler(handler=handler)
    tenant, task = msgspec.json.decode(names[plan.pick % len(names)], type=tuple[str, str])
    return replace(command, tenant=tenant, task=task)


def _may_have_children(job: Job) -> bool:
    return (job.owner != 0 or job.place == Place.PAUSED) and not (job.parent_id and job.strict)


def _cast_add(command: c.Add, plan: Plan, scene: Scene) -> c.Add:
    jobs, hold = [], None
    for new in command.jobs:
        parent = _parent(new.parent_id - 1, scene) if new.parent_id else None
        given = _given(new.id, scene) if new.id else 0
        known = parent.id if parent else UNKNOWN_ID if new.parent_id else 0
        jobs.append(replace(_moody(new, scene.mood if plan.pick % 2 else {}), id=given, parent_id=known))
        if parent is not None:
            hold = _birth_hold(parent, plan, scene)
    more = () if jobs[-1].id else command.more
    if plan.twist == 5 and len(jobs) + len(more) > 1 and not any(new.id or new.parent_id for new in jobs):
        return _group(replace(command, jobs=tuple(jobs), more=more), len(scene.ids))
    return replace(command, jobs=tuple(jobs), more=more, hold=hold)


def _group(command: c.Add, number: int) -> c.Add:
    """The first job with the others as its children, which it waits for from the beginning."""
    parent, *children = command.every()
    bare = [2 * GIVEN_ID + (8 * number + at) * SLOTS for at in range(1 + len(children))]
    (parent_id,) = with_slots(c.Add(jobs=(parent,)), bare[:1]).ids
    jobs = (parent, *(replace(child, parent_id=parent_id) for child in children))
    return with_slots(c.Add(jobs=jobs), bare)


def _moody(new: c.NewJob, mood: dict[str, Any]) -> c.NewJob:
    plain = c.NewJob(task=new.task)
    return replace(new, **{k: v for k, v in mood.items() if getattr(new, k) == getattr(plain, k)})


def _birth_hold(parent: Job, plan: Plan, scene: Scene) -> c.Hold | None:
    """Mostly the parent's own claim, or that of one of its children."""
    siblings = [job for job in scene.view.live.values() if job.parent_id == parent.id and job.owner]
    holder = parent if parent.owner or not siblings else siblings[plan.pick % len(siblings)]
    if plan.twist == 8 or not holder.owner:
        return None
    if plan.twist == 9 and scene.claims:
        holder = scene.claims[plan.pick % len(scene.claims)]
    return c.Hold(job_id=holder.id, owner=holder.owner, claim=None if plan.twist == 7 else holder.claim)


def _parent(pick: int, scene: Scene) -> Job | None:
    live = list(scene.view.live.values())
    fit = [job for job in live if _may_have_children(job)]
    pool = fit if fit and pick < 90 else live
    return pool[pick % len(pool)] if pool and pick < 98 else None


def _given(pick: int, scene: Scene) -> int:
    """An id that there is, or one that never was: who gives an id twice breaks the promise that it is new."""
    there = sorted(scene.view.live.keys() | scene.view.archived.keys())
    chosen = there[pick % len(there)] if pick < 20 and there else GIVEN_ID + pick
    return chosen if chosen in there or chosen not in scene.ids else 0


def _claim(plan: Plan, scene: Scene) -> Job | None:
    """A claim that stands, or (late workers) one of a job that is handed out anew, or any that ever was."""
    live = scene.view.live
    standing = [job for job in live.values() if job.owner]
    late = [
        job
        for job in scene.claims
        if job.id in live and live[job.id].claim > job.claim and live[job.id].owner
    ]
    pool = standing if standing and plan.pick < 85 else scene.claims
    pool = late if late and plan.pick % 6 == 0 else pool
    return pool[plan.pick % len(pool)] if pool else None


def hold_of(job: Job) -> c.Hold:
    """The claim of a job as it stands."""
    return c.hold_of(job)


def _held(job: Job | None, plan: Plan) -> c.Hold:
    if job is None:
        return c.Hold(job_id=UNKNOWN_ID, owner=50, claim=1)
    owner = 51 if plan.twist == 6 else job.owner
    return c.Hold(job_id=job.id, owner=owner, claim=None if plan.twist == 7 else job.claim)


def _job(plan: Plan, scene: Scene) -> int:
    live = list(scene.view.live)
    pool = live if live and plan.pick < 85 else scene.ids
    return pool[plan.pick % len(pool)] if pool and plan.pick < 98 else UNKNOWN_ID
