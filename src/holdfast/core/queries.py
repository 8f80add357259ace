"""The queries. Every read through every interface is one of these records.

The engine answers from one consistent snapshot of the store. The docstring of each query says what is
replied; the types of the replies are in `core.replies`. `tenant` or `tasks` None: all; `handled`: only tasks
with a stored handler. If a query for certain jobs names a `tenant`, jobs of other tenants are not
found. `redacted`: data is replied without its secrets (`core.redaction`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from msgspec.structs import replace

from .bounds import PAGE_JOBS
from .commands import NewJob
from .indexed import LogMark
from .job import Body, Job, Place, Record, State
from .limits import Limit
from .notes import StepResult
from .schedule import Schedule
from .token import Token
from .worker import Worker

# A pause: (tenant, task, domain); None: all.
Paused = tuple[str | None, str | None, bytes | None]


class JobFilter(NamedTuple):
    """Which jobs to list, live or archived ones; None: all."""

    tenant: str | None = None
    task: str | None = None
    state: State | None = None
    place: Place | None = None
    domain: bytes | None = None
    parent_id: int | None = None
    schedule: str | None = None
    archived: bool = False

    def takes(self, job: Job) -> bool:
        """Whether a job matches."""
        return (
            self.tenant in (None, job.tenant)
            and self.task in (None, job.task)
            and self.state in (None, job.state)
            and self.place in (None, job.place)
            and self.domain in (None, job.domain)
            and self.parent_id in (None, job.parent_id)
            and self.schedule in (None, job.schedule)
        )


class Query(Record, frozen=True, kw_only=True, tag=True):
    """The base class of all queries. The class name identifies the type in messages to other processes."""

    is_query: ClassVar = True


class PagedQuery(Query, frozen=True, kw_only=True):
    """Replies at most `limit` entries, in order; fewer are the last page."""

    limit: int = PAGE_JOBS

    def next_page(self, reply: Any) -> Self | None:
        """The query for the entries after a reply; None: there are no more."""
        return self._after([*reply][-1]) if reply and len(reply) >= self.limit else None

    def _after(self, last: Any) -> Self:
        raise NotImplementedError


def ask_all(ask: Callable[[PagedQuery], Any], asked: PagedQuery) -> Any:
    """The replies to all pages of a query, as one."""
    found = reply = ask(asked)
    while (following := asked.next_page(reply)) is not None:
        asked, reply = following, ask(following)
        found = _joined(found, reply)
    return found


async def ask_all_async(ask: Callable[[PagedQuery], Awaitable[Any]], asked: PagedQuery) -> Any:
    """The replies to all pages of a query, as one."""
    found = reply = await ask(asked)
    while (following := asked.next_page(reply)) is not None:
        asked, reply = following, await ask(following)
        found = _joined(found, reply)
    return found


def _joined(found: Any, more: Any) -> Any:
    return found | more if isinstance(found, dict) else [*found, *more]


# One job


class GetJob(Query, frozen=True, kw_only=True):
    """Replies a job, live or archived, or raises `NotFound`.

    With `as_claimed` a waiting job has the defaults of its task, as if it were claimed now.
    """

    job_id: int
    as_claimed: bool = False
    tenant: str | None = None


class GetData(Query, frozen=True, kw_only=True):
    """Replies the data of a job, live or archived."""

    job_id: int
    tenant: str | None = None
    redacted: bool = False


class GetSteps(PagedQuery, frozen=True, kw_only=True):
    """Replies what a job has done: its steps and waits, by number, starting above `after`."""

    job_id: int
    after: int = 0
    tenant: str | None = None
    redacted: bool = False

    def _after(self, last: StepResult) -> Self:
        return replace(self, after=last.number)


class GetLog(Query, frozen=True, kw_only=True):
    """Replies the last lines of a job's log, as a `notes.JobLog`."""

    job_id: int
    tenant: str | None = None


class Explain(Query, frozen=True, kw_only=True):
    """Replies why a job is not running, in a sentence."""

    job_id: int
    tenant: str | None = None


# Jobs


