"""One view of several shards: a job is read from its shard; lists, counts and tables are merged.

A view begins with no shard open. A read that needs more raises `ShardsWanted`, and the view is started again
with those shards open. So reading one job opens one shard, and a shard that is down fails only the reads that
need it. Some reads (`waiting`, pauses, workers) do without the shards that are down.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice
from typing import Any, TypeVar

from ...core import ids, kinds
from ...core.errors import StoreError
from ...core.job import Body, Job, Place
from ...core.limits import DomainCounts, DomainKey
from ...core.slots import shard_of, slot_of_record, slot_of_table
from ..contract import (
    CountKey,
    JobFilter,
    Moments,
    ReadTxn,
    Row,
    TallyKey,
    Waiting,
    WaitingQuery,
    added,
    page_of_counts,
)
from ..ready_pairs import interleaved, wrapped

T = TypeVar("T")
V = TypeVar("V")
Missing = dict[int, StoreError]
# Tables that are read from the shards that are up.
LENIENT = {
    kinds.HANDLED,
    kinds.PAUSE,
    kinds.PATTERNS,
    kinds.SETTING,
    kinds.TASK,
    kinds.WORKER,
}
# Tables whose rows may be in any shard, by their key: that of their jobs, or (a worker) one that was up.
ANYWHERE = {kinds.SCHEDULE, kinds.WORKER}


class ShardsWanted(Exception):
    """The view needs these shards as well."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.shards = frozenset(shards)


