"""Fair order of claims between tenants, and between the tasks of a tenant; the same in every store.

    tenants   b   d   a   c          served longest ago first; tenants that were never served come first
               │
    tasks      └─ x  y               the tasks of each tenant likewise

A turn is a number that grows with every claim, not a time, so that there are no ties. The turn of a tenant or
task without READY jobs is kept for a while. Otherwise it would come first whenever it gets a job again, and a
tenant that always has just one job would starve all others. The turn is deleted after REMEMBERED later turns:
by then the tenant or task would come first anyway.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol

from ..core.job import Job
from ..core.kinds import HANDLED, name_of
from .contract import ClaimQuery, Waiting, WaitingQuery

# For how many later turns the turn of a pair or tenant without READY jobs is kept.
REMEMBERED = 10_000
# Old turns are deleted once in this many turns, and at most this many at once.
SWEPT_EVERY = 256
SWEPT_AT_ONCE = 2_000
# How much `waiting` examines: pages of tenants, tasks per page, and at least this many tasks per tenant.
# Paused and unknown tasks are never served, so they stay in front and may be all that it finds.
PAGES = 4
PAGE_TASKS = 4_096
TENANT_TASKS = 64

# A tenant and one of its tasks.
Pair = tuple[str, str]
# The last turn of a tenant, and its name.
Turn = tuple[int, str]
# Tasks by tenant, each with its number of READY jobs.
Tasks = dict[str, list[tuple[str, int]]]
# See `ReadTxn.rows`.
ReadRows = Callable[[str, Collection[str]], dict[str, bytes]]


class Orders(Protocol):
    """Look-ups of a store whose cost does not grow with the number of waiting pairs."""

    def tenants_by_turn(self, after: Turn, limit: int) -> list[Turn]:
        """The tenants with READY jobs and a turn above `after`, in order."""

    def turns_of(self, tenants: Sequence[str]) -> list[Turn]:
        """The turns of those of these tenants that have READY jobs, in any order."""

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query, with their numbers of READY jobs.

        At most `looked_at` tasks of a tenant are examined, including those that do not match.
        """


class NewTurns(NamedTuple):
    """The turns that a claim gives to pairs and tenants."""

    pairs: dict[Pair, int]
    tenants: dict[str, int]


def waiting(orders: Orders, query: WaitingQuery, rows: ReadRows) -> list[Waiting]:
    """See `ReadTxn.waiting`."""
    if query.limit < 1:
        return []
    found: Tasks = {}
    paused = {tenant for tenant, task in query.skipped if task is None}
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
    return [pair for row in lines for pair in row if pair is not None][: query.limit]


def _handled(
    orders: Orders, tasks: Tasks, query: WaitingQuery, rows: ReadRows, *, looked_at: int, limit: int
) -> Tasks:
    """The tasks of a page that have a handler.

    If none of a tenant's first tasks has one, `looked_at` tasks are examined: tasks without a handler are
    never served, and so stay in front of the others.
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
    """The query with only these tenants' skipped pairs: every task is checked against each of them."""
    mine = {None, *names}
    return query._replace(skipped=tuple((t, task) for t, task in query.skipped if task and t in mine))


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


def served(jobs: Sequence[Job], query: ClaimQuery, last: int) -> NewTurns:
    """The turns of the pairs and tenants of claimed jobs, numbered from `last` + 1.

    A tenant or task that got fewer jobs has an earlier turn, and so comes first the next time. The order of
    the picks breaks ties.
    """
    of_pair = Counter([(job.tenant, job.task) for job in jobs])
    of_tenant = Counter([job.tenant for job in jobs])
    # Counters remember the order in which they were filled.
    picked = dict.fromkeys((*((tenant, task) for tenant, task, _ in query.picks), *of_pair))
    spot = {pair: n for n, pair in enumerate(picked)}
    first: dict[str, int] = {}
    for pair, n in spot.items():
        first.setdefault(pair[0], n)
    order = sorted(of_pair, key=lambda p: (of_tenant[p[0]], first[p[0]], of_pair[p], spot[p]))
    pairs = {pair: last + n for n, pair in enumerate(order, start=1)}
    # A tenant gets the turn of the last of its tasks, so no task has a later turn than its tenant.
    return NewTurns(pairs, {tenant: turn for (tenant, _), turn in pairs.items()})


def is_sweep(before: int, after: int) -> bool:
    """Whether old turns should be deleted now that the last turn went from `before` to `after`."""
    return before // SWEPT_EVERY != after // SWEPT_EVERY