class LoadJobs(Query, frozen=True, kw_only=True):
    """Replies the live jobs among these, and their parents; with `data` also their data.

    `holder_of`: and the job that holds the unique key of this new job; at the job-command port (`strict`)
    otherwise one that has its name.
    """

    job_ids: tuple[int, ...]
    data: bool = False
    holder_of: NewJob | None = None
    tenant: str | None = None
    redacted: bool = False


class Loaded(Record, frozen=True, kw_only=True):
    """Jobs and their data by id. `holder_id` is the job that holds the key of `holder_of`, or 0."""

    jobs: dict[int, Job] = {}
    data: dict[int, Body] = {}
    holder_id: int = 0


class LoadEnded(Query, frozen=True, kw_only=True):
    """Replies those of these jobs that have ended, live or archived, with their results."""

    job_ids: tuple[int, ...]
    tenant: str | None = None
    redacted: bool = False


class LoadFamilies(Query, frozen=True, kw_only=True):
    """Replies the `Family` of each of these live jobs, by id."""

    job_ids: tuple[int, ...]
    tenant: str | None = None
    redacted: bool = False


class JobData(Record, frozen=True, kw_only=True):
    """A job with its data."""

    job: Job
    data: Body = "{}"


class Family(Record, frozen=True, kw_only=True):
    """The parent of a job, and the first of its FINISHED or CANCELLED children, by id."""

    parent: JobData | None = None
    children: tuple[JobData, ...] = ()


class ListJobs(Query, frozen=True, kw_only=True):
    """Replies the matching jobs, by id, starting above `after`."""

    filter: JobFilter = JobFilter()
    after: int = 0
    limit: int


class ListChildren(Query, frozen=True, kw_only=True):
    """Replies the live children of a job, by id, starting above `after`."""

    job_id: int
    after: int = 0
    limit: int
    tenant: str | None = None


class SelectJobs(Query, frozen=True, kw_only=True):
    """Replies the rows of a SELECT over the live jobs of a tenant, as a JSON array of arrays.

    `engine.sql` describes the table. A statement that is not such a SELECT, or takes too long, is
    `QueryFailed`.
    """

    text: str
    tenant: str = ""


# Counts


class JobKind(NamedTuple):
    """A kind of jobs that are counted together. Archived jobs count as DONE."""

    tenant: str
    task: str
    place: Place
    state: State


class CountJobs(PagedQuery, frozen=True, kw_only=True):
    """Replies the number of jobs by kind, as (`JobKind`, count), in order of tenant and task.

    A page has all counts of at most `limit` tasks of tenants, after that of `after_tenant` and `after_task`.
    `merged`: as if all tenants were one, named "", and not in pages; only of one `task`, if it is given.
    """

    tenant: str | None = None
    merged: bool = False
    task: str | None = None
    after_tenant: str = ""
    after_task: str = ""

    def next_page(self, reply: Sequence[tuple[JobKind, int]]) -> Self | None:
        """The query for the tasks after a reply; None: there are no more."""
        tasks = {(key.tenant, key.task) for key, _ in reply}
        return self._after(reply[-1]) if len(tasks) >= self.limit and not self.merged else None

    def _after(self, last: tuple[JobKind, int]) -> Self:
        return replace(self, after_tenant=last[0].tenant, after_task=last[0].task)


class CheckCounts(Query, frozen=True, kw_only=True):
    """Counts all jobs; replies where the stored counts differ, as (`JobKind`, stored, found)."""


class HasUnfinished(Query, frozen=True, kw_only=True):
    """Replies whether any job has not ended, except those that only an operator can move."""

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False


class CountReady(Query, frozen=True, kw_only=True):
    """Replies about how many jobs could start now if workers were free."""

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False


class Waiting(NamedTuple):
    """A task of a tenant with READY jobs, and how many."""

    tenant: str
    task: str
    ready: int


class ListWaiting(Query, frozen=True, kw_only=True):
    """Replies tasks with READY jobs that are not paused, of all tenants in turn; see `ReadTxn.waiting`.

    They begin above `after_tenant`, those of each tenant above `after_task`, and wrap round.
    """

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False
    limit: int
    after_tenant: str = ""
    after_task: str = ""


