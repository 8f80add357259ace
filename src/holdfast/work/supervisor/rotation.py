"""Where a worker is in the names of tenants and tasks. It moves on with each claim, and wraps round.

    tenants   a   b   c   d   e   f        the page begins above the tenant that was picked last
                      └────────────▶
    tasks     c: x ▶ y   d: y ▶ z          of each tenant above its own task that was picked last

So every tenant is served in each round, and a task that always has one job does not starve the others. The
list has the tasks of all its tenants from one name on: the task that the next tenant had last, or, by chance,
one of those after it. Where the list has several tasks of a tenant, they are put in order here.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...core.job import Job
from ...core.queries import Waiting
from ...store.contract import Pick
from ...store.ready_pairs import interleaved, wrapped

T = TypeVar("T")
# Of how many tenants the last task is remembered; those of others are picked by chance.
MAX_TENANTS = 16_384
# The range of the first character of the random names at which a worker begins.
FIRST, LAST = ord(" "), ord("z")


class Rotation:
    """The place of one claim loop."""

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
