"""What can be asked without changing anything. Every read of every door is one of these records.

The engine replies from one consistent view of the store, beside writers; what it raises changes nothing. Each
query says what is replied; the types of the replies are in `core.replies`. A `tenant` or `tasks` that is None
stands for any; `handled`: only tasks that have a handler in the store. Where a query of certain jobs names a
`tenant`, jobs of other tenants are not found.
"""

from typing import NamedTuple

from .commands import NewJob
from .indexed import LogMark
from .job import Body, Job, Place, Record, State
from .limits import Limit
from .schedule import Schedule
from .worker import Worker

# What claims pass by: (tenant, task, domain), None standing for any.
Paused = tuple[str | None, str | None, bytes | None]


class JobFilter(NamedTuple):
    """Which jobs to list; None: any. Live ones, or those of the archive."""

    tenant: str | None = None
    task: str | None = None
    state: State | None = None
    place: Place | None = None
    domain: bytes | None = None
    parent_id: int | None = None
    schedule: str | None = None
    archived: bool = False

    def takes(self, job: Job) -> bool:
        """Whether a job is one of them."""
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
    """The base of all queries. Each is told by its name when it goes to another process."""


# One job


class GetJob(Query, frozen=True, kw_only=True):
    """Replies a job, live or archived, or raises `NotFound`.

    With `as_claimed` a job that waits is as a claim would hand it out now: with the defaults of its task.
    """

    job_id: int
    as_claimed: bool = False
    tenant: str | None = None


class GetData(Query, frozen=True, kw_only=True):
    """Replies the data of a job, live or archived."""

    job_id: int
    tenant: str | None = None


class GetSteps(Query, frozen=True, kw_only=True):
    """Replies the results of a job's steps so far, JSON texts, by name in the order of their first doing."""

    job_id: int
    tenant: str | None = None


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
    """Replies the live jobs among these and the parents of all of them; with `data` also their data.

    `holder_of`: and the job that has the unique key of such a new one.
    """

    job_ids: tuple[int, ...]
    data: bool = False
    holder_of: NewJob | None = None
    tenant: str | None = None


class Loaded(Record, frozen=True, kw_only=True):
    """Jobs and their data by id. `holder_id` is the job that has the key which was asked for, or 0."""

    jobs: dict[int, Job] = {}
    data: dict[int, Body] = {}
    holder_id: int = 0


class LoadFamilies(Query, frozen=True, kw_only=True):
    """Replies the `Family` of each of these live jobs, by id."""

    job_ids: tuple[int, ...]
    tenant: str | None = None


class JobData(Record, frozen=True, kw_only=True):
    """A job with its data."""

    job: Job
    data: Body = "{}"


class Family(Record, frozen=True, kw_only=True):
    """The parent of a job; and the first of its children that are FINISHED or CANCELLED, by id."""

    parent: JobData | None = None
    children: tuple[JobData, ...] = ()


class ListJobs(Query, frozen=True, kw_only=True):
    """Replies the jobs that match, by id, from the first above `after`."""

    filter: JobFilter = JobFilter()
    after: int = 0
    limit: int


class ListChildren(Query, frozen=True, kw_only=True):
    """Replies the live children of a job, by id, from the first above `after`."""

    job_id: int
    after: int = 0
    limit: int
    tenant: str | None = None


class SelectJobs(Query, frozen=True, kw_only=True):
    """Replies the rows that a SELECT over a tenant's live jobs brings, as a JSON array of arrays.

    The table is told in `engine.sql`. What is no such SELECT, or takes too long, is `QueryFailed`.
    """

    text: str
    tenant: str = ""


# How many


class CountKey(NamedTuple):
    """What jobs are counted by. Archived jobs count as DONE."""

    tenant: str
    task: str
    place: Place
    state: State


class CountJobs(Query, frozen=True, kw_only=True):
    """Replies how many jobs there are of each kind, as (`CountKey`, count), in order."""

    tenant: str | None = None


class CheckCounts(Query, frozen=True, kw_only=True):
    """Counts all jobs one by one; replies where the kept counts differ, as (`CountKey`, kept, found)."""


class HasUnfinished(Query, frozen=True, kw_only=True):
    """Replies whether any job has yet to end, besides those that only an operator can move."""

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False


class CountReady(Query, frozen=True, kw_only=True):
    """Replies about how many jobs could start now if there were room."""

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False