# Limits, schedules, pauses, defaults


class ListLimits(PagedQuery, frozen=True, kw_only=True):
    """Replies the limits of a tenant after that of `after_domain`, as `LimitLoad`: domains, then patterns.

    The domains are in a fixed order, which is not that of their names. `domain`: only the
    limit that it has, perhaps by a pattern. `holding`: domains whose limits hold jobs back, those with the
    most such jobs first, of the first thousand domains with jobs.
    """

    tenant: str = ""
    domain: bytes | None = None
    holding: bool = False
    after_domain: bytes = b""

    def _after(self, last: "LimitLoad") -> Self:
        return replace(self, after_domain=last.domain)


class LimitLoad(Record, frozen=True, kw_only=True):
    """The limit of a domain or pattern, and how many jobs run under it or are HELD by it.

    Those of a pattern are the sums of its domains. `is_partial`: only of those among the first thousand
    domains with jobs.
    """

    domain: bytes
    limit: Limit
    running: int = 0
    held: int = 0
    is_partial: bool = False


class ListSchedules(PagedQuery, frozen=True, kw_only=True):
    """Replies the schedules of a tenant after `after_name`, as `Planned`, by name."""

    tenant: str = ""
    after_name: str = ""

    def _after(self, last: "Planned") -> Self:
        return replace(self, after_name=last.schedule.name)


class Planned(Record, frozen=True, kw_only=True):
    """A schedule, and the task of the jobs that it adds."""

    schedule: Schedule
    task: str


class ListPauses(Query, frozen=True, kw_only=True):
    """Replies the pauses of a tenant, as `Paused`."""

    tenant: str | None = None


class ListDefaults(Query, frozen=True, kw_only=True):
    """Replies the published defaults of tasks, as (tenant or None, task, `Defaults`).

    With a `tenant`: its own, and those for all tenants.
    """

    tenant: str | None = None


# Workers and the store


class ListWorkers(PagedQuery, frozen=True, kw_only=True):
    """Replies the live workers after `after_name`, by name.

    With a `tenant`: those that serve it, as `core.worker.narrow` shows them. With a
    `name`: only that worker, alive or not.
    """

    tenant: str | None = None
    name: str | None = None
    after_name: str = ""

    def _after(self, last: Worker) -> Self:
        return replace(self, after_name=last.name)


class GetOverview(Query, frozen=True, kw_only=True):
    """Replies an `Overview`. The cost does not depend on the number of jobs, limits or tenants.

    It has the workers and pauses of all tenants, or with `only_own` those of the tenant.
    """

    tenant: str | None = None
    only_own: bool = False


class Overview(Record, frozen=True, kw_only=True):
    """The state of a store."""

    now_ms: int
    # By task: the number of jobs by place and state, including archived jobs.
    tasks: dict[str, dict[str, int]]
    # The first READY job, and the running jobs whose leases end first.
    first: Job | None
    running: tuple[Job, ...]
    # The live workers that have run longest; how many there are, and how many jobs they say that they run.
    workers: tuple[Worker, ...]
    pauses: tuple[Paused, ...]
    worker_count: int = 0
    worker_jobs: int = 0
    # By task: when the job that is claimed next became due; of the tasks of tenants that are served next.
    first_due: dict[str, int] = {}
    # By task: how many of its waiting jobs are HELD, where any are.
    held: dict[str, int] = {}
    # By task: how many suspended jobs wait for a sleep, a signal or a call to end, where any do.
    suspended: dict[str, dict[str, int]] = {}

    def count_ended(self, state: str) -> int:
        """How many jobs ended in this state, of those still stored."""
        return sum(counts.get(state, 0) for counts in self.tasks.values())

    def count_all(self) -> int:
        """The number of all jobs."""
        return sum(sum(counts.values()) for counts in self.tasks.values())


class GetTime(Query, frozen=True, kw_only=True):
    """Replies the time by the store's clock."""


