"""In which order a claim loop offers the waiting tasks to its scheduler.

Rotation      the tasks of all tenants in turn
TenantShares  of stored handlers: tenants first that have used the least time of late
WarmTasks     of stored handlers: tasks first that probably have a warm context here, which costs less
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ..core.job import Job
from ..core.queries import Waiting
from ..store.contract import Pick
from ..store.ready_pairs import interleaved, wrapped
from .scheduler import Pair

T = TypeVar("T")
# Of how many tenants the last task is remembered; those of others are picked by chance.
MAX_TENANTS = 16_384
# The range of the first character of the random names at which a worker begins.
FIRST, LAST = ord(" "), ord("z")


class Rotation:
    """Where a claim loop is in the names of tenants and tasks. It moves on with each claim, and wraps round.

        tenants   a   b   c   d   e   f        the page begins above the tenant that was picked last
                          └────────────▶
        tasks     c: x ▶ y   d: y ▶ z          of each tenant above its own task that was picked last

    So every tenant is served in each round, and a task that always has one job does not starve the others.
    The list has the tasks of all its tenants from one name on: the task that the next tenant had last, or,
    by chance, one of those after it. Where the list has several tasks of a tenant, they are put in order
    here.
    """

    def __init__(self, rng: Callable[[], float]) -> None:
        self._rng = rng
        # The list begins above this tenant; of each tenant above this task.
        self.tenant, self.task = self._any_name(), self._any_name()
        # The task of each tenant that was picked last, the latest at the end.
        self._last: dict[str, str] = {}

    def order(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """The list with the tasks of each tenant in its own order."""
        tenants: dict[str, dict[str, Waiting]] = {}
        for one in waiting:
            tenants.setdefault(one.tenant, {})[one.task] = one
        if len(tenants) == len(waiting):
            return list(waiting)
        return interleaved(
            [tasks[task] for task in wrapped(tasks, self._last.get(tenant, self.task))]
            for tenant, tasks in tenants.items()
        )

    def move(self, waiting: Sequence[Waiting], picks: Sequence[Pick]) -> None:
        """Move on to the last of the picks, which are in the order in which they were selected."""
        for tenant, task, _ in picks:
            self._remember(tenant, task)
        tenants = list(dict.fromkeys(one.tenant for one in waiting))
        self.tenant = picks[-1][0]
        at = tenants.index(self.tenant) + 1
        # These come next; each may give its last task, so that none gets the same task in every round.
        ahead = [*tenants[at:], *tenants[:at]][: len({tenant for tenant, _, _ in picks})]
        self.task = self._last.get(self._any_of(ahead)) or self._any_of(waiting).task

    def jump(self, job: Job) -> None:
        """Move on to a job that was claimed by priority, because the list was empty."""
        self._remember(job.tenant, job.task)
        self.tenant, self.task = job.tenant, job.task

    def _remember(self, tenant: str, task: str) -> None:
        self._last.pop(tenant, None)
        self._last[tenant] = task
        if len(self._last) > MAX_TENANTS:
            del self._last[next(iter(self._last))]

    def _any_of(self, items: Sequence[T]) -> T:
        return items[int(self._rng() * len(items))]

    def _any_name(self) -> str:
        return "".join(chr(FIRST + int(self._rng() * (LAST - FIRST))) for _ in range(2))


# How long it takes until time that was used counts half.
HALF_S = 60.0
# Tenants that used less than this are forgotten.
LEAST_S = 0.001


class TenantShares:
    """How much of the slots for stored handlers each tenant has, and may have, as of the last `update`.

    A job that sleeps has its slot until it ends, and no job is interrupted for another. So one tenant gets
    all slots but one for jobs that are not short, also while no other waits: the next one finds a slot.
    """

    def __init__(self) -> None:
        self._most = math.inf
        self._busy: Mapping[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._updated_s = 0.0

    def update(self, slots: int, busy: Mapping[str, float], now_s: float) -> None:
        """Set how many slots there are, and how many each tenant has with jobs that are not short.

        Since the last update the tenants have had about those of that time.
        """
        passed_s = now_s - self._updated_s if self._updated_s else 0.0
        weight = 0.5 ** (passed_s / HALF_S)
        used_s = {tenant: weight * used for tenant, used in self._used_s.items() if used > LEAST_S}
        for tenant, count in self._busy.items():
            used_s[tenant] = used_s.get(tenant, 0.0) + count * passed_s
        # With one slot there is nothing to share.
        self._most = math.inf if slots == 1 else slots - 1
        self._busy, self._used_s, self._updated_s = busy, used_s, now_s

    def room(self, tenant: str) -> float:
        """How many more slots a tenant may have."""
        return max(self._most - math.ceil(self._busy.get(tenant, 0.0)), 0)

    def room_of_any(self) -> float:
        """How many more slots a tenant may have, whichever it is."""
        return min((self.room(tenant) for tenant in self._busy), default=self._most)

    def order(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Waiting tasks, those of tenants first that used the least time; else as they are."""
        return sorted(waiting, key=lambda one: self._used_s.get(one.tenant, 0.0))


# As many contexts as an executor keeps while no job runs in them, by default.
MAX_WARM = 16
# How often the first task of the list may be passed over for warm ones.
MAX_PASSED = 4


# Tasks that ran last, the latest at the end. The claim loops of several stores share one, as executors share
# their contexts between stores.
WarmPairs = OrderedDict[Pair, None]


class WarmTasks:
    """The tasks that ran here last. They come first among equals, a few times in a row."""

    def __init__(self, pairs: WarmPairs | None = None) -> None:
        self._warm: WarmPairs = OrderedDict() if pairs is None else pairs
        self._passed = 0

    @property
    def has_passed(self) -> bool:
        """Whether the last order passed over the first task for warm ones."""
        return self._passed > 0

    def record(self, running: Iterable[Pair]) -> None:
        """These tasks have jobs here now."""
        for pair in running:
            self._warm[pair] = None
            self._warm.move_to_end(pair)
        while len(self._warm) > MAX_WARM:
            self._warm.popitem(last=False)

    def order(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Waiting tasks with the warm ones first; as they are, when the first has been passed over enough."""
        warm = [one for one in waiting if (one.tenant, one.task) in self._warm]
        if not warm or waiting[0] is warm[0] or self._passed >= MAX_PASSED:
            self._passed = 0
            return list(waiting)
        self._passed += 1
        return warm + [one for one in waiting if (one.tenant, one.task) not in self._warm]
