"""Whose turn it is, in PostgreSQL: lanes and tenants as rows, which nobody waits for to serve.

`store/fairness.py` has the order and `sql/turns.sql` says what the rows promise.
"""

from collections.abc import Mapping, Sequence

from ...core.job import Job
from .. import fairness
from ..contract import ClaimQuery, Turn, WaitingQuery
from .connection import Link
from .statements import lock_number, numbers, switches, texts

# So many lanes that it has emptied a process leaves marked as having READY jobs.
KEPT_LANES = 4


def few_kept(
    ready: Mapping[fairness.Pair, int], emptied: dict[fairness.Pair, None]
) -> dict[fairness.Pair, int]:
    """What one who seeks says of lanes whose READY jobs have become more or fewer.

    The next job may well be of the one that he has emptied: so a few are let be, and in `emptied`. Whoever
    folds looks at them, or he himself when there are more.
    """
    emptied.update(dict.fromkeys(pair for pair, change in ready.items() if change <= 0))
    if len(emptied) <= KEPT_LANES:
        return {pair: change for pair, change in ready.items() if change > 0}
    all_of_them = dict.fromkeys(emptied, 0) | dict(ready)
    emptied.clear()
    return all_of_them


class PostgresTurns:
    """The order of service, as a view or a batch sees it."""

    def __init__(self, link: Link, sql: dict[str, str], schema: str) -> None:
        self._link, self._sql, self._schema = link, sql, schema

    # What `fairness.waiting` goes by

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        return [
            (served, name) for served, name in self._link.rows(self._sql["tenants_by_turn"], (*after, limit))
        ]

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        rows = self._link.rows(self._sql["turns_of"], (texts(tenants),))
        return [(served, tenant) for served, tenant in rows]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """Of each tenant the first tasks that are asked for."""
        values = {
            "tenants": texts(tenants),
            "tasks": None if query.tasks is None else texts(query.tasks),
            "passed_tenants": texts(tenant for tenant, _ in query.passing),
            "passed_tasks": texts(task for _, task in query.passing),
            "looked_at": looked_at,
            "limit": limit,
        }
        found: dict[str, list[tuple[str, int]]] = {}
        for tenant, task, number in self._link.rows(self._sql["tasks_by_turn"], values):
            found.setdefault(tenant, []).append((task, int(number)))
        return found

    # What a batch changes

    def serve(
        self, jobs: Sequence[Job], query: ClaimQuery, newest: tuple[int, int | None, int | None]
    ) -> None:
        """These jobs were claimed: their lanes and tenants have had their turn.

        The newest turn was told by the claim, and, where they are of one, those of their lane and tenant.
        """
        last, of_lane, of_tenant = newest
        is_one = len({(job.tenant, job.task) for job in jobs}) == 1
        if is_one and last > 0 and of_lane == of_tenant == last:
            # It was the last to be served, and is so again: nothing changes.
            return
        served = fairness.served(jobs, query, last)
        tenants, tasks = zip(*served.lanes, strict=True)
        values = (texts(tenants), texts(tasks), numbers(served.lanes.values()))
        self._link.later(
            self._sql["serve"], (*values, texts(served.tenants), numbers(served.tenants.values()))
        )
        if fairness.is_sweep(last, now := last + len(served.lanes)):
            for name in ("forget_lanes", "forget_tenants"):
                self._link.change(self._sql[name], (now - fairness.REMEMBERED, fairness.SWEPT_AT_ONCE))

    def put(self, rows: Sequence[Turn]) -> None:
        """See `Txn.put_turns`."""
        if lanes := [turn for turn in rows if turn.task]:
            tenants, tasks, served = zip(*lanes, strict=True)
            self._link.change(self._sql["put_lane_turns"], (texts(tenants), texts(tasks), numbers(served)))
        if whole := [turn for turn in rows if not turn.task]:
            tenants, _, served = zip(*whole, strict=True)
            self._link.change(self._sql["put_tenant_turns"], (texts(tenants), numbers(served)))

    def counted(self, pairs: Mapping[fairness.Pair, int]) -> dict[str, str]:
        """What `settle` is to know of lanes whose READY jobs have become more or fewer.

        Who adds to some locks them, shared, all in order; who may have emptied one tries for its own.
        """
        lanes = {pair: lock_number(self._schema, "lane", *pair) for pair in pairs}
        tenants = {pair: lock_number(self._schema, "tenant", pair[0]) for pair in pairs}
        filled = [pair for pair, change in pairs.items() if change > 0]
        return {
            "locks": numbers(sorted({lock[pair] for lock in (lanes, tenants) for pair in filled})),
            "pair_tenants": texts(tenant for tenant, _ in pairs),
            "pair_tasks": texts(task for _, task in pairs),
            "are_filled": switches(change > 0 for change in pairs.values()),
            "lane_locks": numbers(lanes.values()),
            "tenant_locks": numbers(tenants.values()),
        }

    def locks(self, pair: fairness.Pair) -> list[int]:
        """The locks of a lane and its tenant, in order."""
        lane, tenant = (self._schema, "lane", *pair), (self._schema, "tenant", pair[0])
        return sorted((lock_number(*lane), lock_number(*tenant)))
