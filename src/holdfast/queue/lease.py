"""The holder's side of a claim."""

from collections.abc import Callable

from ..core import commands as c
from ..core.job import Job
from ..engine import joblog
from ..store.common.clock import monotonic_s, system_clock


class Lease:
    """The holder's side of a claim: the record as last heard of, and whether the claim still stands."""

    def __init__(self, job: Job, lease_ms: int) -> None:
        self.job = job
        self.lease_ms = lease_ms
        # When the handler started, of a job that was claimed without starting it; 0: with the claim.
        self._begun_s = 0.0
        self._begun_at = job.started_at
        self.is_open = True
        self.lost: Exception | None = None
        # Whoever does the work should stop: somebody asked for it, or the claim is lost.
        self.stopped = job.cancel_requested
        # Called once, from any thread, when `stopped` becomes true.
        self.on_stop: Callable[[], None] | None = None

    def start(self) -> None:
        """The handler starts now."""
        self._begun_s, self._begun_at = monotonic_s(), system_clock()

    @property
    def started_at(self) -> int:
        """When the run started, in ms."""
        return self.job.started_at or self._begun_at

    @property
    def ran_ms(self) -> int | None:
        """How long the handler has been running, where it did not start with the claim."""
        return int((monotonic_s() - self._begun_s) * 1000) if self._begun_s else None

    @property
    def hold(self) -> c.Hold:
        """The right to answer."""
        return c.hold_of(self.job)

    def extension(self) -> c.Extend:
        """The command that extends it."""
        return c.Extend(hold=self.hold, lease_ms=self.lease_ms, ran_ms=self.ran_ms)

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
