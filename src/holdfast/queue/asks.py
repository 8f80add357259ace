"""The command or query of each verb, and how its reply is decoded; for `Queue` and `AsyncQueue`."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ..core import commands as c
from ..core import queries as q
from ..core.bounds import CLAIM_JOBS, DOMAIN_BYTES, MIN_LEASE_MS, PAGE_JOBS
from ..core.checks import check_command, check_key, check_name, check_new, check_whole
from ..core.commands import RunSchedule, SetRetention, StopWorker
from ..core.creating import add_commands
from ..core.errors import BadInput, JobFailed, NotFound, Timeout
from ..core.job import Body, Job, State, readable
from ..core.limits import Limit, check_limit
from ..core.notes import LogLine, StepResult
from ..core.queries import GetRetention
from ..core.schedule import Schedule
from ..core.schedule import check as check_schedule
from ..core.units import duration_ms, moment_ms
from ..core.worker import Worker
from .encoding import decode, encode_data
from .options import (
    Duration,
    JobOptions,
    Key,
    Moment,
    job_id,
    key_bytes,
    new_job,
    rate_per_s,
    task_name,
)

T = TypeVar("T")
# The jobs of these states are in the archive, unless their parent still runs.
ARCHIVED_STATES = (State.FINISHED, State.CANCELLED)


class QueueRequest(NamedTuple, Generic[T]):
    """A command or query, how long it may wait, and the function that decodes its reply."""

    asked: c.Command | q.Query
    read: Callable[[Any], T]
    wait_s: float = 0.0


def same(reply: Any) -> Any:
    """Return a reply unchanged."""
    return reply


class ExistingId(int):
    """The id of a job that had the unique key of an added one before."""


def add(calls: Iterable[c.NewJob | Body], hold: c.Hold | None = None) -> list[QueueRequest[list[int]]]:
    """Add jobs: one request for each transaction. All jobs are checked before the first is added."""
    return [QueueRequest(command, same) for command in add_commands(calls, hold)]


def add_and_mark(calls: Iterable[c.NewJob | Body]) -> list[QueueRequest[list[int]]]:
    """Add jobs, and tell by `ExistingId` which of them were there before."""
    return [
        QueueRequest(replace(command, mark_existing=True), _marked)
        if any(new.unique is not None for new in command.jobs)
        else QueueRequest(command, same)
        for command in add_commands(calls)
    ]


def _marked(ids: list[int]) -> list[int]:
    return [ExistingId(-one) if one < 0 else one for one in ids]


def write(data: Any) -> Body:
    """Encode the data of a job whose task is not known here."""
    return encode_data("data", {} if data is None else data)


def call(task: str, data: Any, options: JobOptions, *, tenant: str) -> c.NewJob:
    """A job by the name of its task."""
    return new_job(task, write(data), options, tenant=tenant)


def lease_ms_of(lease: Duration) -> int:
    """A lease in ms; raises if it is too short."""
    return duration_ms(lease, name="lease", least_ms=MIN_LEASE_MS)


def wait_s_of(wait: Duration | None) -> float:
    """How long a call may wait, in seconds."""
    return 0.0 if wait is None else duration_ms(wait, name="wait") / 1000


def task_names(tasks: Iterable[Any] | None) -> tuple[str, ...] | None:
    """The names of tasks; None for all."""
    if isinstance(tasks, str) or not (tasks is None or isinstance(tasks, Iterable)):
        raise BadInput("tasks", tasks, needed="a list of tasks, such as ['resize']")
    return None if tasks is None else tuple(task_name(task) for task in tasks)


def claim(
    tasks: Iterable[Any] | None, *, tenant: str, limit: int, lease_ms: int, wait: Duration | None
) -> QueueRequest[list[c.Claimed]]:
    """Lease jobs of these tasks, or of any."""
    names = task_names(tasks)
    check_whole("limit", limit, 1, CLAIM_JOBS)
    command = c.Claim(tasks=names, tenant=tenant, limit=limit, lease_ms=lease_ms)
    return QueueRequest(command, same, wait_s_of(wait))


def cancel(job: Any, *, force: bool) -> QueueRequest[Job]:
    """Cancel a job."""
    return QueueRequest(c.Cancel(job_id=job_id(job), force=bool(force)), same)


def requeue(
    job: Any, *, run_at: Moment | None, unless_running: bool, from_step: str | int
) -> QueueRequest[Job]:
    """Requeue a job."""
    at = 0 if run_at is None else moment_ms(run_at, name="run_at")
    command = c.Requeue(
        job_id=job_id(job), run_at=at, unless_running=bool(unless_running), from_step=str(from_step)
    )
    check_command(command)
    return QueueRequest(command, same)


def delete(job: Any) -> QueueRequest[None]:
    """Delete a job."""
    return QueueRequest(c.Delete(job_id=job_id(job)), same)


def update(
    job: Any,
    *,
    data: Any = None,
    priority: int | None = None,
    run_at: Moment | None = None,
    repeat: str | None = None,
    hold: c.Hold | None = None,
) -> QueueRequest[Job]:
    """Change fields of a job."""
    command = c.Update(
        job_id=job_id(job),
        hold=hold,
        data=None if data is None else encode_data("data", data),
        priority=priority,
        run_at=None if run_at is None else moment_ms(run_at, name="run_at"),
        repeat=repeat,
    )
    check_command(command)
    return QueueRequest(command, same)


def result(
    job: Any, wait: Duration | None, read_result: Callable[[str, Body | None], Any]
) -> QueueRequest[Any]:
    """The result of a job, once it has ended; `read_result` decodes it, by the name of its task."""
    number, check = job_id(job), _task_check(job)

    def read(reply: Any) -> Any:
        if reply is None:
            within = f" within {wait_s_of(wait):g} s" if wait else "; give wait= to wait for it"
            raise Timeout(f"job {number} has not ended{within}")
        if not isinstance(reply, c.Ended):
            raise NotFound(
                "job",
                f"{number} (any more): it never was, was deleted, or its retention has passed; "
                "or it follows a job that is not FINISHED yet",
            )
        if check(reply.job).ended != State.FINISHED:
            raise JobFailed(number, reply.job.reason or str(reply.job.ended), reply.job.outcome)
        result = None if reply.result is None else readable(number, "result", reply.result)
        return read_result(reply.job.task, result)

    return QueueRequest(c.Await(job_id=number), read, wait_s_of(wait))


def limit(
    domain: Key, *, tenant: str, rate: float | str | None, burst: int, concurrency: int | None
) -> QueueRequest[None]:
    """Set or remove the limit of a domain or pattern."""
    check_whole("burst", burst, 1, 1_000_000)
    if concurrency is not None:
        check_whole("concurrency", concurrency, 0, 1_000_000)
    per_s = rate_per_s(rate)
    wanted = None
    if per_s is not None or concurrency is not None:
        wanted = Limit(rate=per_s, burst=burst, concurrency=concurrency)
        check_limit(wanted)
    elif burst != 1:
        raise BadInput("burst", burst, needed="absent without rate or concurrency, which removes the limit")
    name = key_bytes("domain", domain)
    check_key("domain", name, DOMAIN_BYTES)
    return QueueRequest(c.SetLimit(domain=name, tenant=tenant, limit=wanted), same)


def pause(task: Any, domain: Key | None, *, tenant: str, on: bool) -> QueueRequest[None]:
    """Pause claims, or resume them: without a tenant also what was paused for all."""
    command = c.Pause(
        tenant=tenant if on or task is None else tenant or None,
        task=None if task is None else task_name(task),
        domain=None if domain is None else key_bytes("domain", domain),
        on=on,
    )
    if command.domain is not None:
        check_key("domain", command.domain, DOMAIN_BYTES)
    return QueueRequest(command, same)


def pauses(tenant: str) -> QueueRequest[list[q.Paused]]:
    """What is paused."""
    return QueueRequest(q.ListPauses(tenant=tenant), list)


def every_ms(every: Duration) -> int:
    """The interval of a schedule in ms; raises on 0, which means none."""
    found = duration_ms(every, name="every")
    if not found:
        raise BadInput("every", every, needed="whole seconds, at least 1 and at most ten years")
    return found


def schedule(
    name: str, new: c.NewJob, *, every: Duration | None, jitter: Duration | None, **when: Any
) -> QueueRequest[Schedule]:
    """Create or change a schedule."""
    record = Schedule(
        name=name,
        tenant=new.tenant,
        every_ms=0 if every is None else every_ms(every),
        jitter_ms=0 if jitter is None else duration_ms(jitter, name="jitter"),
        **{field: value for field, value in when.items() if value is not None},
    )
    # Checked here and not only by the engine: a bad schedule must not create the store.
    check_schedule(record)
    check_new(new)
    return QueueRequest(c.SetSchedule(schedule=record, job=new), same)


def unschedule(name: str, *, tenant: str) -> QueueRequest[None]:
    """Remove a schedule."""
    check_name("schedule", name)
    return QueueRequest(c.DeleteSchedule(name=name, tenant=tenant), same)


def pause_schedule(name: str, *, tenant: str, on: bool) -> QueueRequest[Schedule]:
    """Pause a schedule, or resume it."""
    check_name("schedule", name)
    return QueueRequest(c.PauseSchedule(name=name, tenant=tenant, on=bool(on)), same)


def run_schedule(name: str, *, tenant: str) -> QueueRequest[list[int]]:
    """Add the job of a schedule now."""
    check_name("schedule", name)
    return QueueRequest(RunSchedule(name=name, tenant=tenant), same)


def workers() -> QueueRequest[list[Worker]]:
    """The workers that are alive."""
    return QueueRequest(
        q.ListWorkers(), lambda found: sorted(found, key=lambda one: (one.started_at, one.name))
    )


def stop_worker(name: str) -> QueueRequest[None]:
    """Ask a worker to end."""
    check_name("worker", name)
    return QueueRequest(StopWorker(name=name), same)


def retention() -> QueueRequest[timedelta]:
    """How long ended jobs are kept."""
    return QueueRequest(GetRetention(), lambda ms: timedelta(milliseconds=ms))


def set_retention(retention: Duration) -> QueueRequest[None]:
    """Keep ended jobs so long."""
    return QueueRequest(SetRetention(retention_ms=duration_ms(retention, name="retention")), same)


def purge(before: Moment, *, tenant: str | None) -> QueueRequest[int]:
    """Delete some of the archived jobs that ended before a time."""
    return QueueRequest(c.Purge(before_ms=moment_ms(before, name="before"), tenant=tenant), same)


def get(job: Any) -> QueueRequest[Job]:
    """A job's record, live or archived."""
    return QueueRequest(q.GetJob(job_id=job_id(job)), _task_check(job))


