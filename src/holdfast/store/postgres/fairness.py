"""The fair order in PostgreSQL: pairs and tenants as rows. See `store/fairness.py`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...core.job import Job
from .. import fairness
from ..contract import ClaimQuery, WaitingQuery, is_skipped
from .changes import Parameters
from .connection import PostgresConnection
from .locks import lock_number
from .statements import texts

# How many pairs that may have no READY job a process leaves marked as ready, for the next job: marking a
# pair as empty and as ready again takes longer than the claim of a job.
MOST_EMPTY = 8


class StoredTurns:
    """`fairness.Orders` by SQL."""

    def __init__(self, connection: PostgresConnection, sql: dict[str, str]) -> None:
        self._connection, self._sql = connection, sql

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        rows = self._connection.rows(self._sql["tenants_by_turn"], (*after, limit))
        return [(served, name) for served, name in rows]

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        rows = self._connection.rows(self._sql["turns_of"], (texts(tenants),))
        return [(served, tenant) for served, tenant in rows]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """Of each tenant the first tasks that are asked for."""
        values = {
            "tenants": texts(tenants),
            "tasks": None if query.tasks is None else texts(query.tasks),
            "skipped_tenants": texts([tenant for tenant, _ in query.skipped]),
            "skipped_tasks": texts([task for _, task in query.skipped]),
            "looked_at": looked_at,
            "limit": limit,
        }
        found: dict[str, list[tuple[str, int]]] = {}
        for tenant, task, number in self._connection.rows(self._sql["tasks_by_turn"], values):
            found.setdefault(tenant, []).append((task, number))
        return found


class SeenPair(NamedTuple):
    """A tenant's task, the last turns of it and of its tenant, and how many READY jobs it has."""

    pair: fairness.Pair
    turn: int
    tenant_turn: int
    ready: int


class SeenTurns:
    """`fairness.Orders` for pairs that were all read already, because they are few."""

    def __init__(self, pairs: Iterable[SeenPair]) -> None:
        # By tenant, turn and name.
        self._pairs = sorted(
            (seen for seen in pairs if seen.ready > 0), key=lambda seen: (seen.turn, seen.pair)
        )
        self._turns = sorted({(seen.tenant_turn, seen.pair[0]) for seen in self._pairs})

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        return [turn for turn in self._turns if turn > after][:limit]

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        return [turn for turn in self._turns if turn[1] in tenants]

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """Of each tenant the first tasks that are asked for."""
        found: dict[str, list[tuple[str, int]]] = {tenant: [] for tenant in tenants}
        for (tenant, task), _, _, ready in self._pairs:
            is_asked = query.tasks is None or task in query.tasks
            if tenant in found and is_asked and not is_skipped((tenant, task), query.skipped):
                found[tenant].append((task, ready))
        return {tenant: tasks[:limit] for tenant, tasks in found.items()}


class ClaimedTurns(NamedTuple):
    """The newest turn; if the jobs are of one pair, its turn and its tenant's, and whether it has more."""

    newest: int = 0
    of_pair: int | None = None
    of_tenant: int | None = None
    has_more: bool = False


class ClaimTurns:
    """The turns of the claims of one batch, until they are written."""

    def __init__(self) -> None:
        self.pairs: dict[fairness.Pair, int] = {}
        # The last claimed job of each pair; None: the pair has more READY jobs.
        self.last: dict[fairness.Pair, Job | None] = {}
        self._newest = 0
        self._forget_before: int | None = None

    def note(self, jobs: Sequence[Job], query: ClaimQuery, turns: ClaimedTurns) -> None:
        """Note claimed jobs."""
        found: dict[fairness.Pair, Job | None] = {(job.tenant, job.task): job for job in jobs}
        is_one = len(found) == 1
        self.last |= dict.fromkeys(found) if is_one and turns.has_more else found
        last = max(turns.newest, self._newest)
        if is_one and last > 0 and turns.of_pair == turns.of_tenant == last:
            # The pair was also served last before: its turn stays.
            return
        pairs = fairness.served(jobs, query, last).pairs
        self.pairs |= pairs
        self._newest = last + len(pairs)
        if fairness.is_sweep(last, self._newest):
            self._forget_before = self._newest - fairness.REMEMBERED

    def put(self, parameters: Parameters) -> None:
        """Add the turns to the parameters of `commit_changes`."""
        parameters["served"] = texts(
            [text for pair, turn in self.pairs.items() for text in (*pair, str(turn))]
        )
        self.pairs = {}
        if self._forget_before is not None:
            parameters["forget_before"], parameters["forget_most"] = (
                self._forget_before,
                fairness.SWEPT_AT_ONCE,
            )
            self._forget_before = None


def put_ready(
    parameters: Parameters,
    schema: str,
    ready: Mapping[fairness.Pair, int],
    last: Mapping[fairness.Pair, Job | None],
    perhaps_empty: set[fairness.Pair],
) -> None:
    """Add the pairs to be marked as ready or empty to the parameters.

    `last`: see `ClaimTurns`. `perhaps_empty`: pairs of this process that may have no READY job left; it is
    changed here, before the commit, because it is only a hint: if the commit fails, a pair stays marked.
    """
    filled = []
    for pair, number in ready.items():
        if number > 0:
            filled.append(pair)
            perhaps_empty.discard(pair)
        elif pair not in last or last[pair] is not None:
            perhaps_empty.add(pair)
    if filled:
        parameters["filled"] = _filled_of(schema, filled)
    if len(perhaps_empty) > MOST_EMPTY:
        taken = [*perhaps_empty]
        perhaps_empty.difference_update(taken)
        parameters["taken"] = taken_of(schema, taken, last)


def _filled_of(schema: str, pairs: Sequence[fairness.Pair]) -> str:
    """Pairs that get READY jobs, as the parameter of `commit_changes`, in the order of their locks."""
    if len(pairs) == 1:
        return texts(_filled_pair(schema, pairs[0])[1])
    return texts(
        [text for _, some in sorted([_filled_pair(schema, pair) for pair in pairs]) for text in some]
    )


# Cached: most calls are for the same few pairs.
@lru_cache(maxsize=4096)
def _filled_pair(schema: str, pair: fairness.Pair) -> tuple[int, tuple[str, ...]]:
    """The lock of a pair, and its columns of `filled`."""
    number, tenant = lock_number(schema, "pair", *pair), lock_number(schema, "tenant", pair[0])
    return number, (*pair, str(number), str(tenant))


def taken_of(schema: str, pairs: Iterable[fairness.Pair], last: Mapping[fairness.Pair, Job | None]) -> str:
    """Pairs that may have no READY job left, as the parameter of `empty_pairs`."""
    columns: list[str | None] = []
    for tenant, task in pairs:
        job = last.get((tenant, task))
        columns += (tenant, task, *((None, None) if job is None else (str(job.rank), str(job.id))))
        columns += (
            str(lock_number(schema, "pair", tenant, task)),
            str(lock_number(schema, "tenant", tenant)),
        )
    return texts(columns)
