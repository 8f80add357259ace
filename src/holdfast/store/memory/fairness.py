"""Whose turn it is, in the memory store: two tables and their orders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.job import Job, Place, State
from .. import fairness
from ..contract import ClaimQuery, CountKey, Turn, WaitingQuery, is_passed
from .shelf import Shelf

# The orders: tenants that have READY jobs and those that have none, lanes that have none; the lanes that
# have some stand under the name of their tenant.
_TENANTS = ("tenants",)
_RESTING_TENANTS = ("resting tenants",)
_RESTING_LANES = ("resting lanes",)

Undo = list[Callable[[], None]]


class Standing(NamedTuple):
    """Whether there are READY jobs, and the last turn."""

    ready: bool
    served: int


# Who was never heard of.
_UNKNOWN = Standing(ready=False, served=0)


class MemoryTurns:
    """Lanes and tenants by their turns. What changes them writes down how it can be undone."""

    def __init__(self, counts: Mapping[CountKey, int]) -> None:
        self._counts = counts
        self._lanes: dict[fairness.Pair, Standing] = {}
        self._tenants: dict[str, Standing] = {}
        self._shelf = Shelf()

    def serve(self, jobs: Sequence[Job], query: ClaimQuery, undo: Undo) -> None:
        """These jobs were claimed: their lanes and tenants have had their turn."""
        last = self._last()
        pairs = {(job.tenant, job.task) for job in jobs}
        if len(pairs) == 1 and self._is_last(next(iter(pairs)), last):
            return
        served = fairness.served(jobs, query, last)
        for pair, turn in served.lanes.items():
            self._put_lane(pair, self._lanes.get(pair, _UNKNOWN)._replace(served=turn), undo)
        for tenant, turn in served.tenants.items():
            self._put_tenant(tenant, self._tenants.get(tenant, _UNKNOWN)._replace(served=turn), undo)
        newest = last + len(served.lanes)
        if fairness.is_sweep(last, newest):
            for pair in self._old(_RESTING_LANES, newest - fairness.REMEMBERED):
                self._put_lane(pair, None, undo)
            for tenant in self._old(_RESTING_TENANTS, newest - fairness.REMEMBERED):
                self._put_tenant(tenant, None, undo)

    def all(self) -> list[Turn]:
        """See `ReadTxn.list_turns`."""
        lanes = [Turn(*pair, standing.served) for pair, standing in self._lanes.items()]
        whole = [Turn(tenant, "", standing.served) for tenant, standing in self._tenants.items()]
        return [turn for turn in lanes + whole if turn.served]

    def put(self, rows: Sequence[Turn], undo: Undo) -> None:
        """See `Txn.put_turns`."""
        for tenant, task, served in rows:
            if task:
                pair = (tenant, task)
                self._put_lane(pair, self._lanes.get(pair, _UNKNOWN)._replace(served=served), undo)
            else:
                self._put_tenant(tenant, self._tenants.get(tenant, _UNKNOWN)._replace(served=served), undo)

    def counted(self, pairs: Iterable[fairness.Pair], undo: Undo) -> None:
        """The counts of these lanes have changed."""
        for pair in pairs:
            lane, tenant = self._lanes.get(pair, _UNKNOWN), pair[0]
            if lane.ready != (self._ready(*pair) > 0):
                self._put_lane(pair, lane._replace(ready=not lane.ready), undo)
            whole = self._tenants.get(tenant, _UNKNOWN)
            if whole.ready != bool(self._shelf.row(tenant)):
                self._put_tenant(tenant, whole._replace(ready=not whole.ready), undo)

    def _ready(self, tenant: str, task: str) -> int:
        keys = (CountKey(tenant, task, Place.READY, state) for state in (State.QUEUED, State.RUNQUEUED))
        return sum(self._counts.get(key, 0) for key in keys)

    def _last(self) -> int:
        rows = [self._shelf.row(_TENANTS), self._shelf.row(_RESTING_TENANTS)]
        return max((row[-1][0] for row in rows if row), default=0)

    def _is_last(self, pair: fairness.Pair, turn: int) -> bool:
        standings = self._tenants.get(pair[0], _UNKNOWN), self._lanes.get(pair, _UNKNOWN)
        return all(standing.served == turn > 0 for standing in standings)

    def _old(self, key: tuple[str], before: int) -> list[Any]:
        return [name for served, name in self._shelf.row(key)[: fairness.SWEPT_AT_ONCE] if served < before]

    def _put_lane(self, pair: fairness.Pair, standing: Standing | None, undo: Undo) -> None:
        before = self._lanes.pop(pair, None)
        if before is not None:
            self._shelf.take(*_lane_spot(pair, before))
        if standing is not None:
            self._lanes[pair] = standing
            self._shelf.put(*_lane_spot(pair, standing))
        undo.append(lambda: self._put_lane(pair, before, []))

    def _put_tenant(self, tenant: str, standing: Standing | None, undo: Undo) -> None:
        before = self._tenants.pop(tenant, None)
        if before is not None:
            self._shelf.take(*_tenant_spot(tenant, before))
        if standing is not None:
            self._tenants[tenant] = standing
            self._shelf.put(*_tenant_spot(tenant, standing))
        undo.append(lambda: self._put_tenant(tenant, before, []))

    # What `fairness.waiting` goes by

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        return self._shelf.above(_TENANTS, after, limit)

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        found = [(self._tenants[tenant], tenant) for tenant in tenants if tenant in self._tenants]
        return [(standing.served, tenant) for standing, tenant in found if standing.ready]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """Of each tenant the first tasks that are asked for."""
        found = {}
        for tenant in tenants:
            tasks = [task for _, task in self._shelf.row(tenant)[:looked_at]]
            known = [task for task in tasks if query.tasks is None or task in query.tasks]
            free = [task for task in known if not is_passed((tenant, task), query.passing)]
            found[tenant] = [(task, self._ready(tenant, task)) for task in free[:limit]]
        return found


def _lane_spot(pair: fairness.Pair, standing: Standing) -> tuple[str | tuple[str], tuple[int, object]]:
    if standing.ready:
        return pair[0], (standing.served, pair[1])
    return _RESTING_LANES, (standing.served, pair)


def _tenant_spot(tenant: str, standing: Standing) -> tuple[tuple[str], tuple[int, object]]:
    return _TENANTS if standing.ready else _RESTING_TENANTS, (standing.served, tenant)
