"""What a listing of jobs asks for."""

from typing import NamedTuple

from ...core.job import Job, Place, State


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
