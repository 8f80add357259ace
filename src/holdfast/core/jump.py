"""A clock that jumped ahead, and what that does to leases.

Leases are moments of the clock by which they were given. When the clock is set ahead by an hour, all of them
seem to be over, although their holders live and renew them in time. So each keeps the time that it had left.
Delays and schedules are moments of the day, and come when the clock shows them.
"""

from msgspec.structs import replace

from . import rank
from .bounds import DEFAULT_LEASE_MS
from .job import Job, Record


class Jump(Record, frozen=True, kw_only=True):
    """The clock went from `at_ms - by_ms` to `at_ms` in no time."""

    at_ms: int
    by_ms: int


def regranted(job: Job, jump: Jump) -> Job:
    """The job with the lease that it has after a jump; the same where the lease was given after it.

    The end of a lease tells whether it was given before the jump. One that ends up to a default lease
    after it may be either: it gets that much more.
    """
    grace_ms = min(jump.by_ms, DEFAULT_LEASE_MS)
    if not 0 < job.lease_until < jump.at_ms + grace_ms:
        return job
    until = job.lease_until + (jump.by_ms if job.lease_until < jump.at_ms else grace_ms)
    return replace(job, lease_until=until, rank=rank.lease(until))