def _task_check(job: Any) -> Callable[[Job], Job]:
    """A function that returns a record, or raises if the handle is of another task's jobs."""
    task = getattr(job, "_task", "")

    def check(found: Job) -> Job:
        if found.task != task:
            raise NotFound(f"job of task {task}", found.id)
        return found

    return check if task else same


def data(job: Any) -> QueueRequest[Any]:
    """A job's data."""
    return QueueRequest(q.GetData(job_id=job_id(job)), decode)


def steps(job: Any) -> QueueRequest[dict[str, Any]]:
    """The results of a job's steps so far, by name."""
    return QueueRequest(
        q.GetSteps(job_id=job_id(job)),
        lambda found: {entry.name: decode(entry.result) for entry in found if entry.kind == "step"},
    )


def find(task: Any, unique: Key, domain: Key | None, *, tenant: str) -> QueueRequest[int]:
    """The job that holds a unique key, or 0."""
    new = c.NewJob(
        task=task_name(task),
        tenant=tenant,
        unique=key_bytes("unique", unique),
        domain=None if domain is None else key_bytes("domain", domain),
    )
    check_new(new)

    def read(found: q.Loaded) -> int:
        # One that has ended may hold it still.
        return found.holder_id if found.holder_id in found.jobs else 0

    return QueueRequest(q.LoadJobs(job_ids=(), holder_of=new), read)


