"""The lease of a claimed job as its holder sees it, and the threads that renew leases and poll for stops."""

import weakref
from collections.abc import Callable
from math import inf

from ..core import commands as c
from ..core import queries as q
from ..core.errors import HoldfastError, LeaseLost, NotFound
from ..core.job import Job
from ..engine import joblog
from ..engine.connection import Connection
from ..engine.ticket import Submitter, Ticket
from ..store.common.clock import monotonic_s, system_clock
from .timers import BackgroundThread, DueHeap

# How often a process that runs jobs polls whether they should stop.
STOP_POLL_S = 0.5
# After this number of polls without a running job it waits for one.
IDLE_POLLS = 5
# When a lease is extended again that could not be extended: the store may be back just before the lease ends.
RETRY_S = 1.0


class Lease:
    """A claimed job's last known record, and whether the claim still holds."""

    is_open = True
    lost: Exception | None = None
    # Called once, from any thread, when `stopped` becomes true.
    on_stop: Callable[[], None] | None = None
    # When the handler started, if the job was claimed without starting it; 0: it started with the claim.
    started_s = 0.0
    _started_at = 0

    def __init__(self, job: Job, lease_ms: int) -> None:
        self.job = job
        self.lease_ms = lease_ms
        # The handler should stop: the job was cancelled, or the claim is lost.
        self.stopped = job.cancel_requested

    @property
    def started_at(self) -> int:
        """When the run started, in ms."""
        if not self._started_at:
            self._started_at = system_clock() - (self.ran_ms or 0) if self.started_s else self.job.started_at
        return self.job.started_at or self._started_at

    @property
    def ran_ms(self) -> int | None:
        """How long the handler has been running; None if it started with the claim."""
        return int((monotonic_s() - self.started_s) * 1000) if self.started_s else None

    @property
    def hold(self) -> c.Hold:
        """The job id and claim number that fence the holder's commands."""
        return c.hold_of(self.job)

    def extension(self) -> c.Extend:
        """The command that extends the lease."""
        return c.Extend(hold=self.hold, lease_ms=self.lease_ms, ran_ms=self.ran_ms)

    def renewed(self, job: Job) -> None:
        """Store the record of an extended lease, and stop the handler if the job was cancelled."""
        self.job = job
        if job.cancel_requested:
            self.stop()

    def lose(self, error: Exception) -> None:
        """Mark the claim as lost, log that, and stop the handler."""
        if self.is_open:
            joblog.claim_lost(self.job, error)
        self.lost, self.is_open = error, False
        self.stop()

    def check_record(self, job: Job | None) -> None:
        """Stop the handler if the live record shows another claim or a cancellation."""
        if job is None or job.claim != self.job.claim or not job.owner:
            self.stop()
        elif job.cancel_requested:
            self.renewed(job)

    def stop(self) -> None:
        """Set `stopped`, and call `on_stop` the first time."""
        if not self.stopped:
            self.stopped = True
            if self.on_stop is not None:
                self.on_stop()


def _is_open(reference: "weakref.ref[Lease]") -> bool:
    lease = reference()
    return lease is not None and lease.is_open


class Renewer(BackgroundThread):
    """A thread that extends the leases of claimed jobs, each after a third of its length.

    It holds weak references: a job that was dropped without an answer is not renewed, and becomes claimable
    when its lease expires. A handler that holds the interpreter lock starves this thread; that is why
    `holdfast worker` renews from another process.
    """

    _name = "holdfast-renewer"

    def __init__(self, connection: Submitter) -> None:
        super().__init__()
        self._connection = connection
        self._due: DueHeap[weakref.ref[Lease]] = DueHeap(_is_open)

    def watch(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        with self._lock:
            self._wake(needed=self._push(lease))

    def _push(self, lease: Lease, most_s: float = inf) -> bool:
        """Add a lease, to be renewed in `most_s` at the latest; True if it is the next to be renewed."""
        return self._due.push(monotonic_s() + min(lease.lease_ms / 3000, most_s), weakref.ref(lease))

    def _loop(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                sleep = self._due.wait_s()
                if sleep is None or sleep > 0:
                    self._changed.wait(sleep)
                    continue
                leases = self._take_due()
            self._extend(leases)
            # If these references were kept during the wait, dropped jobs would stay alive and be renewed
            # forever.
            del leases

    def _take_due(self) -> list[Lease]:
        leases = []
        while (wait_s := self._due.wait_s()) is not None and wait_s <= 0:
            lease = self._due.pop()()
            if lease is not None and lease.is_open:
                leases.append(lease)
        return leases

    def _extend(self, leases: list[Lease]) -> None:
        """Extend leases in one transaction."""
        tickets = [Ticket(lease.extension()) for lease in leases]
        try:
            for ticket in tickets:
                self._connection.submit(ticket)
            replies = [ticket.wait_for_reply() for ticket in tickets]
        except HoldfastError as error:
            replies = [error] * len(tickets)
        for lease, reply in zip(leases, replies, strict=True):
            if isinstance(reply, LeaseLost | NotFound):
                lease.lose(reply)
                continue
            has_failed = isinstance(reply, BaseException)
            if not has_failed:
                lease.renewed(reply)
            with self._lock:
                self._push(lease, RETRY_S if has_failed else inf)


class StopPoller(BackgroundThread):
    """A thread that polls whether running jobs should stop, all of them by one query.

    It does nothing else: a store that does not answer holds up neither timers nor leases.
    """

    _name = "holdfast-stops"

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        # Leases by their identity.
        self._leases: dict[int, Lease] = {}
        # Whether the thread waits for a lease, and not only for the time of the next poll.
        self._rests = False

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Poll for a lease from now on; returns a function that ends that."""
        with self._lock:
            self._leases[id(lease)] = lease
            self._wake(needed=self._rests)

        def unfollow() -> None:
            self._leases.pop(id(lease), None)

        return unfollow

    def _loop(self) -> None:
        idle_polls = 0
        while True:
            with self._lock:
                # Not at once: to be woken for each of many short jobs costs more than a few idle polls.
                self._rests = idle_polls >= IDLE_POLLS
                if self._rests:
                    self._changed.wait_for(lambda: self._leases or self._closed)
                    self._rests = False
                if self._changed.wait_for(lambda: self._closed, STOP_POLL_S):
                    return
                leases = [lease for lease in list(self._leases.values()) if lease.is_open]
            idle_polls = 0 if leases else idle_polls + 1
            if leases:
                self._poll(leases)
            del leases

    def _poll(self, leases: list[Lease]) -> None:
        query = q.LoadJobs(job_ids=tuple(lease.job.id for lease in leases))
        try:
            jobs = self._connection.ask(query).jobs
        except HoldfastError:
            # The renewer notices if a claim is lost; the store may be back at the next poll.
            return
        for lease in leases:
            if lease.is_open:
                lease.check_record(jobs.get(lease.job.id))
