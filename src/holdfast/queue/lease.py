"""The holder's side of a claim."""

from ..core import commands as c
from ..core.job import Job


class Lease:
    """The holder's side of a claim: the record as last heard of, and whether the claim still stands."""

    def __init__(self, job: Job, lease_ms: int) -> None:
        self.job = job
        self.lease_ms = lease_ms
        self.is_open = True
        self.lost: Exception | None = None

    @property
    def hold(self) -> c.Hold:
        """The right to answer."""
        return c.Hold(job_id=self.job.id, owner=self.job.owner, claim=self.job.claim)

    def renewed(self, job: Job) -> None:
        """The lease was extended; the record says what else has changed."""
        self.job = job

    def lose(self, error: Exception) -> None:
        """Somebody else has, or ended, the claim."""
        self.lost, self.is_open = error, False
