"""The memory store: dicts, one lock, and an undo list. It is the executable specification.

Every other store must show exactly what this one shows (`tests/model/model.py` compares them). It is
meant to be read: no cleverness beyond keeping the orders that the contract names.
"""

import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from ...core import rank
from ...core.errors import BadInput, Conflict, Contended
from ...core.job import Body, Job, Place, State, size_of
from ...core.jump import Jump
from ...core.kinds import Names
from ...core.limits import Domain, DomainCounts, DomainKey
from ...core.unique import Unique, UniqueKey
from .. import fairness
from ..common.clock import Clock, jump_of, system_clock
from ..contract import (
    ClaimQuery,
    CountKey,
    JobFilter,
    LogRow,
    Moments,
    Turn,
    Txn,
    Waiting,
    WaitingQuery,
    leased,
)
from .data import Data, spots_of
from .lists import MemoryLists

T = TypeVar("T")
# How often a batch is done again when what it expected has changed.
TRIES = 100


class MemoryStore:
    """A store that lives as long as its process."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._data = Data()

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` under the lock; what it raises undoes what it did, and a `Conflict` does it again."""
        with self._lock:
            for _ in range(TRIES):
                txn = _MemoryTxn(self._data, self.now_ms())
                txn.jump = jump_of(self._clock)
                try:
                    return fn(txn)
                except Conflict:
                    txn.undo()
                except BaseException:
                    txn.undo()
                    raise
        raise Contended(f"a batch was done {TRIES} times, and each time something had changed")

    # Readers see what writers see: there is one lock.
    read = run

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Refused: there is no connection to a memory store."""
        raise BadInput("connection", type(connection).__name__, needed="absent: memory:// has no connections")

    def now_ms(self) -> int:
        """The clock given at the start."""
        return self._clock()

    def wait(self, timeout_s: float) -> bool:
        """No other process can change anything: sleep until interrupted."""
        woken = self._woken.wait(timeout_s)
        self._woken.clear()
        return woken

    def notify(self, *, ends: bool = False) -> None:
        """There is no other process."""

    def interrupt(self) -> None:
        """Wake `wait`."""
        self._woken.set()

    def appear(self, name: str) -> bool:
        """Be seen in this process, which is all that there is."""
        self._data.here.add(name)
        return True

    def check(self) -> list[str]:
        """Nothing can be wrong."""
        return []

    def facts(self) -> dict[str, str]:
        """What there is to say."""
        return {
            "store": "memory",
            "live jobs": f"{len(self._data.jobs):,}",
            "archived": f"{len(self._data.archive):,}",
        }

    def close(self) -> None:
        """Everything goes."""
        self._data = Data()


class _MemoryReads(MemoryLists):
    jump: Jump | None = None

    def __init__(self, data: Data, now_ms: int) -> None:
        self.data = data
        self.now_ms = now_ms

    def _row(self, key: Hashable, limit: int | None = None, up_to: int | None = None) -> list[Job]:
        spots = [spot for spot in self.data.shelf.row(key)[:limit] if up_to is None or spot[0] <= up_to]
        return [self.data.jobs[job_id] for _, job_id in spots]

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        found = {id: self.data.jobs[id] for id in ids if id in self.data.jobs}
        parents = {job.parent_id for job in found.values()} & self.data.jobs.keys()
        return found | {id: self.data.jobs[id] for id in parents}

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        return {id: self.data.archive[id] for id in ids if id in self.data.archive}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        return {id: self.data.bodies[id, result] for id in ids if (id, result) in self.data.bodies}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        jobs = [self.data.jobs[id] for id, _ in self.data.shelf.row(("parent", parent_id))]
        return [job for job in jobs if job.id > after and place in (None, job.place)][:limit]

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        return {key: self.data.uniques[key] for key in keys if key in self.data.uniques}

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        keys = (CountKey(tenant, task, place, state) for place in Place for state in State)
        places = {key.place for key in keys if key in self.data.counts}
        jobs = (job for job in self.data.jobs.values() if job.place in places) if places else ()
        same = ((j.place, j.rank, j.id) for j in jobs if (j.tenant, j.task, j.mock) == (tenant, task, mock))
        return min(same, default=(0, 0, None))[2]

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        return self._row(place, limit, up_to)

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        return self._row("expiring", limit, up_to)

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        jobs = self.data.archive if query.archived else self.data.jobs
        return [jobs[id] for id in sorted(jobs) if id > after and query.takes(jobs[id])][:limit]

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        return fairness.waiting(self.data.turns, query)

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        spots = self.data.shelf.row((key, task, place))
        chosen = spots[::-1][:limit] if last else spots[:limit]
        return [self.data.jobs[job_id] for _, job_id in chosen]

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        found: dict[DomainKey, DomainCounts] = {}
        for key in keys:
            for job in self._row(("domain", *key)):
                if job.place in (Place.READY, Place.HELD, Place.RUNNING):
                    counts = found.setdefault(key, {})
                    counts[job.task, job.place] = counts.get((job.task, job.place), 0) + 1
        return found

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        return {key: self.data.domains[key] for key in keys if key in self.data.domains}

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        due = [domain for domain in self.data.domains.values() if 0 < domain.due_ms <= up_to]
        return sorted(due, key=lambda domain: (domain.due_ms, domain.key))[:limit]

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        keys = sorted(key for key in self.data.domains if key[0] == tenant and key[1] > after)
        return [self.data.domains[key] for key in keys[:limit]]

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        return {key: n for key, n in self.data.counts.items() if tenant in (None, key.tenant)}

    def moments(self) -> Moments:
        def head(key: Hashable) -> int | None:
            row = self.data.shelf.row(key)
            return row[0][0] if row and row[0][0] < rank.LAST else None

        due = [domain.due_ms for domain in self.data.domains.values() if domain.due_ms]
        return Moments(head(Place.SCHEDULED), head(Place.RUNNING), head("expiring"), min(due, default=None))

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        held = {name: value for (k, name), value in self.data.records.items() if k == kind}
        return held if names is None else {name: held[name] for name in names if name in held}

    def present(self, name: str) -> bool:
        return name in self.data.here

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        return self.data.logs.read(log, after=after, limit=limit)

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        return self.data.logs.find(log, keys)


class _MemoryTxn(_MemoryReads):
    def __init__(self, data: Data, now_ms: int) -> None:
        super().__init__(data, now_ms)
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        before = table.get(key)
        self._undo.append(lambda: _assign(table, key, before))
        _assign(table, key, value)

    def _place(self, job_id: int, after: Job | None) -> None:
        before = self.data.jobs.get(job_id)
        self._undo.append(lambda: self._shelve(job_id, before))
        self._shelve(job_id, after)

    def _shelve(self, job_id: int, after: Job | None) -> None:
        before = self.data.jobs.get(job_id)
        for key, spot in spots_of(before) if before else ():
            self.data.shelf.take(key, spot)
        for key, spot in spots_of(after) if after else ():
            self.data.shelf.put(key, spot)
        _assign(self.data.jobs, job_id, after)

    def _expect(self, job_id: int, version: int) -> None:
        stored = self.data.jobs.get(job_id)
        if stored is None or stored.version != version:
            raise Conflict(f"job {job_id} is not of version {version}")

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        known = set()
        for job, data in rows:
            if job.id in self.data.jobs or job.id in self.data.archive:
                known.add(job.id)
                continue
            self._place(job.id, job)
            self._set(self.data.bodies, (job.id, False), data)
        return known

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        return self.insert([(replace(template, id=id, size=size_of(data)), data) for id, data in rows])

    def swap(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._expect(job.id, job.version - 1)
            self._place(job.id, job)

    def remove(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._expect(job.id, job.version)
            self._place(job.id, None)
            self._drop_bodies(job.id)

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        for job in jobs:
            self._expect(job.id, job.version - 1)
            self._place(job.id, None)
            if keep:
                self._set(self.data.archive, job.id, job)
            else:
                self._drop_bodies(job.id)

    def forget(self, ids: Collection[int]) -> None:
        for job_id in ids:
            self._set(self.data.archive, job_id, None)
            self._drop_bodies(job_id)

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        old = [job for job in self.data.archive.values() if job.finished_at < before_ms]
        old = [job for job in old if tenant in (None, job.tenant)]
        old = sorted(old, key=lambda job: (job.finished_at, job.id))[:limit]
        self.forget([job.id for job in old])
        return old

    def _drop_bodies(self, job_id: int) -> None:
        for result in (False, True):
            self._set(self.data.bodies, (job_id, result), None)

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        for job_id, body in bodies.items():
            self._set(self.data.bodies, (job_id, result), body)

    def put_unique(self, holders: Sequence[Unique]) -> None:
        for holder in holders:
            self._set(self.data.uniques, holder.id, holder)

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        for key in keys:
            self._set(self.data.uniques, key, None)

    def lapse_unique(self, up_to: int, limit: int) -> int:
        over = [key for key, holder in self.data.uniques.items() if 0 < holder.until_ms <= up_to][:limit]
        self.drop_unique(over)
        return len(over)

    def claim(self, query: ClaimQuery) -> list[Job]:
        found = self._picked(query) if query.picks else self._matching(Place.READY, query, query.limit)
        for job in found:
            self._place(job.id, leased(job, query))
        if found:
            self.data.turns.serve(found, query, self._undo)
        return found

    def _matching(self, key: Hashable, query: ClaimQuery, limit: int) -> list[Job]:
        ready = (self.data.jobs[id] for _, id in self.data.shelf.row(key))
        return list(islice((job for job in ready if query.takes(job)), max(limit, 0)))

    def _picked(self, query: ClaimQuery) -> list[Job]:
        plain = query._replace(mock=False)
        jobs = [job for t, k, most in query.picks for job in self._matching((t, k), plain, most)]
        return sorted(jobs, key=lambda job: (job.rank, job.id))[: max(query.limit, 0)]

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """Nothing: a look-up costs no round trip here."""

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        for domain in domains:
            self._expect_domain(domain, domain.version - 1)
            self._set(self.data.domains, domain.key, domain)

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        for domain in domains:
            self._expect_domain(domain, domain.version)
            self._set(self.data.domains, domain.key, None)

    def _expect_domain(self, domain: Domain, version: int) -> None:
        stored = self.data.domains.get(domain.key)
        if (stored.version if stored else 0) != version:
            raise Conflict(f"domain {domain.name!r} is not of version {version}")

    def count(self, changes: Mapping[CountKey, int]) -> None:
        for key, change in changes.items():
            self._set(self.data.counts, key, (self.data.counts.get(key, 0) + change) or None)
        # Only then: one of a pair's two READY counts may have gone over into the other.
        pairs = {(key.tenant, key.task) for key in changes if key.place == Place.READY}
        self.data.turns.counted(pairs, self._undo)

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        for name, value in records.items():
            self._set(self.data.records, (kind, name), value)

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        for table, key, value in self.data.logs.appended(log, rows):
            self._set(table, key, value)

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        for table, key in self.data.logs.trimmed(log, after, up_to, keys_up_to):
            self._set(table, key, None)

    def put_notice(self, notice: bytes | None) -> None:
        self._set(self.data.notice, "", notice)

    def put_turns(self, turns: Sequence[Turn]) -> None:
        self.data.turns.put(turns, self._undo)


def _assign(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
