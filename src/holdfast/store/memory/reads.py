"""The reads of the memory store. See `ReadTxn` for what each method promises."""

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile

from ...core import rank
from ...core.job import COUNTED, Body, Job, Place, State
from ...core.kinds import DOMAIN
from ...core.limits import DomainCounts, DomainKey
from .. import ready_pairs
from ..contract import (
    CountKey,
    JobFilter,
    Moments,
    ReadTxn,
    Row,
    TallyKey,
    Waiting,
    WaitingQuery,
    is_skipped,
    merged_counts,
    page_of_counts,
)
from .data import ENDED, EXPIRING, PAIRS, MemoryData


class MemoryReads(ReadTxn):
    """One view, under the store's lock."""

    now_ms: int = 0

    def __init__(self, data: MemoryData, now_ms: int) -> None:
        self.data = data
        self.now_ms = now_ms

    # Jobs

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        jobs = self.data.jobs
        found = {id: jobs[id] for id in ids if id in jobs}
        parents = {job.parent_id for job in found.values()} & jobs.keys()
        return found | {id: jobs[id] for id in parents}

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        return {id: self.data.archive[id] for id in ids if id in self.data.archive}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        bodies = self.data.results if result else self.data.data
        return {id: bodies[id] for id in ids if id in bodies}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        entries = self.data.jobs.index_from(("parent", parent_id), (after + 1,))
        jobs = (self.data.jobs[id] for (id,) in entries)
        return list(islice((job for job in jobs if place in (None, job.place)), limit))

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        keys = (CountKey(tenant, task, place, state) for place in Place for state in COUNTED.values())
        places = {key.place for key in keys if key in self.data.counts}
        jobs = (job for job in self.data.jobs.values() if job.place in places) if places else ()
        same = ((j.place, j.rank, j.id) for j in jobs if (j.tenant, j.task, j.mock) == (tenant, task, mock))
        return min(same, default=(0, 0, None))[2]

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        return self._first(place, up_to, limit)

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        return self._first(EXPIRING, up_to, limit)

    def _first(self, index: Hashable, up_to: int, limit: int) -> list[Job]:
        entries = takewhile(lambda entry: entry[0] <= up_to, self.data.jobs.index(index))
        return [self.data.jobs[id] for _, id in islice(entries, limit)]

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        entries = takewhile(lambda entry: entry[0] < before_ms, self.data.archive.index(ENDED))
        jobs = (self.data.archive[id] for _, id in entries)
        return list(islice((job for job in jobs if tenant in (None, job.tenant)), limit))

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        jobs = self.data.archive if query.archived else self.data.jobs
        ids = (id for id in jobs if id > after and (before is None or id < before))
        found = (jobs[id] for id in sorted(ids, reverse=before is not None))
        return list(islice((job for job in found if query.takes(job)), limit))

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        found: dict[tuple[str, str], Job] = {}
        for pair in pairs:
            ready = (self.data.jobs[id] for _, id in self.data.jobs.index(pair))
            if (job := next((job for job in ready if not job.mock), None)) is not None:
                found[pair] = job
        return found

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        return ready_pairs.waiting(self, query, self.rows)

    # `ready_pairs.ReadyPairs`

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on."""
        above = takewhile(lambda tenant: tenant <= after, self._tenants(None))
        return list(islice(chain(self._tenants(after), above), limit))

    def _tenants(self, after: str | None) -> Iterator[str]:
        """The tenants with READY jobs above `after`, or all."""
        pairs, at = self.data.ready.index(PAIRS), 0
        if after is not None:
            at = bisect_left(pairs, (_next_name(after),))
        while at < len(pairs):
            tenant = pairs[at][0]
            yield tenant
            at = bisect_left(pairs, (_next_name(tenant),), at)

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        return [tenant for tenant in tenants if any(self._tasks(tenant, ""))]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> ready_pairs.Tasks:
        """The first tasks of each tenant that match the query."""
        found, after = {}, _next_name(query.after[1])
        for tenant in tenants:
            low = takewhile(lambda task: task < after, self._tasks(tenant, ""))
            tasks = islice(chain(self._tasks(tenant, after), low), looked_at)
            known = [task for task in tasks if query.tasks is None or task in query.tasks]
            free = [task for task in known if not is_skipped((tenant, task), query.skipped)]
            found[tenant] = [(task, self.ready_of(tenant, task)) for task in free[:limit]]
        return found

    def _tasks(self, tenant: str, first: str) -> Iterator[str]:
        """The tasks of a tenant with READY jobs, from `first` on."""
        pairs = self.data.ready.index_from(PAIRS, (tenant, first))
        return (task for _, task in takewhile(lambda pair: pair[0] == tenant, pairs))

    def ready_of(self, tenant: str, task: str) -> int:
        """The number of READY jobs of a pair."""
        states = (State.QUEUED, State.RUNQUEUED)
        return sum(self.data.counts.get(CountKey(tenant, task, Place.READY, state), 0) for state in states)

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        index = self.data.jobs.index((key, task, place))
        return [self.data.jobs[id] for _, id in islice(reversed(index) if last else index, limit)]

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        found: dict[DomainKey, DomainCounts] = {}
        for key in keys:
            for (id,) in self.data.jobs.index(("domain", *key)):
                job = self.data.jobs[id]
                if job.place in (Place.READY, Place.HELD, Place.RUNNING):
                    counts = found.setdefault(key, {})
                    counts[job.task, job.place] = counts.get((job.task, job.place), 0) + 1
        return found

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        return page_of_counts(self.data.counts, tenant=tenant, after=after, limit=limit)

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        return merged_counts(self.data.counts, task=task)

    def tallies(self) -> dict[TallyKey, int]:
        return dict(self.data.tallies)

    def moments(self) -> Moments:
        jobs, rows = self.data.jobs, self.data.rows
        indexes = (
            jobs.index(Place.SCHEDULED),
            jobs.index(Place.RUNNING),
            jobs.index(EXPIRING),
            rows.index(("due", DOMAIN)),
        )
        # The rank of a job that runs without a lease is the highest one, which is not a time.
        return Moments(*(index[0][0] if index and index[0][0] < rank.LAST else None for index in indexes))

    # Rows

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        rows = self.data.rows
        if keys is None:
            keys = [key for (key,) in rows.index(("keys", table))]
        return {key: rows[table, key].value for key in keys if (table, key) in rows}

    def scan(
        self,
        table: str,
        *,
        after: str = "",
        prefix: str = "",
        due_before: int | None = None,
        limit: int,
    ) -> list[Row]:
        rows = self.data.rows
        keys: Iterable[str]
        if due_before is None:
            entries = rows.index_from(("keys", table), (max(after, prefix),))
            keys = takewhile(lambda key: key.startswith(prefix), (key for (key,) in entries))
        else:
            due = takewhile(lambda entry: entry[0] <= due_before, rows.index(("due", table)))
            keys = (key for _, key in due if key.startswith(prefix))
        return [(key, rows[table, key].value) for key in islice((key for key in keys if key > after), limit)]

    def tables(self) -> list[str]:
        return sorted({table for table, _ in self.data.rows})

    # The store itself

    def present(self, names: Collection[str]) -> set[str]:
        return {name for name in names if name in self.data.here}

    def notice(self) -> bytes | None:
        return self.data.notice.get("")


def _next_name(name: str) -> str:
    """The first text above a name; no name has control characters."""
    return name + "\0"
