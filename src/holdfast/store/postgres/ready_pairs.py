"""The pairs of tenant and task that have READY jobs, in PostgreSQL. See `store/ready_pairs.py`."""

from collections.abc import Iterable, Sequence

from ..contract import WaitingQuery, is_skipped
from ..ready_pairs import Tasks, wrapped
from .connection import PostgresConnection
from .statements import ABOVE, texts

# A tenant and one of its tasks.
Pair = tuple[str, str]


class StoredPairs:
    """`ready_pairs.ReadyPairs` by SQL."""

    def __init__(self, connection: PostgresConnection, sql: dict[str, str]) -> None:
        self._connection, self._sql = connection, sql

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        first = first_after(after)
        found = self._tenants(first, ABOVE, limit)
        return found if len(found) == limit else found + self._tenants("", first, limit - len(found))

    def _tenants(self, first: str, below: str, limit: int) -> list[str]:
        rows = self._connection.rows(self._sql["ready_tenants"], (first, below, limit))
        return [tenant for (tenant,) in rows]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        rows = self._connection.rows(self._sql["having_ready"], (texts(tenants),))
        return [tenant for (tenant,) in rows]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query."""
        values = {
            "tenants": texts(tenants),
            "first": first_after(query.after[1]),
            "tasks": None if query.tasks is None else texts(query.tasks),
            "skipped_tenants": texts([tenant for tenant, _ in query.skipped]),
            "skipped_tasks": texts([task for _, task in query.skipped]),
            "looked_at": looked_at,
            "limit": limit,
        }
        found: Tasks = {}
        for tenant, task, number in self._connection.rows(self._sql["ready_tasks"], values):
            found.setdefault(tenant, []).append((task, number))
        return found


class SeenPairs:
    """`ready_pairs.ReadyPairs` for pairs that were all read already, because they are few."""

    def __init__(self, pairs: Iterable[tuple[Pair, int]]) -> None:
        self._tasks: Tasks = {}
        for (tenant, task), number in pairs:
            self._tasks.setdefault(tenant, []).append((task, number))

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        return wrapped(self._tasks, after)[:limit]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        return [tenant for tenant in tenants if tenant in self._tasks]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query."""
        found: Tasks = {}
        for tenant in tenants:
            ready = dict(self._tasks.get(tenant, ()))
            found[tenant] = [
                (task, ready[task])
                for task in wrapped(ready, query.after[1])
                if (query.tasks is None or task in query.tasks)
                and not is_skipped((tenant, task), query.skipped)
            ][:limit]
        return found


def first_after(name: str) -> str:
    """The first name above this one: text has no NUL."""
    return name + "\1"
