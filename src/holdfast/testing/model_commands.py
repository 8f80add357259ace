"""What the model asks of a queue: every command with every option, from a world small enough to clash in.

A command that is about a job is drawn without its id: it comes as a `Plan`, whose `pick` chooses among
the jobs or claims that there are when its turn comes. So histories shrink well, and most commands
meet something.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

from hypothesis import strategies as st
from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import DAY_MS, HOUR_MS, MINUTE_MS
from ..core.job import Backoff, Code, Job, Place, Record, State
from ..core.limits import Limit
from ..core.schedule import Schedule
from ..core.unique import UniqueKey, key_of
from ..engine.records import PAUSE, read_pause
from ..store.contract import JobFilter
from .model_view import View

START_MS = 1_767_225_600_250
TENANTS = ("", "t")
TASKS = ("a", "b")
DOMAINS = (b"x", b"y/z\0")
PATTERNS = (b"*", b"x*")
KEYS = (b"k", b"l")
# 1 is the job-command port; claims that name no owner are the process's own.
OWNERS = (0, 1, 50, 51)
UNIQUE_KEYS: list[UniqueKey] = [
    key
    for tenant, task, name, mock in product(TENANTS, TASKS, KEYS, (False, True))
    if (key := key_of(c.NewJob(tenant=tenant, task=task, unique=name, mock=mock)))
]
# Given ids begin here, far below those that are made.
GIVEN_ID = 1 << 20
UNKNOWN_ID = 12345

MOVES_MS = (
    1,
    99,
    100,
    101,
    500,
    1_000,
    1_001,
    5_000,
    10_000,
    MINUTE_MS,
    10 * MINUTE_MS,
    HOUR_MS,
    25 * HOUR_MS,
)
MOVES_BACK_MS = (-1, -100, -1_000, -MINUTE_MS, -HOUR_MS)


class Plan(Record, frozen=True, kw_only=True):
    """A command, and which job it is about; `twist` makes some of them late, or strangers' own."""

    command: c.Command
    pick: int = 0
    twist: int = 0


class Event(Record, frozen=True, kw_only=True):
    """What happens next. First the clock moves, if it does; then there is one transaction, or none."""

    plans: tuple[Plan, ...] = ()
    move_ms: int = 0
    # So many jobs are claimed, and finished.
    toil: int = 0
    # The processes end, in order or not, and others begin.
    reopen: Literal["", "closed", "crashed"] = ""
    # A page of jobs is looked at, from the one that this picks.
    page: int | None = None
    query: JobFilter = JobFilter()


class Scene(Record, frozen=True, kw_only=True):
    """What a plan is cast in: what there is, every claim that was ever handed out, and a mood.

    A mood is options that half of all new jobs have, so that some histories are about one thing.
    """

    view: View
    claims: list[Job]
    ids: list[int]
    mood: dict[str, Any]


# ── what is drawn ────────────────────────────────────────────────────────────────────────────────

# Options come as fragments, one draw each; the fewer there are at once, the more often two of them meet.
Fragment = dict[str, Any]


def _each(**values: Sequence[Any]) -> list[Fragment]:
    return [{name: value} for name, choices in values.items() for value in choices]


def _some(most: int, fragments: list[Fragment]) -> st.SearchStrategy[Fragment]:
    """A few of these fragments, in one."""
    chosen = st.lists(st.sampled_from(fragments), max_size=most)
    return chosen.map(lambda parts: {name: value for part in parts for name, value in part.items()})


