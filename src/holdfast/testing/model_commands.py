"""What the model asks of a queue: every command with every option, from a world small enough to clash in.

A command that is about a job is drawn without its id: it comes as a `Plan`, whose `pick` chooses among
the jobs or claims that there are when its turn comes. So histories shrink well, and most commands
meet something.
"""

from itertools import product
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import DAY_MS, HOUR_MS, MINUTE_MS
from ..core.job import Backoff, Code, Job, Place, Record, State
from ..core.limits import Limit
from ..core.schedule import Schedule
from ..core.unique import UniqueKey, key_of
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


class Scene(Record, frozen=True, kw_only=True):
    """What a plan is cast in: what there is, and every claim that was ever handed out."""

    view: View
    claims: list[Job]
    ids: list[int]


# ── what is drawn ────────────────────────────────────────────────────────────────────────────────

_picks = st.integers(0, 99)
_twists = st.integers(0, 9)
_moments = st.sampled_from((START_MS - DAY_MS, START_MS + 1, START_MS + MINUTE_MS, START_MS + HOUR_MS))
_bodies = st.sampled_from(("{}", '{"n":1}', '{"n":null,"m":{"é":2}}', "[1]", b"", b"\x00\xff{"))
_priorities = st.sampled_from((0, 500, 501, 1000))
_repeats = st.sampled_from(
    ("FINISHED, +1 HOUR", "SCHEDULED, +1 MINUTE", "STARTED, +5 SECONDS", "HOURLY", "FINISHED, -1 DAY")
    + ("SCHEDULED, +999 YEARS",)
)
_retry_afters = st.sampled_from((500, 5_000, "+1 SECOND", "+0 SECONDS", "WEEKDAY 1", "+999 YEARS"))
_backoffs = st.sampled_from(
    (Backoff(first_ms=0, most_ms=0), Backoff(first_ms=100, most_ms=1_000, jitter=0.5))
)