def timeline(job: Any) -> QueueRequest[list[StepResult]]:
    """What a job has done, and what it waits for, in order."""
    return QueueRequest(q.GetSteps(job_id=job_id(job)), same)


def signal(job: Any, name: str, data: Any, key: str) -> QueueRequest[None]:
    """Send a signal to a job."""
    body = encode_data("data", data)
    if not isinstance(body, str):
        raise BadInput("data", "bytes", needed="what JSON can have")
    command = c.SendSignal(job_id=job_id(job), name=name, data=body, key=key)
    check_command(command)
    return QueueRequest(command, same)


def log(job: Any) -> QueueRequest[list[LogLine]]:
    """The last lines of a job's log."""
    return QueueRequest(q.GetLog(job_id=job_id(job)), lambda found: list(found.lines))


def why(job: Any) -> QueueRequest[str]:
    """Why a job is not running."""
    return QueueRequest(q.Explain(job_id=job_id(job)), same)


def jobs(
    tenant: str, *, after: Any, limit: int, archived: bool | None, **fields: Any
) -> list[QueueRequest[list[Job]]]:
    """Jobs that match, by age; where both live and archived ones may, in two lists."""
    state = fields.get("state")
    if state is not None:
        try:
            fields["state"] = State(str(state).upper())
        except ValueError:
            raise BadInput("state", state, needed=f"one of {', '.join(State)}") from None
    if fields.get("task") is not None:
        fields["task"] = task_name(fields["task"])
    if fields.get("schedule") is not None:
        check_name("schedule", fields["schedule"])
    if fields.get("domain") is not None:
        fields["domain"] = key_bytes("domain", fields["domain"])
    if fields.get("parent_id") is not None:
        fields["parent_id"] = job_id(fields["parent_id"])
    check_whole("limit", limit, 1, PAGE_JOBS)
    places: tuple[bool, ...] = (bool(archived),)
    if archived is None and fields.get("state") in ARCHIVED_STATES:
        places = (False, True)
    start = job_id(after) if after else 0
    filters = [q.JobFilter(tenant=tenant, archived=place, **fields) for place in places]
    return [QueueRequest(q.ListJobs(filter=one, after=start, limit=limit), same) for one in filters]


