"""The fair order in the memory store: pairs and tenants by the turn at which they were last served."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.job import Job, Place, State
from .. import fairness
from ..contract import ClaimQuery, CountKey, WaitingQuery, is_skipped
from .dicts import Entry, IndexedDict, UndoLog

# The indexes: _TENANTS has the tenants with READY jobs; _RESTING, one for tenants and one for pairs, those
# without. Pairs with READY jobs are in the index with their tenant's name.
_TENANTS = ("ready",)
_RESTING = ("resting",)


class TurnEntry(NamedTuple):
    """Whether a pair or tenant has READY jobs, and its last turn."""

    ready: bool
    served: int


# Of a pair or tenant without an entry.
_UNKNOWN = TurnEntry(ready=False, served=0)


class MemoryTurns:
    """Pairs and tenants by their turns."""

    def __init__(self, counts: Mapping[CountKey, int], undo_log: UndoLog) -> None:
        self._counts = counts
        self._pairs: IndexedDict[fairness.Pair, TurnEntry] = IndexedDict(undo_log, _pair_entries)
        self._tenants: IndexedDict[str, TurnEntry] = IndexedDict(undo_log, _tenant_entries)

    def serve(self, jobs: Sequence[Job], query: ClaimQuery) -> None:
        """Give the pairs and tenants of claimed jobs their turns."""
        last = self._last()
        pairs = {(job.tenant, job.task) for job in jobs}
        if len(pairs) == 1 and self._is_last(next(iter(pairs)), last):
            return
        served = fairness.served(jobs, query, last)
        for pair, turn in served.pairs.items():
            self._pairs.put(pair, self._pairs.get(pair, _UNKNOWN)._replace(served=turn))
        for tenant, turn in served.tenants.items():
            self._tenants.put(tenant, self._tenants.get(tenant, _UNKNOWN)._replace(served=turn))
        newest = last + len(served.pairs)
        if fairness.is_sweep(last, newest):
            _forget(self._pairs, newest - fairness.REMEMBERED)
            _forget(self._tenants, newest - fairness.REMEMBERED)

    def recount(self, pairs: Iterable[fairness.Pair]) -> None:
        """Update the indexes of pairs whose READY counts have changed."""
        for pair in pairs:
            standing, tenant = self._pairs.get(pair, _UNKNOWN), pair[0]
            if standing.ready != (self._ready(*pair) > 0):
                self._pairs.put(pair, standing._replace(ready=not standing.ready))
            whole = self._tenants.get(tenant, _UNKNOWN)
            if whole.ready != bool(self._pairs.index(tenant)):
                self._tenants.put(tenant, whole._replace(ready=not whole.ready))

    def _ready(self, tenant: str, task: str) -> int:
        queued = self._counts.get(CountKey(tenant, task, Place.READY, State.QUEUED), 0)
        return queued + self._counts.get(CountKey(tenant, task, Place.READY, State.RUNQUEUED), 0)

    def _last(self) -> int:
        indexes = [self._tenants.index(_TENANTS), self._tenants.index(_RESTING)]
        return max((index[-1][0] for index in indexes if index), default=0)

    def _is_last(self, pair: fairness.Pair, turn: int) -> bool:
        standings = self._tenants.get(pair[0], _UNKNOWN), self._pairs.get(pair, _UNKNOWN)
        return all(standing.served == turn > 0 for standing in standings)

    # `fairness.Orders`

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        above = (turn for turn in self._tenants.index_from(_TENANTS, after) if turn != after)
        return [(served, tenant) for (served, tenant), _ in zip(above, range(limit), strict=False)]

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        found = [(self._tenants[tenant], tenant) for tenant in tenants if tenant in self._tenants]
        return [(standing.served, tenant) for standing, tenant in found if standing.ready]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """The first tasks of each tenant that match the query."""
        found = {}
        for tenant in tenants:
            tasks = [task for _, task in self._pairs.index(tenant)[:looked_at]]
            known = [task for task in tasks if query.tasks is None or task in query.tasks]
            free = [task for task in known if not is_skipped((tenant, task), query.skipped)]
            found[tenant] = [(task, self._ready(tenant, task)) for task in free[:limit]]
        return found


def _pair_entries(pair: fairness.Pair, standing: TurnEntry) -> list[tuple[Hashable, Entry]]:
    if standing.ready:
        return [(pair[0], (standing.served, pair[1]))]
    return [(_RESTING, (standing.served, pair))]


def _tenant_entries(tenant: str, standing: TurnEntry) -> list[tuple[Hashable, Entry]]:
    return [(_TENANTS if standing.ready else _RESTING, (standing.served, tenant))]


def _forget(standings: IndexedDict[Any, TurnEntry], before: int) -> None:
    oldest = standings.index(_RESTING)[: fairness.SWEPT_AT_ONCE]
    for key in [key for served, key in oldest if served < before]:
        standings.put(key, None)
