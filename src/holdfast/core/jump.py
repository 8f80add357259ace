"""How leases are kept when the clock is set ahead.

The end of a lease is a time of the store's clock. If that clock is set ahead by an hour, all leases seem to
have expired, although their holders renew them in time. So each lease keeps the time that it had left. Delays
and schedules refer to the time of day, and are due when the clock shows it.
"""

from msgspec.structs import replace

from . import rank
from .bounds import DEFAULT_LEASE_MS
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
