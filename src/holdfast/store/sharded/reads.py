"""One view of several shards: what is about a job is read in its shard, what is about all is merged.

A view begins with no shard. What it turns out to need is said by `Wanted`, and the view is begun anew
with those shards, so that a look at one job opens one of them and a shard that is down is met only by
those who need it. Some questions can do without (`waiting`, pauses, workers): they are answered by those
that are there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, zip_longest
from typing import Any, TypeVar

from ...core import ids, kinds
from ...core.errors import StoreError
from ...core.job import Body, Job, Place
from ...core.jump import Jump
from ...core.limits import Domain, DomainCounts, DomainKey
from ...core.slots import shard_of, slot_of_key, slot_of_record
from ...core.unique import Unique, UniqueKey
from ..contract import CountKey, JobFilter, LogRow, Moments, ReadTxn, Turn, Waiting, WaitingQuery
from . import lists as sharded_lists
from .keys import pointed

T = TypeVar("T")
V = TypeVar("V")
Missing = dict[int, StoreError]
# Of these it is enough to hear those that are there.
LENIENT = {kinds.PAUSE, kinds.PATTERNS, kinds.SETTING, kinds.TASK, kinds.WORKER}


class Wanted(Exception):
    """The view needs these shards as well."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.shards = frozenset(shards)


