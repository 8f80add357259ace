"""Domains and their limits: how many jobs may start now, and when the next one may.

A limit has a rate with a burst, a number of jobs running at once, or both. The rate is exact by virtual
scheduling (GCRA): `tat_us` is the theoretical arrival time, at which the full burst is available again. A
start is allowed while

    now ≥ tat − (burst − 1) · interval          and then        tat = max(now, tat) + interval

so beyond the burst no two starts are within one interval, also at first use and after idle time.

READY is not a permission to start: of each (domain, task) at most as many jobs are READY as may start now,
and the rest are HELD. The claim itself checks the limit and counts the start.
"""

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec.structs import replace

from .bounds import ALLOWANCE, MAX_BURST, MAX_CONCURRENCY, MAX_RATE_PER_S, MIN_RATE_PER_S
from .errors import BadInput
from .job import Place, Record

DomainKey = tuple[str, bytes]
# The number of jobs of a domain, by task and place.
DomainCounts = dict[tuple[str, Place], int]


class Limit(Record, frozen=True, kw_only=True):
    """The limit of a domain: starts per second, burst, and jobs running at once."""

    rate: float | None = None
    burst: int = 1
    concurrency: int | None = None

    @property
    def interval_us(self) -> int:
        """Microseconds between two starts, rounded up so that the rate is never exceeded."""
        return math.ceil(1_000_000 / self.rate) if self.rate else 0


class TaskLoad(Record, frozen=True, kw_only=True):
    """How many jobs of one task are READY and HELD in a domain."""

    ready: int = 0
    held: int = 0
    # No READY job comes after this rank and id; None: unknown. A later job can be held without a read.
    last: tuple[int, int] | None = None


class Domain(Record, frozen=True, kw_only=True):
    """The state of a limited domain, kept while it has jobs or its last start still counts."""

    tenant: str
    name: bytes
    tat_us: int = 0
    running: int = 0
    loads: dict[str, TaskLoad] = {}
    # When upkeep should check it next; 0: not before one of its jobs changes.
    due_ms: int = 0

    @property
    def key(self) -> DomainKey:
        """The key of the domain."""
        return self.tenant, self.name

    @property
    def held(self) -> int:
        """How many of its jobs are HELD."""
        return sum(load.held for load in self.loads.values())


def check_limit(limit: Limit) -> None:
    """Refuse an invalid limit."""
    if limit.rate is None and limit.concurrency is None:
        raise BadInput("limit", None, needed="a rate, a concurrency or both")
    if limit.rate is not None and not MIN_RATE_PER_S <= limit.rate <= MAX_RATE_PER_S:
        raise BadInput(
            "rate", limit.rate, needed=f"from {MIN_RATE_PER_S:f} to {MAX_RATE_PER_S:,.0f} starts a second"
        )
    if not 1 <= limit.burst <= MAX_BURST:
        raise BadInput("burst", limit.burst, needed=f"a whole number from 1 to {MAX_BURST:,}")
    if limit.concurrency is not None and not 0 <= limit.concurrency <= MAX_CONCURRENCY:
        raise BadInput(
            "concurrency", limit.concurrency, needed=f"a whole number from 0 to {MAX_CONCURRENCY:,}"
        )


def is_pattern(domain: bytes) -> bool:
    """Whether the name of a limit is a pattern (`*`, `?`, `[…]`) for many domains."""
    return any(char in domain for char in b"*?[")


def find_pattern(patterns: Iterable[tuple[bytes, Limit]], domain: bytes) -> tuple[bytes, Limit] | None:
    """The longest pattern that matches, and its limit; of equally long ones, the first by name.

    A pattern also matches itself: "http://[::1]/" is more likely a name than a choice of characters.
    """
    name = domain.decode("latin-1")
    matching = [one for one in patterns if one[0] == domain or fnmatchcase(name, one[0].decode("latin-1"))]
    return min(matching, key=lambda one: (-len(one[0]), one[0]), default=None)


def capacity(limit: Limit | None, domain: Domain, *, now_ms: int) -> int:
    """How many jobs of the domain may start now."""
    allowed = MAX_CONCURRENCY
    if limit is not None and limit.rate is not None:
        interval = limit.interval_us
        whole = now_ms * 1000 + _burst(limit) * interval
        allowed = (whole - max(now_ms * 1000, domain.tat_us)) // interval
    if limit is not None and limit.concurrency is not None:
        allowed = min(allowed, limit.concurrency - domain.running)
    return max(allowed, 0)


def clamped(limit: Limit | None, domain: Domain, *, now_ms: int) -> Domain:
    """Return the domain with its arrival time at most a full burst ahead.

    After the clock was set back, or the rate was raised, it must not wait until the old time.
    """
    if limit is None or limit.rate is None:
        return domain
    most_us = now_ms * 1000 + _burst(limit) * limit.interval_us
    return domain if domain.tat_us <= most_us else replace(domain, tat_us=most_us)


def spend(limit: Limit | None, domain: Domain, count: int, *, now_ms: int) -> Domain:
    """The domain after `count` starts now."""
    if limit is None or limit.rate is None or not count:
        return domain
    tat = max(now_ms * 1000, domain.tat_us) + count * limit.interval_us
    return replace(domain, tat_us=tat)


def next_start_ms(limit: Limit | None, domain: Domain, *, now_ms: int) -> int:
    """When the rate allows the next start: now, or at a later millisecond."""
    if limit is None or limit.rate is None:
        return now_ms
    earliest_us = domain.tat_us - (_burst(limit) - 1) * limit.interval_us
    return max(now_ms, -(-earliest_us // 1000))


def allowance(limit: Limit | None, domain: Domain, *, now_ms: int) -> int:
    """How many jobs of one task of the domain may be READY now."""
    return min(capacity(limit, domain, now_ms=now_ms), ALLOWANCE)


def is_idle(domain: Domain, *, now_ms: int) -> bool:
    """Whether the state can be deleted: the domain has no jobs, and its full burst is available again.

    This does not depend on the current limit: a pause, or a limit removed for a moment, must not restore the
    burst.
    """
    return not domain.running and not domain.loads and domain.tat_us <= now_ms * 1000


def _burst(limit: Limit) -> int:
    # The clock has a resolution of a millisecond, so several starts may share one if the rate allows them.
    return max(limit.burst, 1000 // limit.interval_us)


def limit_text(limit: Limit) -> str:
    """A limit as text."""
    texts = []
    if limit.rate is not None:
        texts.append(rate_text(limit.rate) + (f" in bursts of {limit.burst:,}" if limit.burst > 1 else ""))
    if limit.concurrency is not None:
        texts.append(f"{limit.concurrency:,} at once")
    return ", ".join(texts)


def rate_text(per_s: float) -> str:
    """A rate in the unit in which it was probably given: the first one in which it has few digits."""
    for seconds, unit in ((1, "s"), (60, "m"), (3600, "h"), (86400, "d")):
        count = per_s * seconds
        if count >= 1 and abs(count - round(count, 2)) < 1e-9 * count:
            return f"{count:,.2f}".rstrip("0").rstrip(".") + f"/{unit}"
    return f"{per_s:.6g}/s" if per_s >= 1 else f"{per_s * 86400:.6g}/d"
