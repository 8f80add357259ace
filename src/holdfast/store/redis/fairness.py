"""The fair order in Redis: tenants and tasks in sorted sets, which the commit script maintains."""

from collections.abc import Callable, Sequence
from typing import Any

from .. import fairness
from ..contract import WaitingQuery, is_skipped
from .connection import Command
from .keys import Keys, Pair

Ask = Callable[[Sequence[Command]], list[Any]]


class RedisTurns:
    """`fairness.Orders` on Redis."""

    def __init__(self, ask: Ask, keys: Keys) -> None:
        self._ask, self._keys = ask, keys

    # `fairness.Orders`

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        served, last = after
        found: list[fairness.Turn] = []
        # Very many tenants may have the same turn: all that were never served.
        skip = 0
        while len(found) < limit:
            words = (self._keys.turn_tenants, max(served, 0), "+inf", "WITHSCORES", "LIMIT", skip, limit)
            ((*flat,),) = self._ask([(b"ZRANGEBYSCORE", *words)])
            page = [(int(turn), name.decode()) for name, turn in zip(flat[::2], flat[1::2], strict=True)]
            found += [turn for turn in page if turn > (served, last)]
            if len(page) < limit:
                break
            skip += limit
        return found[:limit]

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """The turns of those of these tenants that have READY jobs."""
        if not tenants:
            return []
        scores = self._ask([(b"ZSCORE", self._keys.turn_tenants, tenant) for tenant in tenants])
        return [(int(float(s)), tenant) for s, tenant in zip(scores, tenants, strict=True) if s is not None]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """The first tasks of each tenant that match the query."""
        rows = self._ask([(b"ZRANGE", self._keys.tasks(tenant), 0, looked_at - 1) for tenant in tenants])
        free: list[Pair] = []
        for tenant, names in zip(tenants, rows, strict=True):
            tasks = [name.decode() for name in names]
            known = [task for task in tasks if query.tasks is None or task in query.tasks]
            open_tasks = [task for task in known if not is_skipped((tenant, task), query.skipped)]
            free += [(tenant, task) for task in open_tasks[:limit]]
        if not free:
            return {}
        queues = [self._keys.queue(*pair, mock=mock) for pair in free for mock in (False, True)]
        sizes = self._ask([(b"ZCARD", queue) for queue in queues])
        found: dict[str, list[tuple[str, int]]] = {}
        for (tenant, task), plain, mock in zip(free, sizes[::2], sizes[1::2], strict=True):
            if plain + mock:
                # Otherwise a claim has just taken all of its jobs.
                found.setdefault(tenant, []).append((task, plain + mock))
        return found