class Waiting(NamedTuple):
    """A tenant's task that has READY jobs, and how many."""

    tenant: str
    task: str
    ready: int


class ListWaiting(Query, frozen=True, kw_only=True):
    """Replies whose turn it is, of those that are not paused, as `Waiting`; see `ReadTxn.waiting`."""

    tenants: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    handled: bool = False
    limit: int


# What governs them


class ListLimits(Query, frozen=True, kw_only=True):
    """Replies the limits of a tenant, as `LimitLoad`, by domain or pattern."""

    tenant: str = ""


class LimitLoad(Record, frozen=True, kw_only=True):
    """A limit of a domain or pattern, and how many jobs of that domain run or are held back by it."""

    domain: bytes
    limit: Limit
    running: int = 0
    held: int = 0


class ListSchedules(Query, frozen=True, kw_only=True):
    """Replies the schedules of a tenant, as `Planned`, by name."""

    tenant: str = ""


class Planned(Record, frozen=True, kw_only=True):
    """A schedule, and the task of the jobs that it adds."""

    schedule: Schedule
    task: str


class ListPauses(Query, frozen=True, kw_only=True):
    """Replies what claims of a tenant pass by, as `Paused`."""

    tenant: str | None = None


class ListDefaults(Query, frozen=True, kw_only=True):
    """Replies the published defaults of tasks, as (tenant or None, task, `Defaults`).

    Of a `tenant`: its own, and those that stand for all tenants.
    """

    tenant: str | None = None


# Workers and the store


class ListWorkers(Query, frozen=True, kw_only=True):
    """Replies the workers that are alive, the oldest first.

    Of a `tenant`: those that serve it, as `core.worker.narrow` shows them.
    """

    tenant: str | None = None


class GetOverview(Query, frozen=True, kw_only=True):
    """Replies an `Overview`, whose cost does not grow with the number of jobs.

    Workers and pauses are those of all tenants, unless `only_own` says otherwise.
    """

    tenant: str | None = None
    only_own: bool = False


class Overview(Record, frozen=True, kw_only=True):
    """A store at a moment."""

    now_ms: int
    # Of each task, how many jobs stand where or ended how, archived ones with them.
    tasks: dict[str, dict[str, int]]
    # The first READY job, and the running ones whose leases end first.
    first: Job | None
    running: tuple[Job, ...]
    workers: tuple[Worker, ...]
    pauses: tuple[Paused, ...]

    def count_ended(self, state: str) -> int:
        """How many jobs ended so, as far as they are kept."""
        return sum(counts.get(state, 0) for counts in self.tasks.values())

    def count_all(self) -> int:
        """How many jobs there are of any kind."""
        return sum(sum(counts.values()) for counts in self.tasks.values())


class GetTime(Query, frozen=True, kw_only=True):
    """Replies the time by the store's clock."""


class GetNextMoment(Query, frozen=True, kw_only=True):
    """Replies the first moment after now at which something becomes true by itself, or None."""


class GetReport(Query, frozen=True, kw_only=True):
    """Replies what there is to say of the store, as (facts by name, complaints)."""


# Tokens


class ListTokens(Query, frozen=True, kw_only=True):
    """Replies all tokens by name, without their hashes."""


class FindToken(Query, frozen=True, kw_only=True):
    """Replies a token with its hash, or None. No door answers this: it is how a door checks a secret."""

    name: str


# Indexed consumers


class ListConsumers(Query, frozen=True, kw_only=True):
    """Replies the progress of a tenant's consumers, by name; what reads a log has that log's head."""

    tenant: str = ""


class GetProgress(Query, frozen=True, kw_only=True):
    """Replies a consumer's progress, or raises `NotFound`."""

    name: str
    tenant: str = ""


class ReadLog(Query, frozen=True, kw_only=True):
    """Replies the ends of a log and its items, from the first above `after`, as a `LogPage`.

    A log that is not there is empty.
    """

    log: str
    tenant: str = ""
    after: int = 0
    limit: int = 0


class LogRow(NamedTuple):
    """An item of a log, where it stands."""

    at: int
    key: bytes | None
    body: Body


class LogPage(Record, frozen=True, kw_only=True):
    """The ends of a log, and some of its items in order."""

    ends: LogMark = LogMark()
    items: tuple[LogRow, ...] = ()
