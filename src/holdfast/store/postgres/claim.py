"""How a claim finds its jobs without reading all jobs that do not match, or that other batches have locked.

    no filter, or mocked jobs too,       all READY jobs by rank, filtered
    or very many pairs
    pairs with a total within the limit  the first jobs of each pair
    any other pairs                      the first jobs of each, merged by rank without locks; then those that
                                         are still free are locked. If some were not, more are read.

The (tenant, task) pairs with READY jobs are known from the counts (`reads`), so a pattern of names is
only a filter over these. If index scans are slow because of dead entries, they start behind them (`starts`).

A claim of plain jobs is one message instead (`values_of`, `leased_of`).
"""

from collections.abc import Collection, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec

from ...core import rank
from ...core.bounds import CLAIM_BYTES
from ...core.glob import as_regex, span
from ...core.job import MISSING, Body, Job
from ..contract import ClaimQuery, Leased, Pick
from .connection import PostgresConnection
from .reads import Pair
from .starts import READY, Starts
from .statements import ABOVE, numbers, texts

# With more pairs than this a claim reads all READY jobs by rank.
MOST_PAIRS = 256
# If other batches have locked the jobs that were read, WIDER times as many are read next, in up to ROUNDS
# rounds.
WIDER, ROUNDS = 8, 4
MOST_CANDIDATES = 10_000

_JOBS = msgspec.json.Decoder(list[Job])
_in_order = attrgetter("rank", "id")
_id = attrgetter("id")


class PostgresClaim:
    """Leases the jobs of one query."""

    def __init__(
        self,
        connection: PostgresConnection,
        sql: dict[str, str],
        query: ClaimQuery,
        starts: Starts,
        pairs: Collection[Pair] | None,
        own_pairs: Collection[Pair],
    ) -> None:
        self._connection, self._sql, self._query, self._starts = connection, sql, query, starts
        # The pairs with READY jobs, if they are known already; and those to which this batch has added some.
        self._known_pairs, self._own_pairs = pairs, own_pairs
        # The data of leased jobs that is in the job's row; None: it is in its own table.
        self.beside: dict[int, Body | None] = {}
        self._low, self._high = rank.range_of(query.priority)
        self._values: dict[str, Any] = {
            "lease_rank": rank.lease(query.lease_until),
            "owner": query.owner,
            "until": query.lease_until,
            "started_at": query.started_at,
            "high": self._high,
            "limit": query.limit,
        }

    def take(self) -> list[Job]:
        """Lease the first jobs that match; return them in order, as they were before."""
        query = self._query
        if query.limit < 1:
            return []
        if query.picks:
            return self._take_pairs([p for p in query.picks if p[2] > 0 and query.wants(p[0], p[1])])
        whose = (query.tenant, query.tenants, query.tasks, query.glob)
        if query.mock or (whose == (None, None, None, None) and not query.skipped):
            return self._take_any()
        pairs = self._pairs()
        if pairs is None:
            return self._take_any()
        return self._take_pairs([(*pair, query.limit) for pair in pairs])

    def _pairs(self) -> list[Pair] | None:
        """The pairs that may have matching jobs; None: too many."""
        query = self._query
        tenants = query.tenants if query.tenant is None else (query.tenant,)
        tasks = query.tasks
        if tenants is not None and tasks is not None and len(tenants) * len(tasks) <= MOST_PAIRS:
            pairs = dict.fromkeys([(tenant, task) for tenant in tenants for task in tasks])
            return [pair for pair in pairs if query.wants(*pair)]
        known = self._find_pairs() if self._known_pairs is None else self._known_pairs
        if len(known) > MOST_PAIRS:
            return None
        return [pair for pair in dict.fromkeys((*known, *self._own_pairs)) if query.wants(*pair)]

    def _find_pairs(self) -> list[Pair]:
        query = self._query
        if query.tenant is None:
            rows = self._connection.rows(self._sql["pairs_ready"], {"limit": MOST_PAIRS + 1})
            return [(tenant, task) for tenant, task in rows]
        first, above = ("", None) if query.glob is None else span(query.glob)
        asked = {"tenant": query.tenant, "first": first, "above": above or ABOVE, "limit": MOST_PAIRS + 1}
        rows = self._connection.rows(self._sql["pairs_of_tenant"], asked)
        return [(query.tenant, task) for (task,) in rows]

    def _take_any(self) -> list[Job]:
        query = self._query
        pattern = None if query.glob is None else as_regex(query.glob)
        if query.glob is not None and pattern is None:
            return []
        tenants = query.tenants if query.tenant is None else (query.tenant,)
        if query.tenant is not None and query.tenants is not None and query.tenant not in query.tenants:
            return []
        filters = (tenants, query.tasks, pattern, query.skipped or None)
        is_whole = not self._low and not query.mock and filters == (None, None, None, None)
        began = self._starts.of(READY) if is_whole else 0
        taken, took_s, _ = self._take(
            "claim_any",
            low=began or self._low,
            mock=query.mock,
            tenants=None if tenants is None else texts(tenants),
            tasks=None if query.tasks is None else texts(query.tasks),
            pattern=pattern,
            skipped_tenants=texts([tenant for tenant, _ in query.skipped]),
            skipped_tasks=texts([task for _, task in query.skipped]),
        )
        if is_whole:
            self._starts.ended(READY, began, took_s, taken[-1].rank if taken else None)
        return taken

    def _take_pairs(self, picks: list[Pick]) -> list[Job]:
        if not picks:
            return []
        limit = self._query.limit
        if len(picks) == 1:
            ((tenant, task, most),) = picks
            picks = [(tenant, task, min(most, limit))]
        elif sum(most for _, _, most in picks) > limit:
            return self._merge(picks)
        lows = self._lows(picks)
        taken, took_s, _ = self._take("claim_pairs", **_named(picks), lows=numbers(lows))
        self._walked(picks, lows, took_s, taken)
        return taken if len(picks) == 1 else sorted(taken, key=_in_order)

    def _merge(self, picks: list[Pick]) -> list[Job]:
        taken: list[Job] = []
        look_at = wanted = self._query.limit
        for _ in range(ROUNDS):
            # The rest of each pick after the jobs of earlier rounds.
            left = [
                (t, k, most - sum((job.tenant, job.task) == (t, k) for job in taken)) for t, k, most in picks
            ]
            named = _named([(tenant, task, min(most, look_at)) for tenant, task, most in left])
            lows = self._lows(picks)
            limits = {"look_at": look_at, "limit": wanted - len(taken)}
            some, took_s, looked_at = self._take("claim_merged", **named, **limits, lows=numbers(lows))
            taken += some
            self._walked(picks, lows, took_s, some)
            if len(taken) == wanted or looked_at < look_at:
                break
            look_at = min(look_at * WIDER, MOST_CANDIDATES)
        return sorted(taken, key=_in_order)

    def _take(self, name: str, **values: Any) -> tuple[list[Job], float, int]:
        """The jobs, the time it took, and how many jobs were examined."""
        (row,) = self._connection.rows(self._sql[name], self._values | values)
        answer, bodies, raws, took_us, looked_at = row
        if answer is None:
            return [], took_us / 1_000_000, looked_at or 0
        found = _JOBS.decode(answer)
        self.beside.update(zip(map(_id, found), bodies, strict=True))
        for job, raw in zip(found, raws or repeat(None, 0), strict=False):
            if raw is not None:
                self.beside[job.id] = raw
        return found, took_us / 1_000_000, looked_at or 0

    def _lows(self, picks: list[Pick]) -> list[int]:
        """The rank at which the index scan of each pair starts: the lowest, or behind dead entries."""
        if self._low or not self._starts:
            return [self._low] * len(picks)
        return [self._starts.of((tenant, task)) for tenant, task, _ in picks]

    def _walked(self, picks: list[Pick], lows: list[int], took_s: float, taken: list[Job]) -> None:
        if self._low or not self._starts.is_noted(took_s):
            # A scan of one priority tells nothing about others; a fast scan needs no note.
            return
        last = {(job.tenant, job.task): job.rank for job in taken}
        for (tenant, task, _), low in zip(picks, lows, strict=True):
            self._starts.ended((tenant, task), low, took_s, last.get((tenant, task)))