def _often(*weighted: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of these, each as often as it says."""
    pool = [strategy for weight, strategy in weighted for _ in range(weight)]
    return st.integers(0, len(pool) - 1).flatmap(pool.__getitem__)


def _plans(kind: Any, most: int, fragments: list[Fragment], **known: Any) -> st.SearchStrategy[Plan]:
    """Plans of a kind of command, with what is always given and a few fragments."""
    return st.builds(
        lambda options, pick, twist: Plan(command=kind(**(known | options)), pick=pick, twist=twist),
        _some(most, fragments) if fragments else st.just({}),
        _picks,
        st.integers(0, 9),
    )


_picks = st.integers(0, 99)
_MOMENTS = (START_MS - DAY_MS, START_MS + 1, START_MS + MINUTE_MS, START_MS + HOUR_MS)
_BODIES = ("{}", '{"n":1}', '{"n":null,"m":{"é":2}}', "[1]", b"", b"\x00\xff{")
_PRIORITIES = (0, 501, 1000)
_REPEATS = ("FINISHED, +1 HOUR", "scheduled, +1 MINUTE", "STARTED, +5 SECONDS", "HOURLY", "FINISHED, -1 DAY")
_ENDLESS = ("SCHEDULED, +999 YEARS",)
_HOLD = c.Hold(job_id=0, owner=0)

_UNIQUE: list[Fragment] = [
    {"unique": key, "on_conflict": on_conflict, "unique_for_ms": for_ms}
    for key, on_conflict, for_ms in product(KEYS, ("keep", "merge", "replace"), (0, 1_000))
]
_PLAIN = _each(
    tenant=("t",),
    data=_BODIES,
    priority=_PRIORITIES,
    delay_ms=(1, 1_000, MINUTE_MS),
    run_at=_MOMENTS,
    expires_in_ms=(100, HOUR_MS),
    expires_at=_MOMENTS,
    max_attempts=(0, 1, 2),
    max_losses=(0, 1, 2),
    backoff=(Backoff(first_ms=0, most_ms=0), Backoff(first_ms=100, most_ms=1_000, jitter=0.5)),
    timeout_ms=(1, 1_000, MINUTE_MS),
    retry_after=(500, 5_000, "+1 SECOND", "+0 SECONDS", "WEEKDAY 1", "+999 YEARS"),
    repeat=_REPEATS + _ENDLESS,
    domain=DOMAINS[:1] * 8 + DOMAINS,
    wait_for_failed=(True,),
    mock=(True,),
    strict=(True,),
)
_PLAIN += [{"strict": True, "wait_for_failed": True}]
_THEN = _each(
    then=[c.NewJob(task="b"), c.NewJob(task="a", domain=b"x", then=c.NewJob(task="b", data=b"\xff"))]
)
_new_jobs = st.builds(
    lambda task, options: c.NewJob(task=task, **options),
    st.sampled_from(TASKS),
    _some(4, _PLAIN + _UNIQUE + _THEN + _each(id=(5, 50, 51))),
)
adds = st.builds(
    lambda jobs, pick, twist: Plan(command=c.Add(jobs=tuple(jobs)), pick=pick, twist=twist),
    st.lists(_new_jobs, min_size=1, max_size=3),
    _picks,
    st.integers(0, 9),
)
births = st.builds(
    lambda plan, pick: replace(
        plan,
        command=c.Add(jobs=tuple(replace(new, parent_id=pick + 1) for new in plan.command.jobs)),
    ),
    adds,
    _picks,
)
claims = _plans(
    c.Claim,
    3,
    _each(limit=(1, 2, 3, 4), lease_ms=(10, MINUTE_MS, None), owner=OWNERS, mock=(True, True, True))
    + _each(tasks=(("a",), ("b", "a")), tenant=TENANTS, priority=(500, 1000)),
    limit=2,
    lease_ms=1_000,
)
answers = _plans(
    c.Answer,
    3,
    _each(code=(Code.ERROR, Code.ERROR, Code.RETRY, Code.FAILED, Code.FAILED), counts=(False,))
    + _each(result=_BODIES[:2] + _BODIES[-1:], data=_BODIES[1:3] + _BODIES[-1:], error=("no",))
    + _each(exit_code=(207,), delay_ms=(0, 500, MINUTE_MS), run_at=_MOMENTS, ignore_repeat=(True,)),
    hold=_HOLD,
)
held_verbs = _often(
    (1, _plans(c.Release, 1, _each(lost=(True,)), hold=_HOLD)),
    (1, _plans(c.Extend, 1, _each(lease_ms=(10, MINUTE_MS)), hold=_HOLD, lease_ms=1_000)),
    (1, _plans(c.Report, 1, _each(fraction=(0.0, 1.0), note=("half",)), hold=_HOLD, fraction=0.5)),
)
_UPDATES = _each(data=_BODIES, priority=_PRIORITIES, run_at=_MOMENTS, task=TASKS)
_UPDATES += _each(repeat=("", *_REPEATS, *_ENDLESS))
operators = _often(
    (2, _plans(c.Update, 3, _UPDATES, job_id=0)),
    (1, _plans(c.Update, 3, _UPDATES, job_id=0, hold=_HOLD)),
    (2, _plans(c.Cancel, 1, _each(force=(True,)), job_id=0)),
    (2, _plans(c.Requeue, 2, _each(run_at=_MOMENTS, task=TASKS), job_id=0)),
    (1, _plans(c.Delete, 0, [], job_id=0)),
)
_LIMITS = [
    Limit(rate=rate, burst=burst, concurrency=concurrency)
    for rate, burst, concurrency in product((None, 10.0, 3.0, 0.1), (1, 2), (None, 0, 1, 2))
    if rate is not None or concurrency is not None
]
_PAUSES = [
    *(c.Pause(**what) for what in _each(task=TASKS, domain=DOMAINS, tenant=TENANTS)),
    *(c.Pause(tenant="t", **what) for what in _each(task=TASKS, domain=DOMAINS)),
]
governing = _often(
    (
        2,
        _plans(
            c.SetLimit,
            3,
            _each(domain=(*DOMAINS, *PATTERNS), tenant=("t",), limit=[*_LIMITS, None, None, None]),
            domain=b"x",
            limit=Limit(concurrency=1),
        ),
    ),
    (
        1,
        st.builds(
            lambda pause, twist: Plan(command=pause, twist=twist), st.sampled_from(_PAUSES), st.integers(0, 9)
        ),
    ),
)
_NAMED = _each(name=("r",), tenant=("t",))
_TIMES: list[Fragment] = [
    *_each(every_ms=(10_000, HOUR_MS), cron=("*/5 * * * *",)),
    *_each(repeat=("FINISHED, +1 MINUTE", "STARTED, +5 SECONDS", "SCHEDULED, +1 HOUR")),
    {"every_ms": HOUR_MS, "catch_up": "all"},
]
_LIVES = _each(catch_up=("none",), overlap=("wait", "allow"), jitter_ms=(4_000,)) + _NAMED
_schedules = st.builds(
    lambda options, when: Schedule(**({"name": "s"} | options | when)),
    _some(2, _LIVES),
    st.sampled_from(_TIMES),
)
schedules = _often(
    (
        3,
        st.builds(
            lambda schedule, new: Plan(command=c.SetSchedule(schedule=schedule, job=new)),
            _schedules,
            _new_jobs,
        ),
    ),
    (1, _plans(c.DeleteSchedule, 1, _NAMED, name="s")),
    (1, _plans(c.PauseSchedule, 2, _NAMED + _each(on=(False, False)), name="s")),
)
upkeeps = _often(
    (2, _plans(c.Upkeep, 0, [])),
    (
        1,
        _plans(c.Purge, 2, _each(before_ms=_MOMENTS[1:], tenant=TENANTS, limit=(1,)), before_ms=_MOMENTS[-1]),
    ),
)
_anything = _often(
    (6, adds),
    (5, births),
    (6, claims),
    (8, answers),
    (4, held_verbs),
    (5, operators),
    (3, governing),
    (2, schedules),
    (2, upkeeps),
)
_filters = _some(
    2,
    _each(tenant=TENANTS, task=TASKS, state=tuple(State), place=tuple(Place), domain=DOMAINS)
    + _each(schedule=("s",), archived=(True, True, True)),
).map(lambda options: JobFilter(**options))
_forward = st.sampled_from(MOVES_MS)
events = _often(
    (14, st.builds(lambda plan: Event(plans=(plan,)), _anything)),
    (3, st.builds(lambda plan, ms: Event(plans=(plan,), move_ms=ms), _anything, _forward)),
    (3, st.builds(lambda plans: Event(plans=tuple(plans)), st.lists(_anything, min_size=2, max_size=4))),
    (2, st.builds(lambda count: Event(toil=count), st.integers(1, 4))),
    (1, st.builds(lambda ms: Event(move_ms=ms), st.sampled_from(MOVES_BACK_MS))),
    (1, st.builds(lambda how: Event(reopen=how), st.sampled_from(("closed", "crashed")))),
    (1, st.builds(lambda query, page: Event(query=query, page=page), _filters, _picks)),
)
moods = st.sampled_from(
    ({}, {}, {"domain": b"x"}, {"retry_after": 500}, {"strict": True, "wait_for_failed": True})
    + ({"unique": b"k", "on_conflict": "replace"}, {"max_attempts": 2, "max_losses": 2}, {"mock": True})
)


# ── which job it is about ────────────────────────────────────────────────────────────────────────


def cast(plan: Plan, scene: Scene) -> c.Command:
    """The command of a plan, about a job that there is; sometimes about one that was, or never."""
    command = plan.command
    if plan.twist < 7 and _is_in_vain(command, scene):
        # Rather than nothing: get something to work on.
        return c.Claim(limit=3, lease_ms=MINUTE_MS, mock=plan.twist > 3)
    if isinstance(command, c.Add):
        return _cast_add(command, plan, scene)
    if isinstance(command, c.Pause):
        return _lifted(scene) or command if plan.twist > 2 else command
    if isinstance(command, c.SetSchedule):
        return replace(command, job=replace(command.job, id=0))
    if isinstance(command, c.Answer):
        job = _claim(plan, scene)
        held = {8: job, 9: scene.view.live.get(job.id)}.get(plan.twist) if job else None
        return replace(command, hold=_held(job, plan), held=held)
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


def _may_have_children(job: Job) -> bool:
    return job.place in (Place.RUNNING, Place.PAUSED) and not job.parent_id


def _cast_add(command: c.Add, plan: Plan, scene: Scene) -> c.Add:
    jobs, hold = [], None
    for new in command.jobs:
        parent = _parent(new.parent_id - 1, scene) if new.parent_id else None
        given = _given(new.id, scene) if new.id else 0
        known = parent.id if parent else UNKNOWN_ID if new.parent_id else 0
        jobs.append(replace(_moody(new, scene.mood if plan.pick % 2 else {}), id=given, parent_id=known))
        if parent is not None:
            hold = _birth_hold(parent, plan, scene)
    return replace(command, jobs=tuple(jobs), hold=hold)


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
    """A claim that stands, or (late workers) any that was ever handed out."""
    standing = [job for job in scene.view.live.values() if job.owner]
    pool = standing if standing and plan.pick < 85 else scene.claims
    return pool[plan.pick % len(pool)] if pool else None


def hold_of(job: Job) -> c.Hold:
    """The claim of a job as it stands."""
    return c.Hold(job_id=job.id, owner=job.owner, claim=job.claim)


def _held(job: Job | None, plan: Plan) -> c.Hold:
    if job is None:
        return c.Hold(job_id=UNKNOWN_ID, owner=50, claim=1)
    owner = 51 if plan.twist == 6 else job.owner
    return c.Hold(job_id=job.id, owner=owner, claim=None if plan.twist == 7 else job.claim)


def _job(plan: Plan, scene: Scene) -> int:
    live = list(scene.view.live)
    pool = live if live and plan.pick < 85 else scene.ids
    return pool[plan.pick % len(pool)] if pool and plan.pick < 98 else UNKNOWN_ID
