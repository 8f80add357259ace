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

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core.bounds import DAY_MS, HOUR_MS, LOG_BYTES, LOG_LINE_BYTES, MINUTE_MS
from holdfast.core.commands import RunSchedule, SetRetention, StopWorker
from holdfast.core.job import Backoff, Code, Place, Record, State
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.core.worker import Served, Worker
from holdfast.store.contract import JobFilter

START_MS = 1_767_225_600_250
TENANTS = ("", "t")
TASKS = ("a", "b")
DOMAINS = (b"x", b"y/z\0")
PATTERNS = (b"*", b"x*")
KEYS = (b"k", b"l")
# Processes that use the same store.
PROCESSES = 2
# 1 is the job-command port; claims that name no owner are the process's own.
OWNERS = (0, 1, 50, 51)
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
    process: int = 0
    move_ms: int = 0
    # So many jobs are claimed, and finished.
    toil: int = 0
    # The process ends, in order or not, and another begins.
    reopen: Literal["", "closed", "crashed"] = ""
    # A page of jobs is looked at, from the one that this picks.
    page: int | None = None
    query: JobFilter = JobFilter()


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
# The default itself, which a record does not name, also where it is asked for over the network.
_EMPTY = c.NewJob(task="a").data
_BODIES = (_EMPTY, '{"n":1}', '{"n":null,"m":{"é":2}}', "[1]", b"", b"\x00\xff{")
_PRIORITIES = (0, 501, 1000)
_REPEATS = ("FINISHED, +1 HOUR", "scheduled, +1 MINUTE", "STARTED, +5 SECONDS", "HOURLY", "FINISHED, -1 DAY")
_ENDLESS = ("SCHEDULED, +999 YEARS",)
_LONG = '"' + "x" * 10_000 + '"'
_LINES = (("one", "zwei"), ("x" * LOG_LINE_BYTES,) * (LOG_BYTES // LOG_LINE_BYTES), ("",) * 700)
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
    then=[c.NewJob(task="b"), c.NewJob(task="a", domain=b"x", then=c.NewJob(task="b", data=b"\xff"))],
    on_failure=[
        c.NewJob(task="b"),
        c.NewJob(task="a", domain=b"x", unique=b"k", on_failure=c.NewJob(task="b")),
    ],
)
_new_jobs = st.builds(
    lambda task, options: c.NewJob(task=task, **options),
    st.sampled_from(TASKS),
    _some(4, _PLAIN + _UNIQUE + _THEN + _each(id=(5, 50, 51))),
)
adds = st.builds(
    lambda jobs, pick, twist: Plan(
        command=c.Add(jobs=tuple(jobs), more=_BODIES[: max(twist - 6, 0)]), pick=pick, twist=twist
    ),
    st.lists(_new_jobs, min_size=1, max_size=3),
    _picks,
    st.integers(0, 9),
)
new_jobs = st.builds(
    lambda plan, pick: replace(
        plan,
        command=replace(
            plan.command, jobs=tuple(replace(new, parent_id=pick + 1) for new in plan.command.jobs)
        ),
    ),
    adds,
    _picks,
)
claims = _plans(
    c.Claim,
    3,
    _each(limit=(1, 2, 3, 4), lease_ms=(10, MINUTE_MS, None), owner=OWNERS, mock=(True, True, True))
    + _each(handled=(True,))
    + _each(tasks=(("a",), ("b", "a")), tenant=TENANTS, priority=(500, 1000), glob=("*", "[^b]"))
    + _each(picks=((("", "a", 2), ("t", "b", 1)), (("t", "a", 4), ("", "b", 1))), tenants=(("t",),)),
    limit=2,
    lease_ms=1_000,
)
answers = _plans(
    c.Answer,
    3,
    _each(code=(Code.ERROR, Code.ERROR, Code.RETRY, Code.FAILED, Code.FAILED), counts=(False,))
    + _each(result=_BODIES[:2] + _BODIES[-1:], data=_BODIES[1:3] + _BODIES[-1:], error=("no",))
    + _each(
        lines=_LINES[:1],
        exit_code=(207,),
        delay_ms=(0, 500, MINUTE_MS),
        run_at=_MOMENTS,
        ignore_repeat=(True,),
        compensates=(True,),
    )
    + _each(task=TASKS[:1], priority=_PRIORITIES),
    hold=_HOLD,
)
_CALLED: list[tuple[c.NewJob, ...]] = [
    (c.NewJob(task="a"),),
    (c.NewJob(task="a"), c.NewJob(task="b", delay_ms=1_000, max_attempts=1)),
    (c.NewJob(task="b", unique=b"k", unique_for_ms=1_000), c.NewJob(task="b", unique=b"k")),
    (c.NewJob(task="a", domain=b"x", expires_in_ms=100, wait_for_failed=True),),
]
_NEW_STEPS = ((c.NewStep(kind="error", name="a", result="{}"), c.NewStep(kind="version", name="v")),)
suspensions = st.builds(
    lambda options, after, data, pick, twist: Plan(
        command=c.Answer(
            hold=_HOLD,
            code=Code.SUSPEND,
            suspend=c.Suspension(**(options | after)),
            lines=("going",),
            data=data,
        ),
        pick=pick,
        twist=twist,
    ),
    st.sampled_from(
        [
            *({"kind": "sleep"} | one for one in _each(delay_ms=(1, MINUTE_MS), until=_MOMENTS, step=(1, 2))),
            *({"kind": "signal", "name": name} for name in ("x", "y")),
            *({"kind": "signal", "name": "x"} | one for one in _each(delay_ms=(1_000,), step=(1, 2, 3))),
            *({"kind": "call"} | one for one in _each(jobs=_CALLED, step=(1, 2, 3))),
            {"kind": "restart"},
        ]
    ),
    _some(1, _each(steps=_NEW_STEPS)),
    st.sampled_from((None, None, None, '{"n":3}')),
    _picks,
    st.integers(0, 9),
)
signals = _plans(
    c.SendSignal, 2, _each(name=("x", "y"), data=("1", _LONG), key=("k", "l")), job_id=0, name="x"
)
_STEPPED = _each(name=("b",), result=("[1]", _LONG), before=_NEW_STEPS, number=(1, 2, 3), kind=("undo",))
_STEPPED += _each(compensates=(True,))
held_verbs = _often(
    (
        1,
        _plans(
            c.Release,
            1,
            _each(lost=(True,), crowd=(0, 1, 3), delay_ms=(500,), error=("SIGKILL",)),
            hold=_HOLD,
        ),
    ),
    (1, _plans(c.Extend, 1, _each(lease_ms=(10, MINUTE_MS), ran_ms=(0, 700)), hold=_HOLD, lease_ms=1_000)),
    (1, _plans(c.Report, 1, _each(fraction=(0.0, 1.0), note=("half",)), hold=_HOLD, fraction=0.5)),
    (2, _plans(c.Step, 2, _STEPPED, hold=_HOLD, name="a", result="1")),
    (1, _plans(c.WriteLog, 1, _each(lines=_LINES), hold=_HOLD, lines=("begun",))),
)
_UPDATES = _each(data=_BODIES, priority=_PRIORITIES, run_at=_MOMENTS, task=TASKS)
_UPDATES += _each(repeat=("", *_REPEATS, *_ENDLESS))
operators = _often(
    (2, _plans(c.Update, 3, _UPDATES, job_id=0)),
    (1, _plans(c.Update, 3, _UPDATES, job_id=0, hold=_HOLD)),
    (2, _plans(c.Cancel, 1, _each(force=(True,)), job_id=0)),
    (
        2,
        _plans(
            c.Requeue, 2, _each(run_at=_MOMENTS, task=TASKS, forgive=(0, 1), from_step=("a", "2")), job_id=0
        ),
    ),
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
    (2, _plans(RunSchedule, 1, _NAMED, name="s")),
)
_WORKERS = [
    Worker(
        name=name, host="h", pid=1, started_at=1, serves=(Served(tenant=tenant, tasks=("a",)),), until_ms=at
    )
    for name, tenant, at in product(("v", "w"), (None, "t"), (START_MS, START_MS + HOUR_MS))
]
_SEEN = _each(tenant=(*TENANTS, "t"), name=("v",))
managing = _often(
    (2, _plans(c.Enlist, 2, _each(worker=_WORKERS, tenant=("t",)), worker=_WORKERS[-1])),
    (2, _plans(StopWorker, 1, _SEEN, name="w")),
    (1, _plans(c.Dismiss, 1, _SEEN, name="w")),
    (1, _plans(SetRetention, 1, _each(retention_ms=(0, 60_000)), retention_ms=HOUR_MS)),
)
_SET = _each(
    tenant=("t",), lang=("node",), body=("cat", "é\0"), eid=("e",), before=("one",), after_each=("x",)
)
_SET += _each(options=(h.RunnerOptions(batch=True, timeout_ms=5),))
handlers = _often(
    (
        4,
        st.builds(
            lambda task, options: Plan(
                command=h.SetHandler(
                    handler=h.Handler(task=task, **({"lang": "shell", "body": "true"} | options))
                )
            ),
            st.sampled_from(TASKS),
            _some(2, _SET),
        ),
    ),
    (
        2,
        _plans(
            h.RollBackHandler, 2, _each(tenant=("t",), task=("b",), version=(0, 2, 5)), task="a", version=1
        ),
    ),
    (1, _plans(h.DeleteHandler, 1, _each(tenant=("t",), task=("b",)), task="a")),
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
    (5, new_jobs),
    (6, claims),
    (8, answers),
    (5, held_verbs),
    (3, suspensions),
    (3, signals),
    (5, operators),
    (3, governing),
    (2, schedules),
    (1, managing),
    (2, handlers),
    (2, upkeeps),
)
_filters = _some(
    2,
    _each(tenant=TENANTS, task=TASKS, state=tuple(State), place=tuple(Place), domain=DOMAINS)
    + _each(schedule=("s",), archived=(True, True, True)),
).map(lambda options: JobFilter(**options))
_process = st.integers(0, PROCESSES - 1)
_forward = st.sampled_from(MOVES_MS)
events = _often(
    (9, st.builds(lambda plan: Event(plans=(plan,)), _anything)),
    (5, st.builds(lambda plan: Event(plans=(plan,), process=1), _anything)),
    (3, st.builds(lambda plan, ms: Event(plans=(plan,), move_ms=ms), _anything, _forward)),
    (3, st.builds(lambda plans: Event(plans=tuple(plans)), st.lists(_anything, min_size=2, max_size=4))),
    (2, st.builds(lambda count: Event(toil=count), st.integers(1, 4))),
    (1, st.builds(lambda ms: Event(move_ms=ms), st.sampled_from(MOVES_BACK_MS))),
    (
        1,
        st.builds(
            lambda how, n: Event(reopen=how, process=n), st.sampled_from(("closed", "crashed")), _process
        ),
    ),
    (1, st.builds(lambda query, page: Event(query=query, page=page), _filters, _picks)),
)
moods = st.sampled_from(
    ({}, {}, {"domain": b"x"}, {"retry_after": 500}, {"strict": True, "wait_for_failed": True})
    + ({"unique": b"k", "on_conflict": "replace"}, {"max_attempts": 2, "max_losses": 2}, {"mock": True})
)
