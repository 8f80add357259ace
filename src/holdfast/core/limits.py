"""Domains: how many of their jobs may start, and when the next.

A limit has a rate with a burst, a number running at once, or both. The rate is exact by virtual
scheduling: `tat_us` is the theoretical arrival time, the moment at which the allowance is whole
again. A start is allowed while

    now ≥ tat − (burst − 1) · interval          and then        tat = max(now, tat) + interval

so no two starts ever lie inside one interval beyond the burst, at first use and after idle too.

READY is a short list, never a permission: of each (domain, task) at most the allowance stands
READY, the rest is HELD behind it, and the claim itself checks and spends.
"""

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec.structs import replace

from .bounds import ALLOWANCE, MAX_BURST, MAX_CONCURRENCY, MAX_RATE_PER_S, MIN_RATE_PER_S
from .errors import BadInput
from .job import Place, Record

DomainKey = tuple[str, bytes]
# How many jobs of a domain there are, by task and place.
DomainCounts = dict[tuple[str, Place], int]


class Limit(Record, frozen=True, kw_only=True):
    """What a domain is allowed: starts a second, how many of them at once, how many running at once."""

    rate: float | None = None
    burst: int = 1
    concurrency: int | None = None

    @property
    def interval_us(self) -> int:
        """Microseconds between two starts, rounded up so that the rate is never exceeded."""
        return math.ceil(1_000_000 / self.rate) if self.rate else 0


class TaskLoad(Record, frozen=True, kw_only=True):
    """How many jobs of one task stand READY and HELD in a domain."""

    ready: int = 0
    held: int = 0
    # No READY job comes after this rank and id; None: unknown. A later one may be held without a look.
    last: tuple[int, int] | None = None


class Domain(Record, frozen=True, kw_only=True):
    """What is kept of a limited domain while it has jobs or its last start still counts."""

    tenant: str
    name: bytes
    tat_us: int = 0
    running: int = 0
    loads: dict[str, TaskLoad] = {}
    # When upkeep should look at it next; 0: not before something happens to it.
    due_ms: int = 0

    @property
    def key(self) -> DomainKey:
        """What it is found by."""
        return self.tenant, self.name

    @property
    def held(self) -> int:
        """How many of its jobs wait behind it."""
        return sum(load.held for load in self.loads.values())


def check_limit(limit: Limit) -> None:
    """Refuse a limit that makes no sense."""
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
    """Whether a limit's name matches many domains (`*`, `?`, `[…]`) rather than one."""
    return any(char in domain for char in b"*?[")


def find_pattern(patterns: Iterable[tuple[bytes, Limit]], domain: bytes) -> Limit | None:
    """The limit of the longest pattern that matches; of equally long ones the first by name."""
    name = domain.decode("latin-1")
    matching = [(-len(p), p, limit) for p, limit in patterns if fnmatchcase(name, p.decode("latin-1"))]
    return min(matching, key=lambda m: m[:2])[2] if matching else None


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
    """The domain with its next moment never further ahead than a whole burst.

    After the clock was set back, or the rate raised, it must not sleep until the old moment comes
    round again.
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
    """When the rate allows the next start: now, or the first millisecond that is late enough."""
    if limit is None or limit.rate is None:
        return now_ms
    earliest_us = domain.tat_us - (_burst(limit) - 1) * limit.interval_us
    return max(now_ms, -(-earliest_us // 1000))


def allowance(limit: Limit | None, domain: Domain, *, now_ms: int) -> int:
    """How many jobs of one task of the domain may stand READY now."""
    return min(capacity(limit, domain, now_ms=now_ms), ALLOWANCE)


def is_idle(domain: Domain, *, now_ms: int) -> bool:
    """Whether nothing of the domain needs remembering: no jobs, and its allowance is whole again.

    Whatever the limit is now: a pause, or a limit lifted for a moment, must not make it whole.
    """
    return not domain.running and not domain.loads and domain.tat_us <= now_ms * 1000


def _burst(limit: Limit) -> int:
    # The clock has milliseconds, so within one of them as many may start as the rate has room for.
    return max(limit.burst, 1000 // limit.interval_us)
