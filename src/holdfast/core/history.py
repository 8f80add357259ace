"""History: how many jobs of each task ended how, over time. See docs/decisions/0021.

    a commit that ends jobs ──▶ tallies by task and kind ──upkeep──▶ buckets of a minute, 10 minutes, an hour

Upkeep moves tallies into buckets; what it has not moved yet counts for the last bucket.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from .bounds import DAY_MS, HOUR_MS, MAX_TIME_MS, MINUTE_MS, YEAR_MS
from .job import Record
from .queries import Query

# A bucket has so many tasks by name, the busiest; the others are one sum under no name.
NAMED_TASKS = 200


# What is tallied. RETRIED: a run ended in an error or asked for another one, and the job runs again. RUN_MS:
# the milliseconds that runs took. The texts are stored: never change one.
FINISHED, FAILED, CANCELLED, RETRIED, RUN_MS = "finished", "failed", "cancelled", "retried", "run_ms"


class TallyKey(NamedTuple):
    """What is tallied, of which task. A store keeps it beside its counts: `place` is none of a job's."""

    tenant: str
    task: str
    place: int
    kind: str


NO_PLACE = 0


class TaskEnds(Record, frozen=True, kw_only=True):
    """How runs of a tenant's task ended. A task without a name stands for all that were not busy enough."""

    tenant: str = ""
    task: str = ""
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    run_ms: int = 0

    @property
    def ended(self) -> int:
        """How many runs ended."""
        return self.finished + self.failed + self.cancelled + self.retried


class Bucket(Record, frozen=True, kw_only=True):
    """What ended in a time that begins at `start_ms`."""

    start_ms: int
    step_ms: int
    tasks: tuple[TaskEnds, ...] = ()


class Tier(NamedTuple):
    """Buckets of one length, and for how long they are kept. `name` begins the keys of their rows."""

    name: str
    step_ms: int
    kept_ms: int


TIERS = (
    Tier("m", MINUTE_MS, 3 * HOUR_MS),
    Tier("t", 10 * MINUTE_MS, 2 * DAY_MS),
    Tier("h", HOUR_MS, 60 * DAY_MS),
    # One bucket of everything since the store was made.
    Tier("a", MAX_TIME_MS, MAX_TIME_MS),
)
# A time that only the last tier goes back.
EVER_MS = YEAR_MS


class GetHistory(Query, frozen=True, kw_only=True):
    """Replies the buckets of the last `span_ms`, oldest first, those in which nothing ended too.

    The buckets are the shortest that go back so far; for more than sixty days it is one bucket, of everything
    since the store was made. Of a `tenant`: what it had.
    """

    tenant: str | None = None
    task: str | None = None
    span_ms: int = HOUR_MS


def tier_for(span_ms: int) -> Tier:
    """The shortest buckets that go back so far."""
    return next((tier for tier in TIERS if tier.kept_ms >= span_ms), TIERS[-1])


def start_of(tier: Tier, at_ms: int) -> int:
    """When the bucket of a moment begins."""
    return at_ms - at_ms % tier.step_ms


def ends_of(tallies: Mapping[TallyKey, int]) -> list[TaskEnds]:
    """Tallies by task."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for key, number in tallies.items():
        found.setdefault((key.tenant, key.task), {})[key.kind] = number
    return [TaskEnds(tenant=tenant, task=task, **numbers) for (tenant, task), numbers in found.items()]


def summed(parts: Iterable[TaskEnds], *, most: int = NAMED_TASKS) -> tuple[TaskEnds, ...]:
    """The sums by task, the busiest first; those beyond `most` are one, under no name."""
    sums: dict[tuple[str, str], TaskEnds] = {}
    for one in parts:
        key = (one.tenant, one.task)
        sums[key] = _plus(sums[key], one) if key in sums else one
    rest = sums.pop(("", ""), None)
    busy = sorted(sums.values(), key=lambda one: (-one.ended, one.tenant, one.task))
    for one in busy[most:]:
        rest = _plus(rest or TaskEnds(), one)
    return (*busy[:most], *(() if rest is None else (rest,)))


def _plus(one: TaskEnds, other: TaskEnds) -> TaskEnds:
    return replace(
        one,
        finished=one.finished + other.finished,
        failed=one.failed + other.failed,
        cancelled=one.cancelled + other.cancelled,
        retried=one.retried + other.retried,
        run_ms=one.run_ms + other.run_ms,
    )
