"""The scheduler: whose job this worker starts next, among those that wait.

    waiting, by turn      a/x  b/x  c/y  a/y          from the store, which knows who was served when
    running here          a: 3   b: 0   c: 1          from this worker
                               │
    select ────────────────────┘  b/x                 again and again, until the room is full

| name | whose job |
|---|---|
| `fair` | of the tenant with the fewest running here, of its tasks the one with the fewest; then by turn |
| `random` | any task's that waits, each as likely |
| `weighted` | any task's that waits, as likely as its weight says |
| `first` | the first by priority and age over all tenants and tasks: whose it is does not matter |

Under `fair` a task that has half of this worker's slots gets no more while others wait: whoever else waits
has fewer. So a cap on a task's share (`tests/work/test_scheduler.py` holds it at 80 %) needs no rule of its
own. Nothing here reads a clock, a store, or dice of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

from msgspec import Struct

from ..core.bounds import CLAIM_JOBS
from ..core.errors import BadInput
from ..core.queries import Waiting
from ..store.contract import Pick

GROUP = "holdfast.schedulers"
MAX_WEIGHT = 1_000_000.0

K = TypeVar("K")
# A tenant and its task.
Pair = tuple[str, str]


class Setting(Struct, frozen=True, kw_only=True):
    """What a scheduler is made from."""

    # A number from 0 up to, but not including, 1; another each time.
    dice: Callable[[], float]
    # By task, or by tenant and task written `tenant-task`.
    weights: Mapping[str, float] = {}


class Scheduler(Protocol):
    """Says whose job is next. Made by one worker, for itself."""

    # Whether it selects at all: if not, claims are by priority over all.
    selects: bool

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """One of these, which wait in this order, or None; `counts` says about how many jobs of each."""

    def jobs_started(self, pair: Pair, count: int) -> None:
        """So many jobs of a task are now in this worker, or soon will be."""

    def jobs_stopped(self, pair: Pair, count: int) -> None:
        """So many of them no longer are."""


class Counting:
    """Keeps count of what is in this worker, by task and by tenant."""

    selects = True

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.running: Counter[Pair] = Counter()
        self.tenants: Counter[str] = Counter()

    def jobs_started(self, pair: Pair, count: int) -> None:
        """So many more."""
        self.running[pair] += count
        self.tenants[pair[0]] += count

    def jobs_stopped(self, pair: Pair, count: int) -> None:
        """So many fewer; never below none, and what is at none is forgotten."""
        count = min(count, self.running[pair])
        _lower(self.running, pair, count)
        _lower(self.tenants, pair[0], count)


def _lower(counter: Counter[K], key: K, count: int) -> None:
    counter[key] -= count
    if not counter[key]:
        del counter[key]


class First(Counting):
    """Strict priority over all: it does not select, unless somebody insists."""

    selects = False

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """The first."""
        return tasks[0] if tasks else None


class Random(Counting):
    """Any task that waits, each as likely."""

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """One by chance."""
        return tasks[int(self.setting.dice() * len(tasks))] if tasks else None


class Fair(Counting):
    """Tenants share first, then their tasks."""

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """The one with the least here; among equals whoever was served longest ago."""
        tenants, running = self.tenants, self.running
        return min(tasks, key=lambda pair: (tenants[pair[0]], running[pair]), default=None)


class Weighted(Counting):
    """Any task that waits, as likely as its weight says. A weight is a chance, not a rank."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        for name, weight in setting.weights.items():
            if not 0 < weight <= MAX_WEIGHT:
                raise BadInput(
                    f"weight of {name}", weight, needed=f"a number above 0, at most {MAX_WEIGHT:,.0f}"
                )

    def select(self, tasks: Sequence[Pair], counts: Mapping[Pair, int]) -> Pair | None:
        """One by weighted chance."""
        weights = [self._weight(pair) for pair in tasks]
        left = self.setting.dice() * sum(weights)
        for pair, weight in zip(tasks, weights, strict=True):
            left -= weight
            if left < 0:
                return pair
        return tasks[-1] if tasks else None

    def _weight(self, pair: Pair) -> float:
        weights = self.setting.weights
        return weights.get("-".join(pair), weights.get(pair[1], 1.0))


SCHEDULERS: dict[str, Callable[[Setting], Scheduler]] = {
    "fair": Fair,
    "first": First,
    "random": Random,
    "weighted": Weighted,
}


def make_scheduler(name: str, setting: Setting) -> Scheduler:
    """The scheduler of that name: one of ours, or of an installed package's entry point."""
    if name in SCHEDULERS:
        return SCHEDULERS[name](setting)
    plugged = {point.name: point for point in entry_points(group=GROUP)}
    if name not in plugged:
        known = ", ".join(sorted({*SCHEDULERS, *plugged}))
        raise BadInput("scheduler", name, needed=f"one of {known}, or an entry point of {GROUP}")
    made: Scheduler = plugged[name].load()(setting)
    return made


def read_weights(texts: Iterable[str]) -> dict[str, float]:
    """Weights as people write them: `mail=5`, or of one tenant's task `acme-mail=0.5`."""
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


class Room(Protocol):
    """How much a worker can take."""

    def fits(self, task: str) -> int:
        """How many more jobs of a task."""

    def take(self, task: str, count: int) -> None:
        """So many of them are coming."""


def choose(scheduler: Scheduler, waiting: Sequence[Waiting], room: Room) -> tuple[Pick, ...]:
    """What to claim: quanta of what the scheduler selects, until nothing fits or nothing waits."""
    left = {(lane.tenant, lane.task): max(lane.ready, 1) for lane in waiting}
    picks: Counter[Pair] = Counter()
    while left and picks.total() < CLAIM_JOBS:
        pair = scheduler.select(list(left), left)
        if pair not in left:
            break
        fits = room.fits(pair[1])
        # Small enough that all have a share, large enough that not every job is a choice of its own.
        count = min(max(fits // (2 * len(left)), 1), fits, left[pair], CLAIM_JOBS - picks.total())
        left[pair] -= count
        if not left[pair] or not fits:
            del left[pair]
        if count:
            picks[pair] += count
            room.take(pair[1], count)
            scheduler.jobs_started(pair, count)
    for pair, count in picks.items():
        # They were counted as they were chosen; whether they come is another matter.
        scheduler.jobs_stopped(pair, count)
    return tuple((*pair, count) for pair, count in picks.items())