class ShardedReads(ReadTxn):
    """What can be read. `views` are the shards that were opened, `missing` those that cannot be."""

    # Each shard has its own.
    jump: Jump | None = None

    def __init__(self, shards: int, views: Mapping[int, ReadTxn], missing: Missing) -> None:
        self._shards, self._views, self._missing = shards, views, missing

    @property
    def now_ms(self) -> int:
        """The clock of the first that is open, or can be."""
        for shard in range(self._shards):
            if shard not in self._missing and (shard in self._views or not self._views):
                now_ms: int = self._in(shard).now_ms
                return now_ms
        raise next(iter(self._missing.values()))

    # Which shard

    def _in(self, shard: int) -> Any:
        """The view of one shard."""
        if shard in self._missing:
            raise self._missing[shard]
        if shard not in self._views:
            raise Wanted([shard])
        return self._views[shard]

    def _of(self, slot: int) -> Any:
        return self._in(slot % self._shards)

    def _all(self) -> list[Any]:
        """The views of all shards, or the first fault of one that is not there."""
        there = self._there()
        if self._missing:
            raise next(iter(self._missing.values()))
        return there

    def _there(self) -> list[Any]:
        """The views of all shards that are there, at least one."""
        if missing := set(range(self._shards)) - self._views.keys() - self._missing.keys():
            raise Wanted(missing)
        if not self._views:
            raise next(iter(self._missing.values()))
        return [self._views[shard] for shard in sorted(self._views)]

    def _by_id(self, job_ids: Iterable[int]) -> Iterator[tuple[Any, list[int]]]:
        groups = grouped(job_ids, lambda job_id: shard_of(job_id, self._shards))
        self._want(groups)
        return ((self._in(shard), those) for shard, those in groups.items())

    def _by_domain(self, keys: Collection[DomainKey]) -> Iterator[tuple[Any, list[DomainKey]]]:
        groups = grouped(keys, lambda key: ids.slot_of(*key) % self._shards)
        self._want(groups)
        return ((self._in(shard), those) for shard, those in groups.items())

    def _want(self, shards: Iterable[int]) -> None:
        if missing := set(shards) - self._views.keys() - self._missing.keys():
            raise Wanted(missing)

    # Jobs

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        found: dict[int, Job] = {}
        for view, those in self._by_id(ids):
            found |= view.load(those)
        return found

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        return _joined(view.archived(those) for view, those in self._by_id(ids))

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        return _joined(view.bodies(those, result=result) for view, those in self._by_id(ids))

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        view = self._in(shard_of(parent_id, self._shards))
        found: list[Job] = view.children(parent_id, place=place, after=after, limit=limit)
        return found

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """At the key's home, or where that points to."""
        found: dict[UniqueKey, Unique] = {}
        homes = grouped(keys, lambda key: slot_of_key(key) % self._shards)
        self._want(homes)
        for shard, those in homes.items():
            view = self._in(shard)
            held = view.find_unique(those)
            away = pointed(view, [key for key in those if key not in held])
            self._want(shard_of(job_id, self._shards) for job_id in away.values())
            for key, job_id in away.items():
                there = self._in(shard_of(job_id, self._shards)).find_unique([key]).get(key)
                if there is not None and there.job_id == job_id:
                    held[key] = there
            found |= held
        return found

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

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        # A family is in one place; so is looked through what is there, whatever else is down.
        whole = not query.parent_id
        views = self._all() if whole else [self._in(shard_of(query.parent_id or 0, self._shards))]
        return _merged([v.jobs(query, after=after, limit=limit) for v in views], lambda job: job.id, limit)

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """One of each shard's line in turn; a pair that waits in several is one."""
        rows = zip_longest(*(view.waiting(query) for view in self._there()))
        ready: dict[tuple[str, str], int] = {}
        for lane in (lane for row in rows for lane in row if lane is not None):
            ready[lane[:2]] = ready.get(lane[:2], 0) + lane.ready
        return [Waiting(*pair, count) for pair, count in islice(ready.items(), max(query.limit, 0))]

    # Domains, counts and moments

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        found: list[Job] = self._of(ids.slot_of(*key)).lineup(key, task, place, last=last, limit=limit)
        return found

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        return _joined(view.domain_counts(those) for view, those in self._by_domain(keys))

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        return _joined(view.domains(those) for view, those in self._by_domain(keys))

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        lists = [view.due_domains(up_to, limit) for view in self._all()]
        return _merged(lists, lambda domain: (domain.due_ms, domain.key), limit)

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        lists = [view.list_domains(tenant, after=after, limit=limit) for view in self._all()]
        return _merged(lists, lambda domain: domain.name, limit)

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        sums: dict[CountKey, int] = {}
        for view in self._all():
            for key, count in view.counts(tenant=tenant).items():
                sums[key] = sums.get(key, 0) + count
        return {key: count for key, count in sums.items() if count}

    def moments(self) -> Moments:
        kinds = zip(*(view.moments() for view in self._there()), strict=True)
        return Moments(*(min((m for m in kind if m is not None), default=None) for kind in kinds))

    # Small records and logs

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        if names is None:
            views = self._there() if kind in LENIENT else self._all()
            return _joined(view.records(kind) for view in views)
        found: dict[str, bytes] = {}
        for slot, those in grouped(names, lambda name: slot_of_record(kind, name)).items():
            view = self._there()[0] if slot is None else self._of(slot)
            found |= view.records(kind, those)
        return found

    def present(self, name: str) -> bool:
        return any(view.present(name) for view in self._there())

    def _log(self, log: str) -> Any:
        slot = slot_of_record(kinds.LOG, log)
        assert slot is not None
        return self._of(slot)

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        rows: list[LogRow] = self._log(log).read_log(log, after=after, limit=limit)
        return rows

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = self._log(log).find_in_log(log, keys)
        return found

    # For whoever copies a queue

    def notice(self) -> bytes | None:
        """That of the first shard that is there: it is put up there first, and decides for all."""
        first = next((at for at in range(self._shards) if at not in self._missing), 0)
        notice: bytes | None = self._in(first).notice()
        return notice

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[sharded_lists.Record]:
        return sharded_lists.records(self._all(), after=after, limit=limit)

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        return sharded_lists.uniques(self._all(), after=after, limit=limit)

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        return sharded_lists.domains(self._all(), after=after, limit=limit)

    def list_turns(self) -> list[Turn]:
        return sharded_lists.turns(self._all())

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        rows: list[tuple[int, bytes]] = self._log(log).list_log_keys(log, after=after, limit=limit)
        return rows


def grouped(items: Iterable[T], find: Callable[[T], V]) -> dict[V, list[T]]:
    """Items by where they are."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(find(item), []).append(item)
    return groups


def _joined(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for part in parts:
        found |= part
    return found


def _merged(lists: Sequence[list[T]], key: Callable[[T], Any], limit: int) -> list[T]:
    return list(islice(merge(*lists, key=key), max(limit, 0)))
