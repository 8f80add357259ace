"""Queries of the dashboard: jobs from the newest on, and tasks with their first waiting job."""

from typing import NamedTuple

from .job import Job, Record
from .queries import JobFilter, Query


class DataMatch(NamedTuple):
    """A path into the data, such as "user.id", and the text that must be there."""

    path: str
    value: str


class SearchJobs(Query, frozen=True, kw_only=True):
    """Replies a `JobPage`: jobs that match, newest first, from the first below `before`; 0: from the newest.

    `data`: what the data must contain. The search ends after a while, whatever it has found; the page says
    where to go on.
    """

    filter: JobFilter = JobFilter()
    before: int = 0
    limit: int = 50
    data: tuple[DataMatch, ...] = ()


class JobPage(Record, frozen=True, kw_only=True):
    """Some jobs. `before` is where the next page begins; 0: there are no more.

    `is_cut`: the search ended for the time it took, and there may be more that match.
    """

    jobs: tuple[Job, ...] = ()
    before: int = 0
    is_cut: bool = False


class ListTasks(Query, frozen=True, kw_only=True):
    """Replies the tasks that have jobs, as `TaskState`, those with the most waiting jobs first."""

    tenant: str | None = None
    limit: int = 200


class TaskState(Record, frozen=True, kw_only=True):
    """A tenant's task: how many of its jobs stand where or ended how, and since when the first one waits."""

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
    # When the READY job was due that is claimed next; 0: there is none.
    first_due_at: int = 0

    @property
    def waiting(self) -> int:
        """How many could run if there were room."""
        return self.ready + self.held