class ShardedReads(ReadTxn):
    """The reads. `views` has the shards that are open, `missing` the errors of those that are down."""

    def __init__(self, shards: int, views: Mapping[int, ReadTxn], missing: Missing) -> None:
        self._shards, self._views, self._missing = shards, views, missing

    @property
    def now_ms(self) -> int:
        """The clock of the first shard that is open, or can be opened."""
        for shard in range(self._shards):
            if shard not in self._missing and (shard in self._views or not self._views):
                return self._in(shard).now_ms
        raise next(iter(self._missing.values()))

    # Which shard

    def _in(self, shard: int) -> ReadTxn:
        """The view of one shard."""
        if shard in self._missing:
            raise self._missing[shard]
        if shard not in self._views:
            raise ShardsWanted([shard])
        return self._views[shard]

    def _of(self, slot: int) -> ReadTxn:
        return self._in(slot % self._shards)

    def _all(self) -> list[ReadTxn]:
        """The views of all shards; raises the error of the first one that is down."""
        there = self._there()
        if self._missing:
            raise next(iter(self._missing.values()))
        return there

    def _there(self) -> list[ReadTxn]:
        """The views of the shards that are up, at least one."""
        if missing := set(range(self._shards)) - self._views.keys() - self._missing.keys():
            raise ShardsWanted(missing)
        if not self._views:
            raise next(iter(self._missing.values()))
        return [self._views[shard] for shard in sorted(self._views)]

    def _by_id(self, job_ids: Iterable[int]) -> Iterator[tuple[ReadTxn, list[int]]]:
        groups = grouped(job_ids, lambda job_id: shard_of(job_id, self._shards))
        self._want(groups)
        return ((self._in(shard), those) for shard, those in groups.items())

    def _by_domain(self, keys: Collection[DomainKey]) -> Iterator[tuple[ReadTxn, list[DomainKey]]]:
        groups = grouped(keys, lambda key: ids.slot_of(*key) % self._shards)
        self._want(groups)
        return ((self._in(shard), those) for shard, those in groups.items())

    def _want(self, shards: Iterable[int]) -> None:
        if missing := set(shards) - self._views.keys() - self._missing.keys():
            raise ShardsWanted(missing)

    # Jobs

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        return _joined(view.load(those) for view, those in self._by_id(ids))

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        return _joined(view.archived(those) for view, those in self._by_id(ids))

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        return _joined(view.bodies(those, result=result) for view, those in self._by_id(ids))

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        view = self._in(shard_of(parent_id, self._shards))
        return view.children(parent_id, place=place, after=after, limit=limit)

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        found = [view.named(tenant, task, mock=mock) for view in self._all()]
        jobs = self.load([job_id for job_id in found if job_id]) if any(found) else {}
        there = [jobs[job_id] for job_id in found if job_id in jobs]
        return min(((job.place, job.rank, job.id) for job in there), default=(0, 0, None))[2]

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        lists = [view.first(place, up_to, limit) for view in self._all()]
        return _merged(lists, lambda job: (job.rank, job.id), limit)

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        lists = [view.expiring(up_to, limit) for view in self._all()]
        return _merged(lists, lambda job: (job.expires_at, job.id), limit)

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        lists = [view.ended(before_ms, tenant=tenant, limit=limit) for view in self._all()]
        return _merged(lists, lambda job: (job.finished_at, job.id), limit)

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        # Children are in the shard of their parent, so other shards may be down.
        whole = not query.parent_id
        views = self._all() if whole else [self._in(shard_of(query.parent_id or 0, self._shards))]
        pages = [view.jobs(query, after=after, limit=limit, before=before) for view in views]
        return _merged(pages, lambda job: job.id if before is None else -job.id, limit)

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        found: dict[tuple[str, str], Job] = {}
        for view in self._there():
            for pair, job in view.heads(pairs).items():
                if pair not in found or (job.rank, job.id) < (found[pair].rank, found[pair].id):
                    found[pair] = job
        return found

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The lists of the shards as one; a pair that waits in several shards comes once."""
        ready: dict[str, dict[str, int]] = {}
        for one in (one for view in self._there() for one in view.waiting(query)):
            tasks = ready.setdefault(one.tenant, {})
            tasks[one.task] = tasks.get(one.task, 0) + one.ready
        tenants = (
            [Waiting(tenant, task, ready[tenant][task]) for task in wrapped(ready[tenant], query.after[1])]
            for tenant in wrapped(ready, query.after[0])
        )
        return interleaved(tenants)[: max(query.limit, 0)]

    # Domains, counts and moments

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        view = self._of(ids.slot_of(*key))
        return view.domain_queue(key, task, place, last=last, limit=limit)

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        return _joined(view.domain_counts(those) for view, those in self._by_domain(keys))

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        found = added(view.counts(tenant=tenant, after=after, limit=limit) for view in self._all())
        return page_of_counts(found, limit=limit)

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        return added(view.totals(task=task) for view in self._all())

    def tallies(self) -> dict[TallyKey, int]:
        return added(view.tallies() for view in self._there())

    def moments(self) -> Moments:
        kinds = zip(*(view.moments() for view in self._there()), strict=True)
        return Moments(*(min((m for m in kind if m is not None), default=None) for kind in kinds))

    # Rows

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        if keys is None or table in ANYWHERE:
            views = self._there() if table in LENIENT else self._all()
            found = sorted(item for view in views for item in view.rows(table, keys).items())
            return dict(next(rows) for _, rows in groupby(found, key=_key))
        kept: dict[str, bytes] = {}
        for slot, those in grouped(keys, lambda key: slot_of_record(table, key)).items():
            view = self._there()[0] if slot is None else self._of(slot)
            kept |= view.rows(table, those)
        return kept

    def scan(
        self,
        table: str,
        *,
        after: str = "",
        prefix: str = "",
        due_before: int | None = None,
        limit: int,
    ) -> list[Row]:
        """Ordered by key; with `due_before`, by due time within each shard only."""
        slot = slot_of_table(table)
        whole = self._there if table in LENIENT else self._all
        views = whole() if slot is None else [self._of(slot)]
        pages = [
            view.scan(table, after=after, prefix=prefix, due_before=due_before, limit=limit) for view in views
        ]
        if due_before is not None:
            return [row for page in pages for row in page][: max(limit, 0)]
        # A row that every shard has is returned once.
        same = groupby(merge(*pages, key=_key), key=_key)
        return [next(rows) for _, rows in islice(same, max(limit, 0))]

    def tables(self) -> list[str]:
        return sorted({table for view in self._all() for table in view.tables()})

    # The shards themselves

    def present(self, names: Collection[str]) -> set[str]:
        return {name for view in self._there() for name in view.present(names)}

    def notice(self) -> bytes | None:
        """The notice of the first shard that is up: it is set there first, and that one decides."""
        first = next((at for at in range(self._shards) if at not in self._missing), 0)
        return self._in(first).notice()


def grouped(items: Iterable[T], find: Callable[[T], V]) -> dict[V, list[T]]:
    """Items grouped by the result of `find`."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(find(item), []).append(item)
    return groups


def _key(row: Row) -> str:
    return row[0]


def _joined(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for part in parts:
        found |= part
    return found


def _merged(lists: Sequence[list[T]], key: Callable[[T], Any], limit: int) -> list[T]:
    return list(islice(merge(*lists, key=key), max(limit, 0)))