class GetNextMoment(Query, frozen=True, kw_only=True):
    """Replies when upkeep is needed next, after now, or None."""


class GetRetention(Query, frozen=True, kw_only=True):
    """Replies how long ended jobs are kept, in milliseconds."""


class GetReport(Query, frozen=True, kw_only=True):
    """Replies a report about the store, as (facts by name, problems)."""


# Tokens


class ListTokens(PagedQuery, frozen=True, kw_only=True):
    """Replies the tokens after `after_name`, by name, without their hashes."""

    after_name: str = ""

    def _after(self, last: Token) -> Self:
        return replace(self, after_name=last.name)


class FindToken(Query, frozen=True, kw_only=True):
    """Replies a token with its hash, or None. Only servers use it, to check a secret; clients may not."""

    name: str


# Indexed consumers


class ListConsumers(PagedQuery, frozen=True, kw_only=True):
    """Replies the progress of a tenant's consumers after `after_name`, by name; with heads of their logs."""

    tenant: str = ""
    after_name: str = ""

    def _after(self, last: str) -> Self:
        return replace(self, after_name=last)


class GetProgress(Query, frozen=True, kw_only=True):
    """Replies a consumer's progress, or raises `NotFound`."""

    name: str
    tenant: str = ""


class ReadLog(Query, frozen=True, kw_only=True):
    """Replies the ends of a log and its items above `after`, as a `LogPage`.

    A log that does not exist is empty.
    """

    log: str
    tenant: str = ""
    after: int = 0
    limit: int = 0
    redacted: bool = False


class LogRow(NamedTuple):
    """An item of a log, with its index."""

    at: int
    key: bytes | None
    body: Body


class LogPage(Record, frozen=True, kw_only=True):
    """The ends of a log, and some of its items, in order."""

    ends: LogMark = LogMark()
    items: tuple[LogRow, ...] = ()


class DataMatch(NamedTuple):
    """A path into the data, such as "user.id", and the text that its value must have."""

    path: str
    value: str


class SearchJobs(Query, frozen=True, kw_only=True):
    """Replies a `JobPage`: matching jobs, newest first, below the id `before`; 0: from the newest.

    `data`: what the data must contain, `redacted` without its secrets. `error_text`: what the last error must
    contain, in any case. `owner` and `priority`: those of the job. `since_ms` and `until_ms`: when it was
    added. The search stops after a limited time; the page says where to continue.
    """

    filter: JobFilter = JobFilter()
    before: int = 0
    limit: int = 50
    data: tuple[DataMatch, ...] = ()
    redacted: bool = False
    error_text: str = ""
    owner: int = 0
    priority: int | None = None
    since_ms: int = 0
    until_ms: int = 0


class JobPage(Record, frozen=True, kw_only=True):
    """A page of jobs. The next page begins below `before`; 0: there are no more.

    `is_cut`: the search reached its time limit, and there may be more matching jobs: it has searched those
    added from `searched_ms` on, of all that were added from `oldest_ms` on.
    """

    jobs: tuple[Job, ...] = ()
    before: int = 0
    is_cut: bool = False
    searched_ms: int = 0
    oldest_ms: int = 0


class ListTasks(PagedQuery, frozen=True, kw_only=True):
    """Replies the tasks that have jobs, as `TaskState`, by tenant and name.

    It begins after the task `after_task` of `after_tenant`.
    """

    tenant: str | None = None
    after_tenant: str = ""
    after_task: str = ""

    def _after(self, last: "TaskState") -> Self:
        return replace(self, after_tenant=last.tenant, after_task=last.task)


class TaskState(Record, frozen=True, kw_only=True):
    """A task of a tenant: its number of jobs by place and state, and since when the first one waits."""

    tenant: str = ""
    task: str = ""
    ready: int = 0
    held: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0
    failed: int = 0
    finished: int = 0
    cancelled: int = 0
    # When the READY job that is claimed next became due; 0: there is none.
    first_due_at: int = 0

    @property
    def waiting(self) -> int:
        """How many jobs could run if workers were free."""
        return self.ready + self.held
