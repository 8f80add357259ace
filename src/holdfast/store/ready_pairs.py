"""The pairs of tenant and task that have READY jobs, page by page in order of name; the same in every store.

    tenants   b   c   d   a          from above `after[0]` on, wrapping round at the end
              │
    tasks     └─ x   y   w           of each tenant from above `after[1]` on, likewise

Nothing is written for it. Each worker moves on in the names with each claim (`work/supervisor/rotation.py`),
so every tenant is served in each round, however many jobs the others have.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Protocol

from ..core.kinds import HANDLED, name_of
from .contract import Waiting, WaitingQuery

# How much `waiting` examines: pages of tenants, tasks per page, and at least this many tasks per tenant.
# Tasks that are paused, unknown or without a handler may be all that it finds.
PAGES = 4
PAGE_TASKS = 4_096
TENANT_TASKS = 64

# Tasks by tenant, each with its number of READY jobs.
Tasks = dict[str, list[tuple[str, int]]]
# See `ReadTxn.rows`.
ReadRows = Callable[[str, Collection[str]], dict[str, bytes]]


class ReadyPairs(Protocol):
    """Look-ups of a store whose cost does not grow with the number of pairs."""

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs by name, from above `after` on, wrapping round."""

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs, in any order."""

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query.

        They begin above `query.after[1]`, and wrap round. At most `looked_at` tasks of a tenant are examined,
        including those that do not match.
        """


def waiting(pairs: ReadyPairs, query: WaitingQuery, rows: ReadRows) -> list[Waiting]:
    """See `ReadTxn.waiting`."""
    if query.limit < 1:
        return []
    found: Tasks = {}
    paused = {tenant for tenant, task in query.skipped if task is None}
    for page in islice(_pages(pairs, query), PAGES):
        names = [tenant for tenant in page if not paused & {tenant, None}]
        if names:
            looked_at = max(TENANT_TASKS, PAGE_TASKS // len(names))
            each = max(1, query.limit // len(names))
            mine = _of(names, query)
            tasks = pairs.ready_tasks(names, mine, looked_at=looked_at, limit=each)
            if query.handled:
                tasks = _handled(pairs, tasks, mine, rows, looked_at=looked_at, limit=each)
            found |= {tenant: tasks[tenant] for tenant in names if tasks.get(tenant)}
        if len(found) >= query.limit:
            break
    return interleaved([Waiting(tenant, *task) for task in tasks] for tenant, tasks in found.items())[
        : query.limit
    ]


def interleaved(tenants: Iterable[Sequence[Waiting]]) -> list[Waiting]:
    """The first task of each tenant, then the second of each."""
    return [pair for row in zip_longest(*tenants) for pair in row if pair is not None]


def wrapped(names: Iterable[str], after: str) -> list[str]:
    """Names in order from above `after` on, wrapping round."""
    return sorted(names, key=lambda name: (name <= after, name))


def _handled(
    pairs: ReadyPairs, tasks: Tasks, query: WaitingQuery, rows: ReadRows, *, looked_at: int, limit: int
) -> Tasks:
    """The tasks of a page that have a handler.

    If none of a tenant's first tasks has one, `looked_at` tasks are examined: the others wait behind them.
    """
    found = _with_handler(tasks, rows)
    others = [tenant for tenant in tasks if not found[tenant] and len(tasks[tenant]) == limit]
    if others:
        more = pairs.ready_tasks(others, query, looked_at=looked_at, limit=looked_at)
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


def _pages(pairs: ReadyPairs, query: WaitingQuery) -> Iterator[list[str]]:
    last = query.after[0]
    if query.tenants is not None:
        named = wrapped(pairs.having_ready([*dict.fromkeys(query.tenants)]), last)
        for at in range(0, len(named), query.limit):
            yield named[at : at + query.limit]
        return
    seen: set[str] = set()
    while page := pairs.ready_tenants(last, query.limit):
        if new := [tenant for tenant in page if tenant not in seen]:
            yield new
        if len(new) < query.limit:
            return
        seen.update(new)
        last = page[-1]
