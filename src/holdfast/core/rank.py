"""The rank: the position of a job within its place, one integer that every store can order by.

    READY, HELD   10 bits of 1000 − priority, 43 bits of due time: higher priority, then older
    SCHEDULED     the due time; a little      RUNNING   the end of the lease, or LAST without one
                  earlier for a job that sleeps
    PAUSED        0                           DONE      when it ended

Ranks stay below 2**53: a Redis sorted-set score is a double, and past that two neighbouring
ranks would become equal. Ties are broken by id, that is by age.
"""

from typing import TYPE_CHECKING

from .bounds import MAX_PRIORITY, MAX_TIME_MS, TIME_MS_BITS, WAKE_EARLY_MS

if TYPE_CHECKING:
    from .job import Wait

LAST = (1 << 53) - 1


def ready(priority: int, due_ms: int) -> int:
    """The rank of a READY or HELD job: the smallest is claimed first."""
    if not 0 <= due_ms <= MAX_TIME_MS:
        due_ms = 0 if due_ms < 0 else MAX_TIME_MS
    return (MAX_PRIORITY - priority) << TIME_MS_BITS | due_ms


def scheduled(due_ms: int, wait: "Wait | None") -> int:
    """The rank of a SCHEDULED job. One that sleeps is claimed earlier, and its run waits for the rest."""
    return max(due_ms - WAKE_EARLY_MS, 0) if wait is not None and wait.kind == "sleep" else due_ms


def range_of(priority: int | None) -> tuple[int, int]:
    """The lowest and the highest rank of READY jobs of a priority; None: of any."""
    if priority is None:
        return 0, LAST
    return ready(priority, 0), ready(priority, MAX_TIME_MS)


def lease(lease_until_ms: int) -> int:
    """The rank of a running job; `lease_until` 0: it has no lease, which never expires."""
    return lease_until_ms or LAST