def first_jobs(found: list[list[Job]], limit: int) -> list[Job]:
    """The first of several lists of jobs, by age."""
    return found[0] if len(found) == 1 else sorted(chain(*found), key=lambda job: job.id)[:limit]


def children(
    job: Any, found: list[Job], *, after: Any, limit: int | None
) -> Iterator[QueueRequest[Iterable[Job]]]:
    """The children of a job that are stored with it, by age: requests for pages, whose jobs the caller adds
    to `found`. With a limit there is one page."""
    if limit is not None:
        check_whole("limit", limit, 1, PAGE_JOBS)
    last, page = (job_id(after) if after else 0), limit or PAGE_JOBS
    while True:
        before = len(found)
        yield QueueRequest(q.ListChildren(job_id=job_id(job), after=last, limit=page), same)
        if limit is not None or len(found) - before < page:
            return
        last = found[-1].id


def counts(tenant: str) -> QueueRequest[dict[str, dict[str, int]]]:
    """The number of jobs of each task in each state."""
    return QueueRequest(q.CountJobs(tenant=tenant), _by_task)


def _by_task(counts: list[tuple[q.JobKind, int]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for key, count in counts:
        row = table.setdefault(key.task, {})
        row[str(key.state)] = row.get(str(key.state), 0) + count
    return table


def limits(tenant: str) -> QueueRequest[dict[bytes, Limit]]:
    """All limits, by domain or pattern."""
    return QueueRequest(
        q.ListLimits(tenant=tenant),
        lambda found: {one.domain: one.limit for one in sorted(found, key=lambda one: one.domain)},
    )


def schedules(tenant: str) -> QueueRequest[list[Schedule]]:
    """All schedules, by name."""
    return QueueRequest(q.ListSchedules(tenant=tenant), lambda found: [one.schedule for one in found])


def has_unfinished(tenant: str, tasks: Iterable[Any] | None) -> QueueRequest[bool]:
    """Whether any job has not ended, apart from those that need an operator."""
    return QueueRequest(q.HasUnfinished(tenants=(tenant,), tasks=task_names(tasks)), same)