def _some(most: int, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of these options; the fewer at once, the more often each of them meets another."""
    pairs = [st.tuples(st.just(name), strategy) for name, strategy in strategies.items()]
    return st.lists(st.one_of(pairs), max_size=most).map(dict) if pairs else st.just({})


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "tenant": st.sampled_from(TENANTS),
    "data": _bodies,
    "priority": _priorities,
    "delay_ms": st.sampled_from((1, 1_000, MINUTE_MS)),
    "run_at": _moments,
    "expires_in_ms": st.sampled_from((100, 5_000, HOUR_MS)),
    "expires_at": _moments,
    "max_attempts": st.sampled_from((0, 1, 2)),
    "max_losses": st.sampled_from((0, 1, 2)),
    "backoff": _backoffs,
    "timeout_ms": st.sampled_from((1, 1_000, MINUTE_MS)),
    "retry_after": _retry_afters,
    "repeat": _repeats,
    "domain": st.sampled_from(DOMAINS),
    "wait_for_failed": st.just(True),
    "mock": st.just(True),
    "strict": st.just(True),
}
_tasks = st.sampled_from(TASKS)
_follower = st.builds(lambda task, options: c.NewJob(task=task, **options), _tasks, _some(3, **_PLAIN))
_unique = st.builds(
    lambda key, on_conflict, unique_for_ms: {
        "unique": key,
        "on_conflict": on_conflict,
        "unique_for_ms": unique_for_ms,
    },
    st.sampled_from(KEYS),
    st.sampled_from(("keep", "merge", "replace")),
    st.sampled_from((0, 0, 1_000, HOUR_MS)),
)
_new_jobs = st.builds(
    lambda task, options, unique: c.NewJob(task=task, **options, **unique),
    _tasks,
    _some(5, **_PLAIN, domain_too=st.sampled_from(DOMAINS), then=_follower, id=_picks).map(
        lambda options: {"domain" if name == "domain_too" else name: value for name, value in options.items()}
    ),
    st.one_of(st.just({}), _unique),
)
_hold = c.Hold(job_id=0, owner=0)


def _plan(command: st.SearchStrategy[c.Command]) -> st.SearchStrategy[Plan]:
    return st.builds(
        lambda command, pick, twist: Plan(command=command, pick=pick, twist=twist), command, _picks, _twists
    )


def _command(kind: Any, most: int = 3, **fixed: Any) -> Any:
    """Commands of a kind: `fixed` values and strategies always, a few `options` beside them."""
    options = fixed.pop("options", {})
    always = {name: v if isinstance(v, st.SearchStrategy) else st.just(v) for name, v in fixed.items()}
    return st.builds(
        lambda known, extra: kind(**known, **extra), st.fixed_dictionaries(always), _some(most, **options)
    )


adds = _plan(_command(c.Add, jobs=st.lists(_new_jobs, min_size=1, max_size=3).map(tuple)))
births = st.builds(
    lambda plan, pick: replace(
        plan,
        command=replace(
            plan.command, jobs=tuple(replace(new, parent_id=pick + 1) for new in plan.command.jobs)
        ),
    ),
    adds,
    _picks,
)
claims = _plan(
    _command(
        c.Claim,
        limit=st.integers(1, 4),
        lease_ms=st.sampled_from((10, 1_000, MINUTE_MS, None)),
        owner=st.sampled_from(OWNERS),
        mock=st.booleans(),
        most=1,
        options={
            "tasks": st.sampled_from((("a",), ("b",), ("b", "a"))),
            "tenant": st.sampled_from(TENANTS),
            "priority": _priorities,
        },
    )
)
answers = _plan(
    _command(
        c.Answer,
        hold=_hold,
        code=st.sampled_from((Code.OK, Code.OK, Code.ERROR, Code.RETRY, Code.FAILED)),
        options={
            "result": _bodies,
            "data": _bodies,
            "error": st.sampled_from(("", "no")),
            "exit_code": st.just(207),
            "delay_ms": st.sampled_from((0, 500, MINUTE_MS)),
            "run_at": _moments,
            "counts": st.just(False),
            "ignore_repeat": st.just(True),
        },
    )
)
held_verbs = st.one_of(
    _plan(_command(c.Release, hold=_hold, lost=st.booleans())),
    _plan(_command(c.Extend, hold=_hold, lease_ms=st.sampled_from((10, 1_000, MINUTE_MS)))),
    _plan(_command(c.Report, hold=_hold, fraction=st.sampled_from((0.0, 0.5, 1.0)), note="half")),
)
_updates = {"data": _bodies, "priority": _priorities, "run_at": _moments, "task": _tasks}
_updates["repeat"] = st.one_of(st.just(""), _repeats)
operators = st.one_of(
    _plan(_command(c.Update, job_id=0, hold=st.sampled_from((None, _hold)), options=_updates)),
    _plan(_command(c.Cancel, job_id=0, force=st.booleans())),
    _plan(
        _command(
            c.Requeue, job_id=0, run_at=st.one_of(st.just(0), _moments), task=st.sampled_from((None, *TASKS))
        )
    ),
    _plan(_command(c.Delete, job_id=0)),
)
_limits = st.builds(
    lambda rate, burst, concurrency: Limit(
        rate=rate, burst=burst, concurrency=1 if rate is None and concurrency is None else concurrency
    ),
    st.sampled_from((None, 10.0, 3.0, 1.0, 0.1)),
    st.sampled_from((1, 1, 2, 3)),
    st.sampled_from((None, 0, 1, 2, 3)),
)
governing = st.one_of(
    _plan(
        _command(
            c.SetLimit,
            domain=st.sampled_from(DOMAINS + PATTERNS),
            tenant=st.sampled_from(("", "", "t")),
            limit=st.one_of(_limits, _limits, st.none()),
        )
    ),
    _plan(
        _command(
            c.Pause,
            tenant=st.sampled_from((None, *TENANTS)),
            on=st.booleans(),
            most=1,
            options={"task": _tasks, "domain": st.sampled_from(DOMAINS)},
        )
    ),
)
_names = st.sampled_from(("s", "r"))
_times = st.sampled_from(
    (
        {"every_ms": 10_000},
        {"every_ms": HOUR_MS},
        {"every_ms": HOUR_MS, "catch_up": "all"},
        {"cron": "*/5 * * * *"},
    )
    + ({"repeat": "FINISHED, +1 MINUTE"}, {"repeat": "STARTED, +5 SECONDS"}, {"repeat": "SCHEDULED, +1 HOUR"})
)
_schedules = st.builds(
    lambda name, tenant, when, options: Schedule(name=name, tenant=tenant, **(options | when)),
    _names,
    st.sampled_from(TENANTS),
    _times,
    _some(
        3,
        catch_up=st.sampled_from(("none", "one")),
        overlap=st.sampled_from(("skip", "wait", "allow")),
        jitter_ms=st.just(4_000),
    ),
)
schedules = st.one_of(
    _plan(_command(c.SetSchedule, schedule=_schedules, job=_new_jobs)),
    _plan(_command(c.DeleteSchedule, name=_names, tenant=st.sampled_from(TENANTS))),
    _plan(_command(c.PauseSchedule, name=_names, tenant=st.sampled_from(TENANTS), on=st.booleans())),
)
upkeeps = st.one_of(
    _plan(st.just(c.Upkeep())),
    _plan(
        _command(
            c.Purge, before_ms=_moments, tenant=st.sampled_from((None, *TENANTS)), limit=st.integers(1, 3)
        )
    ),
)
filters = _some(
    2,
    tenant=st.sampled_from(TENANTS),
    task=_tasks,
    state=st.sampled_from(tuple(State)),
    place=st.sampled_from(tuple(Place)),
    domain=st.sampled_from(DOMAINS),
    schedule=st.just("s"),
    archived=st.just(True),
).map(lambda options: JobFilter(**options))
anything = st.one_of(adds, births, claims, answers, held_verbs, operators, governing, schedules, upkeeps)


# ── which job it is about ────────────────────────────────────────────────────────────────────────


def cast(plan: Plan, scene: Scene) -> c.Command:
    """The command of a plan, about a job that there is; sometimes about one that was, or never."""
    command = plan.command
    if isinstance(command, c.Add):
        return _cast_add(command, plan, scene)
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


def _cast_add(command: c.Add, plan: Plan, scene: Scene) -> c.Add:
    jobs, hold = [], None
    for new in command.jobs:
        parent = _parent(new.parent_id - 1, scene) if new.parent_id else None
        given = _given(new.id, scene) if new.id else 0
        jobs.append(
            replace(new, id=given, parent_id=parent.id if parent else UNKNOWN_ID if new.parent_id else 0)
        )
        if parent is not None:
            hold = _birth_hold(parent, plan, scene)
    return replace(command, jobs=tuple(jobs), hold=hold)


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
    fit = [job for job in live if job.place in (Place.RUNNING, Place.PAUSED) and not job.parent_id]
    pool = fit if fit and pick < 90 else live
    return pool[pick % len(pool)] if pool and pick < 98 else None


def _given(pick: int, scene: Scene) -> int:
    return scene.ids[pick % len(scene.ids)] if pick < 20 and scene.ids else GIVEN_ID + pick


def _claim(plan: Plan, scene: Scene) -> Job | None:
    """A claim that stands, or (late workers) any that was ever handed out."""
    standing = [job for job in scene.view.live.values() if job.owner]
    pool = standing if standing and plan.pick < 85 else scene.claims
    return pool[plan.pick % len(pool)] if pool else None


def _held(job: Job | None, plan: Plan) -> c.Hold:
    if job is None:
        return c.Hold(job_id=UNKNOWN_ID, owner=50, claim=1)
    owner = 51 if plan.twist == 6 else job.owner
    return c.Hold(job_id=job.id, owner=owner, claim=None if plan.twist == 7 else job.claim)


def _job(plan: Plan, scene: Scene) -> int:
    live = list(scene.view.live)
    pool = live if live and plan.pick < 85 else scene.ids
    return pool[plan.pick % len(pool)] if pool and plan.pick < 98 else UNKNOWN_ID
