"""How leases and archived jobs are kept when the clock is set ahead.

The end of a lease is a time of the store's clock. If that clock is set ahead by an hour, all leases seem to
have expired, although their holders renew them in time. So each lease keeps the time that it had left. Delays
and schedules refer to the time of day, and are due when the clock shows it.

Upkeep deletes archived jobs soon after their retention. If they are overdue, the clock was set ahead, maybe
by mistake, or no process has run upkeep. The rules cannot tell which, so the archive keeps its jobs longer by
as much.
"""

from msgspec.structs import replace

from . import rank
from .bounds import DEFAULT_LEASE_MS, HOUR_MS
from .job import Job, Record


class Jump(Record, frozen=True, kw_only=True):
    """The clock was set from `at_ms - by_ms` to `at_ms`."""

    at_ms: int
    by_ms: int


def extend_lease(job: Job, jump: Jump) -> Job:
    """Return the job with its lease after a jump; unchanged if it was claimed after the jump.

    The end of a lease shows whether it began before the jump. If it ends within a default lease after the
    jump, it may be either, and the lease is extended.
    """
    grace_ms = min(jump.by_ms, DEFAULT_LEASE_MS)
    if not 0 < job.lease_until < jump.at_ms + grace_ms:
        return job
    until = job.lease_until + (jump.by_ms if job.lease_until < jump.at_ms else grace_ms)
    return replace(job, lease_until=until, rank=rank.lease(until))


# How late old jobs may leave the archive before the clock is suspected.
LATE_MS = HOUR_MS


class Overdue(Record, frozen=True, kw_only=True):
    """At `at_ms` archived jobs were overdue by `by_ms`: for one retention they count as younger by that.

    After that, jobs that ended before `at_ms` are deleted, however late.
    """

    at_ms: int
    by_ms: int = 0


def purged_before(oldest_ms: int, last: Overdue | None, *, now_ms: int, retention_ms: int) -> int | Overdue:
    """Before which time archived jobs must have ended to be deleted now, or that they are overdue.

    `oldest_ms` is when the first of them ended, before `now_ms - retention_ms`.
    """
    before_ms = now_ms - retention_ms
    if last is not None and last.at_ms <= now_ms < last.at_ms + retention_ms:
        return before_ms - last.by_ms
    late_ms = before_ms - (oldest_ms if last is None else max(oldest_ms, last.at_ms))
    return before_ms if late_ms <= LATE_MS else Overdue(at_ms=now_ms, by_ms=late_ms)
