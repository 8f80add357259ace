"""How a claim takes its jobs without walking over those that it may not have, nor over those others have.

Where one (tenant, task) is asked for its index is walked, where all are that of all READY jobs. Several pairs
are merged by rank without a lock, and what of that is still free is taken; if others were faster, more is
looked at. Only where there are very many pairs, or mocked jobs are wanted, are all READY jobs gone through.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from ...core import rank
from ...core.bounds import MAX_TIME_MS
from ...core.glob import matches, span
from ...core.job import Body, Job
from ..common.clock import monotonic_s
from ..contract import ClaimQuery, Pick
from .connection import Link
from .starts import Starts
from .statements import numbers, texts

# Beyond this many pairs a claim goes through the READY jobs instead of through the pairs.
MOST_PAIRS = 256
# When others have what was looked at, so many times as much is looked at next, and this often.
WIDER, ROUNDS = 8, 4
MOST_CANDIDATES = 10_000
# Where names are looked at one by one, so many jobs at once, first and at most; and how many all those in the
# range of a pattern may be to be looked at instead.
FIRST_PAGE, PAGE = 100, 5_000
REACH = 2_000
# Above every name, which has 255 bytes at most.
_ABOVE = "\U0010ffff" * 64

Pair = tuple[str, str]

_JOBS = msgspec.json.Decoder(list[Job])


class Taker:
    """Takes jobs for one query."""

    def __init__(
        self,
        link: Link,
        sql: dict[str, str],
        query: ClaimQuery,
        starts: Starts,
        beside: dict[int, Body | None],
    ) -> None:
        self._link, self._sql, self._query, self._starts = link, sql, query, starts
        # Where the data of what is taken is put; None: it is kept apart from the job.
        self._beside = beside
        # The newest turn, and those of the lane and the tenant that had this one, if it was one of each.
        self.newest: tuple[int, int | None, int | None] = (0, None, None)
        low, high = _ranks(query.priority)
        self._values: dict[str, Any] = {
            "lease_rank": rank.lease(query.lease_until),
            "owner": query.owner,
            "until": query.lease_until,
            "started_at": query.started_at,
            "low": low,
            "high": high,
            "limit": query.limit,
        }

    def take(self) -> list[Job]:
        """Lease the first jobs that match; as they stood before, in order."""
        query = self._query
        if query.limit < 1:
            return []
        if query.glob is not None:
            return self._matching(query.glob)
        if query.picks:
            return self._picked([p for p in query.picks if p[2] > 0 and query.is_asked(p[0], p[1])])
        if query.tenant is None and query.tenants is None and query.tasks is None and not query.passing:
            return self._taken("ready", mock=query.mock)
        pairs = None if query.mock else self._pairs()
        if pairs is None:
            return self._scanned()
        if len(pairs) == 1:
            return self._of_pair(*pairs[0])
        return self._merged([(*pair, MOST_CANDIDATES) for pair in pairs]) if pairs else []

    def _matching(self, glob: str) -> list[Job]:
        """Those whose names match: by the names in range, by all jobs in range, or one by one by rank.

        The first is quick where the names are few, the second where the jobs are. Otherwise all that stands
        before the first match is walked over.
        """
        query = self._query
        if query.tasks is not None:
            tasks = tuple(task for task in query.tasks if matches(glob, task))
            named = query._replace(glob=None, tasks=tasks)
            taker = Taker(self._link, self._sql, named, self._starts, self._beside)
            taken = taker.take()
            self.newest = taker.newest
            return taken
        first, above = span(glob)
        # No "or": a range that may have no end is none to an index.
        asked = {"tenant": query.tenant, "first": first, "above": _ABOVE if above is None else above}
        if query.tenant is not None and not query.mock:
            if (names := self._names(asked)) is not None:
                pairs = [(query.tenant, task) for task in names if matches(glob, task)]
                picks = [(*pair, MOST_CANDIDATES) for pair in pairs if query.is_asked(*pair)]
                return self._merged(picks) if picks else []
            rows = self._link.rows(self._sql["ready_within"], asked | {"reach": REACH + 1})
            if len(rows) <= REACH:
                low, high = self._values["low"], self._values["high"]
                return self._fitting(sorted(row for row in rows if low <= row[0] <= high), query.limit)
        return self._paged(asked | {"mock": query.mock})

    def _names(self, asked: dict[str, Any]) -> list[str] | None:
        """The names in a range; None: there are too many to go by."""
        rows = self._link.rows(self._sql["names_within"], asked | {"names": MOST_PAIRS + 1})
        return [task for (task,) in rows] if len(rows) <= MOST_PAIRS else None

    def _paged(self, asked: dict[str, Any]) -> list[Job]:
        """One by one, in order of rank, more of them at once the longer it takes."""
        taken: list[Job] = []
        after, page = (self._values["low"] - 1, 0), max(FIRST_PAGE, self._query.limit * 2)
        while len(taken) < self._query.limit:
            at = {"after_rank": after[0], "after_id": after[1], "page": page}
            rows = self._link.rows(self._sql["ready_page"], self._values | asked | at)
            taken += self._fitting(rows, self._query.limit - len(taken))
            if len(rows) < page:
                break
            after, page = (rows[-1][0], rows[-1][1]), min(page * WIDER, PAGE)
        return taken

    def _fitting(self, rows: list[Any], limit: int) -> list[Job]:
        """The first of these that match, and that nobody else has."""
        query, glob = self._query, self._query.glob or ""
        ids = [id for _, id, tenant, task in rows if matches(glob, task) and query.is_asked(tenant, task)]
        return self._taken("ready_of_ids", ids=numbers(ids), limit=limit) if ids else []

    def _picked(self, picks: list[Pick]) -> list[Job]:
        if not picks:
            return []
        if sum(most for _, _, most in picks) > self._query.limit:
            return self._merged(picks)
        lows = self._lows(picks)
        start_s = monotonic_s()
        taken = self._taken("ready_of_picks", **_named(picks), lows=numbers(lows))
        self._walked(picks, lows, monotonic_s() - start_s, taken)
        return taken

    def _of_pair(self, tenant: str, task: str) -> list[Job]:
        pick = [(tenant, task, self._query.limit)]
        lows = self._lows(pick)
        start_s = monotonic_s()
        taken = self._taken("ready_of_pair", tenant=tenant, task=task, low=lows[0])
        self._walked(pick, lows, monotonic_s() - start_s, taken)
        return taken

    def _lows(self, picks: list[Pick]) -> list[int]:
        """Where the walk along each pair begins: at the front of what is asked for, or past the dead."""
        low = self._values["low"]
        return [low or self._starts.of((tenant, task)) for tenant, task, _ in picks]

    def _walked(self, picks: list[Pick], lows: list[int], took_s: float, taken: list[Job]) -> None:
        if self._values["low"]:
            # Of one priority: that says nothing of the others.
            return
        last = {(job.tenant, job.task): job.rank for job in taken}
        for (tenant, task, _), low in zip(picks, lows, strict=True):
            self._starts.ended((tenant, task), low, took_s, last.get((tenant, task)))

    def _taken(self, name: str, **values: Any) -> list[Job]:
        (row,) = self._link.rows(self._sql[name], self._values | values)
        return self.told(row)

    def told(self, row: Sequence[Any]) -> list[Job]:
        """What was taken, as a claim answers it; in order."""
        answer, bodies, raws, *turns = row
        if answer is None:
            return []
        found = _JOBS.decode(answer)
        for job, body, raw in zip(found, bodies, raws or repeat(None, len(found)), strict=True):
            self._beside[job.id] = body if raw is None else raw
        self.newest = (turns[0], turns[1], turns[2])
        return sorted(found, key=lambda job: (job.rank, job.id))

    def _merged(self, picks: list[Pick]) -> list[Job]:
        taken: list[Job] = []
        look_at = self._query.limit
        for _ in range(ROUNDS):
            # Of a pair no more than it may have, also where some of that was taken in an earlier round.
            left = [
                (t, k, most - sum((job.tenant, job.task) == (t, k) for job in taken)) for t, k, most in picks
            ]
            named = _named([(tenant, task, min(most, look_at)) for tenant, task, most in left])
            lows = self._lows(picks)
            asked = self._values | named | {"limit": look_at, "lows": numbers(lows)}
            start_s = monotonic_s()
            rows = self._link.rows(self._sql["candidates"], asked)
            took_s, some = monotonic_s() - start_s, []
            if rows:
                ids = numbers(id for (id,) in rows)
                some = self._taken("ready_of_ids", ids=ids, limit=self._query.limit - len(taken))
                taken += some
            self._walked(picks, lows, took_s, some)
            if len(taken) == self._query.limit or len(rows) < look_at:
                break
            look_at = min(look_at * WIDER, MOST_CANDIDATES)
        return sorted(taken, key=lambda job: (job.rank, job.id))

    def _scanned(self) -> list[Job]:
        query = self._query
        return self._taken(
            "ready_filtered",
            mock=query.mock,
            tenants=None if (asked := self._asked()) is None else texts(asked),
            tasks=None if query.tasks is None else texts(query.tasks),
            passed_tenants=texts(tenant for tenant, _ in query.passing),
            passed_tasks=texts(task for _, task in query.passing),
        )

    def _pairs(self) -> list[Pair] | None:
        """The pairs that may have matching jobs; None: too many to go by."""
        query = self._query
        if query.tasks is None:
            asked = {"from": query.tenant or "", "tenant": query.tenant, "limit": MOST_PAIRS + 1}
            pairs = [(tenant, task) for tenant, task in self._link.rows(self._sql["pairs"], asked)]
            if len(pairs) > MOST_PAIRS:
                return None
        else:
            tenants = self._tenants()
            if len(tenants) * len(query.tasks) > MOST_PAIRS and len(tenants) > 1:
                return None
            pairs = [(tenant, task) for tenant in tenants for task in dict.fromkeys(query.tasks)]
        return [pair for pair in pairs if query.is_asked(*pair)]

    def _asked(self) -> list[str] | None:
        """The tenants that are asked for; None: any."""
        query = self._query
        if query.tenant is None:
            return None if query.tenants is None else list(dict.fromkeys(query.tenants))
        return [query.tenant] if query.tenants is None or query.tenant in query.tenants else []

    def _tenants(self) -> list[str]:
        if (asked := self._asked()) is not None:
            return asked
        return [tenant for (tenant,) in self._link.rows(self._sql["tenants"], (MOST_PAIRS + 1,))]


def _ranks(priority: int | None) -> tuple[int, int]:
    # A READY rank begins with the priority, so one priority is a range of ranks.
    if priority is None:
        return 0, rank.LAST
    return rank.ready(priority, 0), rank.ready(priority, MAX_TIME_MS)


def _named(picks: list[Pick]) -> dict[str, str]:
    tenants, tasks, mosts = zip(*picks, strict=True)
    return {"tenants": texts(tenants), "tasks": texts(tasks), "mosts": numbers(mosts)}
