"""Queries of the dashboard: jobs, newest first, and tasks with their first waiting job."""

from typing import NamedTuple, Self

from msgspec.structs import replace

from .job import Job, Record
from .queries import JobFilter, PagedQuery, Query


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
