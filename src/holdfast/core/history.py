"""History: how the jobs of each task ended, over time. See docs/decisions/0021.

    a commit that ends jobs ──▶ tallies by task and kind ──upkeep──▶ buckets of a minute, 10 minutes, 6 hours

Upkeep moves tallies into buckets; tallies not moved yet count as part of the last bucket.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from .bounds import DAY_MS, HOUR_MS, MAX_INDEX, MAX_TIME_MS, MINUTE_MS, YEAR_MS
from .job import Record
from .queries import Query

# How many tasks a bucket lists, the busiest; the others are one sum without a name.
NAMED_TASKS = 200
# How many tasks have sums of their own since the store was created: the series of metrics.
COUNTED_TASKS = 100


# The kinds of tallies. RETRIED: a run ended and its job runs again. RUN_MS: the milliseconds that runs took.
# The texts are stored: never change one.
FINISHED, FAILED, CANCELLED, RETRIED, RUN_MS = "finished", "failed", "cancelled", "retried", "run_ms"


class TallyKey(NamedTuple):
    """The key of a tally. A store keeps tallies with its counts: `place` is one that no job has."""

    tenant: str
    task: str
    place: int
    kind: str


NO_PLACE = 0


# How many values there were in each slot of time.
Slots = tuple[tuple[int, int], ...]


def percentile_ms(slots: Slots, share: float) -> int | None:
    """About the duration that this share of the values does not exceed; None: there are no values."""
    wanted = share * sum(number for _, number in slots)
    for slot, number in slots:
        wanted -= number
        if wanted <= 0:
            bits, half = divmod(slot, 2)
            if slot < 4:
                return slot
            return ((2 + half) << (bits - 2)) + (1 << (bits - 2)) // 2
    return None


class TaskEnds(Record, frozen=True, kw_only=True):
    """How runs of a task ended. An empty task name stands for all tasks that the bucket does not list."""

    tenant: str = ""
    task: str = ""
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    run_ms: int = 0
    # How many of the runs had waited, and took, how long: (slot, number) in order. A slot is twice the bits
    # of the milliseconds, and 1 more if the second bit is set.
    waits: Slots = ()
    runs: Slots = ()

    @property
    def ended(self) -> int:
        """The number of runs that ended."""
        return self.finished + self.failed + self.cancelled + self.retried


class Bucket(Record, frozen=True, kw_only=True):
    """The runs that ended in the interval from `start_ms`."""

    start_ms: int
    step_ms: int
    tasks: tuple[TaskEnds, ...] = ()
    # How many of all runs are of tasks that are not listed: perhaps of the one that was asked for.
    unlisted: int = 0


class Tier(NamedTuple):
    """Buckets of one length, and how long they are kept. The keys of their rows begin with `name`.

    A bucket lists its `most` busiest tasks of tenants. If it is `fixed` it lists the first ones that ended,
    and none leaves the list, so that no sum ever decreases; `merged`: as if all tenants were one.
    """

    name: str
    step_ms: int
    kept_ms: int
    most: int = NAMED_TASKS
    fixed: bool = False
    merged: bool = False

    def grown(self, before: Sequence[TaskEnds], more: Iterable[TaskEnds]) -> tuple[TaskEnds, ...]:
        """The list of a bucket after more runs have ended."""
        more = [replace(one, tenant="") for one in more] if self.merged else more
        if not self.fixed:
            return summed((*before, *more), most=self.most)
        named = dict.fromkeys((one.tenant, one.task) for one in before if one.task)
        sums = {(one.tenant, one.task): one for one in summed((*before, *more), most=MAX_INDEX)}
        rest = sums.pop(("", ""), None)
        for key, ends in sums.items():
            if key in named or len(named) < self.most:
                named[key] = None
            else:
                rest = _add(rest or TaskEnds(), ends)
        return (*(sums[key] for key in named), *(() if rest is None else (rest,)))


TIERS = (
    Tier("m", MINUTE_MS, 3 * HOUR_MS),
    Tier("t", 10 * MINUTE_MS, 2 * DAY_MS),
    Tier("q", 6 * HOUR_MS, 60 * DAY_MS),
    # One bucket with everything since the store was created: by tenant, and for all tenants together.
    Tier("a", MAX_TIME_MS, MAX_TIME_MS, fixed=True),
    Tier("g", MAX_TIME_MS, MAX_TIME_MS, most=COUNTED_TASKS, fixed=True, merged=True),
)
# A span that only the last tier covers.
EVER_MS = YEAR_MS


class GetHistory(Query, frozen=True, kw_only=True):
    """Replies the buckets of the last `span_ms`, oldest first, including empty ones.

    The buckets are the shortest kept for that span. For more than sixty days the reply is one bucket, with
    everything since the store was created, and without a `tenant` as if all were one, named "". `tenant`:
    only its jobs. Of very many tasks a bucket lists the busiest, and that one the first.
    """

    tenant: str | None = None
    task: str | None = None
    span_ms: int = HOUR_MS
    # Also how long runs waited and took: `TaskEnds.waits` and `runs`.
    timings: bool = False


def tier_for(span_ms: int, tenant: str | None) -> Tier:
    """The tier with the shortest buckets that cover a span."""
    found = next(tier for tier in TIERS if tier.kept_ms >= span_ms)
    return TIERS[-1] if found.fixed and tenant is None else found


def start_of(tier: Tier, at_ms: int) -> int:
    """The start of the bucket that contains a time."""
    return at_ms - at_ms % tier.step_ms


def ends_of(tallies: Mapping[TallyKey, int]) -> list[TaskEnds]:
    """Group tallies by task. The kind `finished:8:13` has the slots of how long runs waited and took."""
    found: dict[tuple[str, str], tuple[Counter[str], Counter[int], Counter[int]]] = {}
    for key, number in tallies.items():
        numbers, waits, runs = found.setdefault((key.tenant, key.task), (Counter(), Counter(), Counter()))
        kind, *slots = key.kind.split(":")
        numbers[kind] += number
        if slots:
            waits[int(slots[0])] += number
            runs[int(slots[1])] += number
    return [
        TaskEnds(tenant=tenant, task=task, **numbers, waits=_slots(waits), runs=_slots(runs))
        for (tenant, task), (numbers, waits, runs) in found.items()
    ]


def _slots(counts: Mapping[int, int]) -> Slots:
    return tuple(sorted((slot, number) for slot, number in counts.items() if number))


def summed(parts: Iterable[TaskEnds], *, most: int = NAMED_TASKS) -> tuple[TaskEnds, ...]:
    """The sums by task, busiest first; those beyond `most` are one sum without a name."""
    sums: dict[tuple[str, str], TaskEnds] = {}
    for one in parts:
        key = (one.tenant, one.task)
        sums[key] = _add(sums[key], one) if key in sums else one
    rest = sums.pop(("", ""), None)
    busy = sorted(sums.values(), key=lambda one: (-one.ended, one.tenant, one.task))
    for one in busy[most:]:
        rest = _add(rest or TaskEnds(), one)
    return (*busy[:most], *(() if rest is None else (rest,)))


def _add(one: TaskEnds, other: TaskEnds) -> TaskEnds:
    return replace(
        one,
        finished=one.finished + other.finished,
        failed=one.failed + other.failed,
        cancelled=one.cancelled + other.cancelled,
        retried=one.retried + other.retried,
        run_ms=one.run_ms + other.run_ms,
        waits=added_slots(one.waits, other.waits),
        runs=added_slots(one.runs, other.runs),
    )


def added_slots(one: Slots, other: Slots) -> Slots:
    """The sums of two such counts."""
    if not one or not other:
        return one or other
    sums = dict(one)
    for slot, number in other:
        sums[slot] = sums.get(slot, 0) + number
    return _slots(sums)
