"""Whose turn it is: the order of service, which every store keeps in the same way.

    tenants   b   d   a   c          served longest ago first; who was never served comes before all
               │
    tasks      └─ x  y               of each tenant, in the same way

A turn is a number, not a moment, so that no two tie. A tenant or task that runs out of READY jobs is
remembered for a while: if it came first each time that it has a job again, one that always has just one
would be served for ever, and all others never. It is forgotten when so many others have had their turn
that it would come first anyway.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol

from ..core.job import Job
from ..core.kinds import HANDLED, name_of
from .contract import ClaimQuery, Waiting, WaitingQuery

# Who has no READY job is remembered for so many turns.
REMEMBERED = 10_000
# Every so many turns those to be forgotten are looked for, and at most so many of them go at once.
SWEPT_EVERY = 256
SWEPT_AT_ONCE = 2_000
# What `waiting` looks at before it gives up: pages of tenants, and on each page so many tasks, of each
# tenant at least so many. What is paused or unknown stands in front for ever, and may be all that it sees.
PAGES = 4
PAGE_TASKS = 4_096
TENANT_TASKS = 64

Pair = tuple[str, str]
# When it was last served, and its name.
Turn = tuple[int, str]
# Of each tenant some tasks, and how many jobs of each are READY.
Tasks = dict[str, list[tuple[str, int]]]
# The rows of a table, see `ReadTxn.rows`.
ReadRows = Callable[[str, Collection[str]], dict[str, bytes]]


class Orders(Protocol):
    """What a store can look up at once, however many wait."""

    def tenants_by_turn(self, after: Turn, limit: int) -> list[Turn]:
        """The tenants with READY jobs, in order, from the first above `after`."""

    def turns_of(self, tenants: Sequence[str]) -> list[Turn]:
        """Those of these tenants that have READY jobs, in any order."""

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """Of each tenant the first tasks that the query asks for, and how many jobs of each are READY.

        At most `looked_at` of a tenant's tasks are looked at, whether they are asked for or not.
        """


class Served(NamedTuple):
    """The turns that a claim was."""

    lanes: dict[Pair, int]
    tenants: dict[str, int]


def waiting(orders: Orders, query: WaitingQuery, rows: ReadRows) -> list[Waiting]:
    """See `ReadTxn.waiting`."""
    if query.limit < 1:
        return []
    found: Tasks = {}
    paused = {tenant for tenant, task in query.passing if task is None}
    for page in islice(_pages(orders, query), PAGES):
        names = [tenant for tenant in page if not paused & {tenant, None}]
        if names:
            looked_at = max(TENANT_TASKS, PAGE_TASKS // len(names))
            each = max(1, query.limit // len(names))
            mine = _of(names, query)
            tasks = orders.tasks_by_turn(names, mine, looked_at=looked_at, limit=each)
            if query.handled:
                tasks = _handled(orders, tasks, mine, rows, looked_at=looked_at, limit=each)
            found |= {tenant: tasks[tenant] for tenant in names if tasks.get(tenant)}
        if len(found) >= query.limit:
            break
    # The first task of each tenant, then the second of each: so the head of the list is in order.
    lines = zip_longest(*([Waiting(tenant, *task) for task in tasks] for tenant, tasks in found.items()))
    return [lane for row in lines for lane in row if lane is not None][: query.limit]


def _handled(
    orders: Orders, tasks: Tasks, query: WaitingQuery, rows: ReadRows, *, looked_at: int, limit: int
) -> Tasks:
    """Those of a page of tasks that have a handler.

    Where none of a tenant's first tasks has one, all that may be looked at are: tasks without a handler are
    never served, and so stand in front of the others for ever.
    """
    found = _with_handler(tasks, rows)
    others = [tenant for tenant in tasks if not found[tenant] and len(tasks[tenant]) == limit]
    if others:
        more = orders.tasks_by_turn(others, query, looked_at=looked_at, limit=looked_at)
        found |= {tenant: mine[:limit] for tenant, mine in _with_handler(more, rows).items()}
    return found


def _with_handler(tasks: Tasks, rows: ReadRows) -> Tasks:
    names = [name_of(tenant, task) for tenant, mine in tasks.items() for task, _ in mine]
    known = rows(HANDLED, names) if names else {}
    return {
        tenant: [(task, ready) for task, ready in mine if name_of(tenant, task) in known]
        for tenant, mine in tasks.items()
    }


def _of(names: list[str], query: WaitingQuery) -> WaitingQuery:
    """The query with what is passed by of these tenants alone: it is looked at for each of their tasks."""
    mine = {None, *names}
    return query._replace(passing=tuple((t, task) for t, task in query.passing if task and t in mine))


def _pages(orders: Orders, query: WaitingQuery) -> Iterator[list[str]]:
    if query.tenants is not None:
        named = list(dict.fromkeys(query.tenants))
        if len(named) > 1:
            named = [tenant for _, tenant in sorted(orders.turns_of(named))]
        for at in range(0, len(named), query.limit):
            yield named[at : at + query.limit]
        return
    last = (-1, "")
    while page := orders.tenants_by_turn(last, query.limit):
        yield [tenant for _, tenant in page]
        if len(page) < query.limit:
            return
        last = page[-1]


def served(jobs: Sequence[Job], query: ClaimQuery, last: int) -> Served:
    """The turns that a claim of these jobs was, numbered from the one after `last`.

    Who got fewer has the earlier turn, and so comes first the next time; then who was picked first.
    """
    of_lane = Counter([(job.tenant, job.task) for job in jobs])
    of_tenant = Counter([job.tenant for job in jobs])
    # Counters remember the order in which they were filled.
    picked = dict.fromkeys((*((tenant, task) for tenant, task, _ in query.picks), *of_lane))
    spot = {pair: n for n, pair in enumerate(picked)}
    first: dict[str, int] = {}
    for pair, n in spot.items():
        first.setdefault(pair[0], n)
    order = sorted(of_lane, key=lambda p: (of_tenant[p[0]], first[p[0]], of_lane[p], spot[p]))
    lanes = {pair: last + n for n, pair in enumerate(order, start=1)}
    # The last of its tasks counts: so no task has a later turn than any tenant.
    return Served(lanes, {tenant: turn for (tenant, _), turn in lanes.items()})


def is_sweep(before: int, after: int) -> bool:
    """Whether it is time to forget, as the turns go from one number to another."""
    return before // SWEPT_EVERY != after // SWEPT_EVERY
