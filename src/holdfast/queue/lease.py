"""The holder's side of a claim."""

from collections.abc import Callable

from ..core import commands as c
from ..core.job import Job
from ..engine import joblog


class Lease:
    """The holder's side of a claim: the record as last heard of, and whether the claim still stands."""

    def __init__(self, job: Job, lease_ms: int) -> None:
        self.job = job
        self.lease_ms = lease_ms
        self.is_open = True
        self.lost: Exception | None = None
        # Whoever does the work should stop: somebody asked for it, or the claim is lost.
        self.stopped = job.cancel_requested
        # Called once, from any thread, when `stopped` becomes true.
        self.on_stop: Callable[[], None] | None = None

    @property
    def hold(self) -> c.Hold:
        """The right to answer."""
        return c.hold_of(self.job)

    def renewed(self, job: Job) -> None:
        """The lease was extended; the record says what else has changed."""
        self.job = job
        if job.cancel_requested:
            self.stop()

    def lose(self, error: Exception) -> None:
        """Somebody else has, or ended, the claim."""
        if self.is_open:
            joblog.claim_lost(self.job, error)
        self.lost, self.is_open = error, False
        self.stop()

    def seen(self, job: Job | None) -> None:
        """The live record, as somebody has just read it: is it still ours, and wanted?"""
        if job is None or job.claim != self.job.claim or not job.owner or job.cancel_requested:
            self.stop()

    def stop(self) -> None:
        """Have whoever does the work know that it is no longer wanted."""
        if not self.stopped:
            self.stopped = True
            if self.on_stop is not None:
                self.on_stop()