def _named(picks: list[Pick]) -> dict[str, str]:
    tenants, tasks, mosts = zip(*picks, strict=True)
    return {"tenants": texts(tenants), "tasks": texts(tasks), "mosts": numbers(mosts)}


def values_of(query: ClaimQuery, *, pause_lock: int, token: int) -> dict[str, Any] | None:
    """The values of `lease_jobs`; None: a claim with these filters is a batch."""
    tenants = query.tenants if query.tenant is None else (query.tenant,)
    if query.limit < 1 or query.mock or query.skipped or query.glob is not None:
        return None
    picks = [(t, k, min(n, query.limit)) for t, k, n in query.picks if n > 0 and query.wants(t, k)]
    if query.picks and not 0 < len(picks) <= MOST_PAIRS:
        return None
    if query.tenant is not None and query.tenants is not None and query.tenant not in query.tenants:
        return None
    low, high = rank.range_of(query.priority)
    tasks = query.tasks
    if picks:
        tenants, tasks = tuple([tenant for tenant, _, _ in picks]), tuple([task for _, task, _ in picks])
    return {
        "pause_lock": pause_lock,
        "now": query.now_ms,
        "limit": query.limit,
        "low": low,
        "high": high,
        "lease_ms": query.lease_ms,
        "bytes": CLAIM_BYTES,
        "lease_rank": rank.lease(query.lease_until),
        "owner": query.owner,
        "until": query.lease_until,
        "started_at": query.started_at,
        "token": token,
        "tenants": None if tenants is None else texts(tenants),
        "tasks": None if tasks is None else texts(tasks),
        "mosts": None if not picks else numbers([most for _, _, most in picks]),
    }


def leased_of(
    records: str | None, bodies: Sequence[str | None] | None, raws: Sequence[bytes | None] | None
) -> list[Leased]:
    """The jobs of a reply with their data, in order."""
    if records is None or bodies is None:
        return []
    found: list[Leased] = []
    for job, body, raw in zip(_JOBS.decode(records), bodies, raws or repeat(None), strict=False):
        data: Body | None = body if raw is None else raw
        found.append((job, MISSING if data is None else data))
    found.sort(key=lambda one: (one[0].rank, one[0].id))
    return found
