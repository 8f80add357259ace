"""The scheduler: which of the waiting tasks this worker claims next, by tenant and task.

    waiting               a/x  b/x  c/y  a/y          from the store, in rotation
    running here          a: 3   b: 0   c: 1          from this worker
                               │
    select ────────────────────┘  b/x                 repeated until the capacity is used

| name | selects |
|---|---|
| `fair` | the tenant with the fewest jobs here, its task with the fewest; then the next in rotation |
| `random` | any waiting task, with equal probability |
| `weighted` | any waiting task, with a probability by its weight |
| `first` | nothing: jobs are claimed by priority and age over all tenants and tasks |

Under `fair` a task that has half of this worker's slots gets no more while others wait, because these have
fewer. So a cap on a task's share (`tests/work/test_scheduler.py` holds it at 80 %) needs no rule of its own.
Nothing here reads a clock or a store, and random numbers are an argument.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from ..core.bounds import CLAIM_JOBS
from ..core.errors import BadInput
from ..core.queries import Waiting
from ..store.contract import Pick
from .capacity import Capacity

GROUP = "holdfast.schedulers"
MAX_WEIGHT = 1_000_000.0

K = TypeVar("K")
# A tenant and its task.
Pair = tuple[str, str]


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """The arguments of a scheduler's constructor."""

    # Returns a random number from 0 up to, but not including, 1.
    rng: Callable[[], float]
    # By task, or by tenant and task written `tenant-task`.
    weights: Mapping[str, float] = {}


class Scheduler(Protocol):
    """Selects the task to claim from next. Each worker has its own."""

    # If False, jobs are claimed by priority over all tasks, and `select` is not called.
    selects: bool

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """One of these waiting tasks, or None. They are in rotation; `counts` are approximate."""

    def jobs_started(self, pair: Pair, count: int) -> None:
        """This many jobs of a task are now in this worker, or soon will be."""

    def jobs_stopped(self, pair: Pair, count: int) -> None:
        """This many jobs of a task have left this worker."""


class CountingScheduler:
    """A base class that counts the jobs in this worker, by task and by tenant."""

    selects = True

    def __init__(self, setting: SchedulerSettings) -> None:
        self.setting = setting
        self.running: Counter[Pair] = Counter()
        self.tenants: Counter[str] = Counter()

    def jobs_started(self, pair: Pair, count: int) -> None:
        """Add to the counts."""
        self.running[pair] += count
        self.tenants[pair[0]] += count

    def jobs_stopped(self, pair: Pair, count: int) -> None:
        """Subtract from the counts, not below zero."""
        count = min(count, self.running[pair])
        _subtract(self.running, pair, count)
        _subtract(self.tenants, pair[0], count)


def _subtract(counter: Counter[K], key: K, count: int) -> None:
    counter[key] -= count
    if not counter[key]:
        del counter[key]


class First(CountingScheduler):
    """Strict priority over all tasks: does not select."""

    selects = False

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """The first of the tasks."""
        return tasks[0] if tasks else None


class Random(CountingScheduler):
    """Any waiting task, with equal probability."""

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """A random task."""
        return tasks[int(self.setting.rng() * len(tasks))] if tasks else None


class Fair(CountingScheduler):
    """Shares the worker between tenants first, then between their tasks."""

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """The task with the fewest jobs here; among equals the first in rotation."""
        tenants, running = self.tenants, self.running
        return min(tasks, key=lambda pair: (tenants[pair[0]], running[pair]), default=None)


class Weighted(CountingScheduler):
    """Any waiting task, with a probability in proportion to its weight."""

    def __init__(self, setting: SchedulerSettings) -> None:
        super().__init__(setting)
        for name, weight in setting.weights.items():
            if not 0 < weight <= MAX_WEIGHT:
                raise BadInput(
                    f"weight of {name}", weight, needed=f"a number above 0, at most {MAX_WEIGHT:,.0f}"
                )

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """A random task, by weight."""
        weights = [self._weight(pair) for pair in tasks]
        left = self.setting.rng() * sum(weights)
        for pair, weight in zip(tasks, weights, strict=True):
            left -= weight
            if left < 0:
                return pair
        return tasks[-1] if tasks else None

    def _weight(self, pair: Pair) -> float:
        weights = self.setting.weights
        return weights.get("-".join(pair), weights.get(pair[1], 1.0))


SCHEDULERS: dict[str, Callable[[SchedulerSettings], Scheduler]] = {
    "fair": Fair,
    "first": First,
    "random": Random,
    "weighted": Weighted,
}


def make_scheduler(name: str, setting: SchedulerSettings) -> Scheduler:
    """Make the scheduler of this name: a built-in one, or an entry point of an installed package."""
    if name in SCHEDULERS:
        return SCHEDULERS[name](setting)
    # Slow to import.
    from importlib.metadata import entry_points

    plugged = {point.name: point for point in entry_points(group=GROUP)}
    if name not in plugged:
        known = ", ".join(sorted({*SCHEDULERS, *plugged}))
        raise BadInput("scheduler", name, needed=f"one of {known}, or an entry point of {GROUP}")
    made: Scheduler = plugged[name].load()(setting)
    return made


def read_weights(texts: Iterable[str]) -> dict[str, float]:
    """Parse weights such as `mail=5`, or for the task of one tenant `acme-mail=0.5`."""
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            raise BadInput("weight", text, needed="a task and a number, such as mail=5") from None
        if not name:
            raise BadInput("weight", text, needed="a task and a number, such as mail=5")
    return weights


def choose(
    scheduler: Scheduler,
    waiting: Sequence[Waiting],
    capacity: Capacity,
    room_of: Callable[[str], float] = lambda _tenant: math.inf,
) -> tuple[Pick, ...]:
    """The picks to claim: shares of the selected tasks, until the capacity is used or nothing waits.

    `room_of` returns how many slots a tenant may still get for tasks that are not short. The pick that was
    selected last is the last one.
    """
    room = {one.tenant: room_of(one.tenant) for one in waiting}
    left = {(one.tenant, one.task): max(one.ready, 1) for one in waiting}
    picks: Counter[Pair] = Counter()
    while left and picks.total() < CLAIM_JOBS:
        pair = scheduler.select(list(left), left)
        if pair not in left:
            break
        is_slow = capacity.durations.is_slow(pair[1])
        fits = capacity.fits(pair[1])
        if is_slow and room[pair[0]] < fits:
            fits = max(int(room[pair[0]]), 0)
        # Small enough that every task gets a share, large enough to keep the number of selections low.
        count = min(max(fits // (2 * len(left)), 1), fits, left[pair], CLAIM_JOBS - picks.total())
        left[pair] -= count
        if not left[pair] or not fits:
            del left[pair]
        if count:
            picks[pair] = picks.pop(pair, 0) + count
            room[pair[0]] -= count if is_slow else 0
            capacity.reserve(pair[1], count)
            scheduler.jobs_started(pair, count)
    for pair, count in picks.items():
        # Counted while choosing; the claim may not get them.
        scheduler.jobs_stopped(pair, count)
    return tuple((*pair, count) for pair, count in picks.items())
