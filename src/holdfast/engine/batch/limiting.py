"""Domains in a transaction: which jobs are READY, which are HELD, and when the next may start.

    account   at each flush: update loads and running jobs; a new job beyond the allowance becomes HELD
    start     at a claim: how many jobs may start now; their allowance is spent
    settle    after a flush: READY jobs beyond the allowance become HELD, HELD jobs within it READY, and a
              HELD job that outranks the last READY one of its task changes places with it
    write     once, at the end: write the records, and delete those of idle domains

A domain without a limit has no record and costs one look-up. The claim enforces the limit. This module only
keeps few jobs READY, so that a claim finds few that it may not start.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import msgspec
from msgspec.structs import replace

from ...core import limits, rules
from ...core.bounds import ALLOWANCE, UPKEEP_JOBS
from ...core.job import Job, Place
from ...core.kinds import DOMAIN, LIMIT, PATTERNS, PAUSE, Names, name_of
from ...core.limits import Domain, DomainCounts, DomainKey, Limit, TaskLoad
from ...core.queries import Paused
from ...store.contract import ReadTxn
from ..records import read_limit, read_patterns
from .working_set import WorkingSet

STOPPED = Limit(concurrency=0)
_encode = msgspec.json.Encoder().encode
read_domain = msgspec.json.Decoder(Domain).decode


class Domains:
    """The domains that one transaction touches."""

    def __init__(self, batch: WorkingSet) -> None:
        self._batch = batch
        self._stored: dict[DomainKey, Domain | None] = {}
        self._now: dict[DomainKey, Domain | None] = {}
        self._limits: dict[DomainKey, Limit | None] = {}
        # The (domain, task) pairs in which a HELD job may outrank a READY one.
        self._crowded: set[tuple[DomainKey, str]] = set()
        # Jobs that became READY here.
        self._let_go: set[int] = set()
        # Permits granted since the last `account`.
        self._taken: Counter[DomainKey] = Counter()

    def load(self, keys: Collection[DomainKey]) -> None:
        """Load domains and their limits into the working set; a limited domain without a record gets one."""
        keys = sorted(key for key in set(keys) if key not in self._now)
        if not keys:
            return
        txn = self._batch.txn
        txn.read_ahead(_governing(keys))
        self._limits |= find_limits(self._batch.rows_of, self._batch.pauses(), keys)
        held = find_domains(txn, keys)
        for key in keys:
            self._stored[key] = self._now[key] = held.get(key)
        self._govern(keys)

    def refresh(self, keys: Collection[DomainKey]) -> None:
        """Look up the limits of these domains again: they have just been changed."""
        self.load(keys)
        self._limits |= find_limits(self._batch.rows_of, self._batch.pauses(), keys)
        self._govern(keys)

    def _govern(self, keys: Collection[DomainKey]) -> None:
        """Adapt domains to their limits: a limited one has a record, and its next start is not too far ahead.

        The jobs of a domain that becomes limited are counted once.
        """
        fresh = [key for key in keys if self._now[key] is None and self._limits[key] is not None]
        counts = self._batch.txn.domain_counts(fresh) if fresh else {}
        self._now |= {key: self._counted(key, counts.get(key, {})) for key in fresh}
        for key in keys:
            if (domain := self._now[key]) is not None:
                self._now[key] = limits.clamped(self._limits[key], domain, now_ms=self._batch.now_ms)

    def _counted(self, key: DomainKey, counts: DomainCounts) -> Domain:
        """A domain with its jobs as counted."""
        for job_id, job in self._batch.stored.items():
            # A job claimed in this transaction is RUNNING in the store, but still READY for `account`.
            if (job.tenant, job.domain) == key and (before := self._batch.counted[job_id]).place != job.place:
                counts[job.task, job.place] -= 1
                counts[before.task, before.place] = counts.get((before.task, before.place), 0) + 1
        loads = {task: TaskLoad() for task, place in counts if place != Place.RUNNING}
        for (task, place), count in counts.items():
            if place == Place.READY:
                loads[task] = replace(loads[task], ready=count)
            elif place == Place.HELD:
                loads[task] = replace(loads[task], held=count)
        running = sum(count for (_, place), count in counts.items() if place == Place.RUNNING)
        return Domain(tenant=key[0], name=key[1], running=running, loads=_trimmed(loads))

    def account(self, changed: Iterable[int]) -> None:
        """Update loads and running jobs after changes; new jobs beyond the allowance become HELD."""
        batch = self._batch
        self._taken.clear()
        moves: list[tuple[Job | None, Job | None, DomainKey]] = []
        for job_id in changed:
            before, after = batch.counted.get(job_id), batch.jobs[job_id]
            if before and after and (before.domain != after.domain or before.tenant != after.tenant):
                # The batch deleted a job and used its id again: these are two jobs.
                moves += [(before, None, (before.tenant, before.domain))] if before.domain is not None else []
                before = None
            job = after or before
            if job is not None and job.domain is not None:
                moves.append((before, after, (job.tenant, job.domain)))
        self.load([key for _, _, key in moves])
        for before, after, key in moves:
            domain = self._now[key]
            if domain is None:
                continue
            ready = after is not None and after.place == Place.READY
            stands = self._admitted(domain, before, after) if after is not None and ready else after
            self._now[key] = _moved(domain, before, stands)

    def _admitted(self, domain: Domain, before: Job | None, job: Job) -> Job:
        if job.id in self._let_go:
            # It replaces another job, perhaps while there are more than the allowance.
            return job
        load = domain.loads.get(job.task, TaskLoad())
        if load.ready < self.allowance(domain.key) or _stood_ready(before, job):
            if load.held:
                # A HELD job may outrank it.
                self._crowded.add((domain.key, job.task))
            return job
        if load.last is None or _spot(job) < load.last:
            self._crowded.add((domain.key, job.task))
        job = rules.make_held(job)
        dict.__setitem__(self._batch.jobs, job.id, job)
        return job

    def allowance(self, key: DomainKey) -> int:
        """How many jobs of each task may be READY; without a limit, a fixed number at a time."""
        domain, limit = self._now[key], self._limits[key]
        assert domain is not None
        if limit is None:
            return UPKEEP_JOBS
        return limits.allowance(limit, domain, now_ms=self._batch.now_ms)

    def start(self, key: DomainKey, wanted: int) -> int:
        """How many of `wanted` jobs may start now; their allowance is spent. `account` then counts them."""
        self.load([key])
        domain, limit = self._now[key], self._limits[key]
        if domain is None:
            return wanted
        now_ms = self._batch.now_ms
        count = min(wanted, limits.capacity(limit, domain, now_ms=now_ms))
        self._now[key] = limits.spend(limit, domain, count, now_ms=now_ms)
        return count

    def take_room(self, key: DomainKey) -> bool:
        """Whether one more job may run, whatever the rate is; `account` counts it as running."""
        self.load([key])
        domain, limit = self._now[key], self._limits[key]
        if domain is None or limit is None or limit.concurrency is None:
            return True
        self._taken[key] += 1
        return domain.running + self._taken[key] <= limit.concurrency

    def settle(self) -> None:
        """Update which jobs are READY and HELD in all domains of the working set, after a flush."""
        for key, domain in list(self._now.items()):
            for task in list(domain.loads) if domain is not None else ():
                self._settle_task(key, task)

    def _settle_task(self, key: DomainKey, task: str) -> None:
        domain = self._now[key]
        assert domain is not None
        load, want = domain.loads.get(task), self.allowance(key)
        if load is None:
            # It was counted again a moment ago, for another task, and has no jobs left.
            return
        moved = 0
        if load.ready > want:
            moved = self._move(key, task, Place.READY, min(load.ready - want, UPKEEP_JOBS), last=True)
        elif load.ready < want and load.held:
            moved = self._move(key, task, Place.HELD, min(want - load.ready, UPKEEP_JOBS), last=False)
        # If the allowance is 0 and all READY jobs have become HELD, there is nothing to exchange.
        if (key, task) in self._crowded and (want or load.ready > moved):
            self._change_places(key, task, moved)

    def _move(self, key: DomainKey, task: str, place: Place, count: int, *, last: bool) -> int:
        """Move jobs of a domain's task between READY and HELD; return how many."""
        rule = rules.make_held if place == Place.READY else rules.make_ready
        jobs = self._queue(key, task, place, count, last=last)
        for job in jobs:
            self._batch.put(rule(job))
        if place == Place.HELD:
            self._let_go |= {job.id for job in jobs}
        if not jobs and (domain := self._now[key]) is not None:
            # There are fewer jobs than recorded: count again instead of searching for them every time.
            counted = self._counted(key, self._batch.txn.domain_counts([key]).get(key, {}))
            self._now[key] = replace(domain, loads=counted.loads, running=counted.running)
        return len(jobs)

    def _change_places(self, key: DomainKey, task: str, moved: int) -> None:
        # The store still has the jobs that were just moved in their old places, before the others.
        ready = self._queue(key, task, Place.READY, ALLOWANCE + moved, last=True)
        held = self._queue(key, task, Place.HELD, ALLOWANCE + moved, last=False)
        if ready:
            self._note_last(key, task, ready[0])
        for worse, better in zip(ready, held, strict=False):
            if (better.rank, better.id) >= (worse.rank, worse.id):
                break
            self._batch.put(rules.make_held(worse))
            self._batch.put(rules.make_ready(better))
            self._let_go.add(better.id)

    def _note_last(self, key: DomainKey, task: str, worst: Job) -> None:
        """Note the last READY job of a domain's task; `account` updates it for later ones."""
        domain = self._now[key]
        if domain is not None and (load := domain.loads.get(task)) is not None:
            loads = domain.loads | {task: replace(load, last=_spot(worst))}
            self._now[key] = replace(domain, loads=loads)

    def _queue(self, key: DomainKey, task: str, place: Place, limit: int, *, last: bool) -> list[Job]:
        jobs = self._batch.txn.domain_queue(key, task, place, last=last, limit=limit)
        for job in jobs:
            self._batch.bring(job)
        standing = [self._batch.jobs.get(job.id) for job in jobs]
        return [job for job in standing if job is not None and job.place == place]

    def write(self) -> None:
        """Write the domains to the rows of the batch; idle ones are deleted."""
        batch = self._batch
        for key, domain in self._now.items():
            if domain is None:
                continue
            stored, limit, row = self._stored[key], self._limits[key], (DOMAIN, name_of(*key))
            if limits.is_idle(domain, now_ms=batch.now_ms):
                if stored is not None:
                    batch.rows[row] = None
                continue
            after = replace(domain, due_ms=self._due(domain, limit))
            if after == stored:
                continue
            batch.rows[row] = _encode(after)
            if after.due_ms:
                batch.dues[row] = after.due_ms
            if after.held and _is_sooner(after, stored):
                # Nothing else wakes up the processes that wait for it.
                batch.woke = True

    def _due(self, domain: Domain, limit: Limit | None) -> int:
        now_ms = self._batch.now_ms
        if not domain.running and not domain.loads:
            # Only the time of the last start is left, which is needed until the rate allows a full burst
            # again.
            return -(-domain.tat_us // 1000)
        allowance = self.allowance(domain.key)
        wants = any(load.held and load.ready < allowance for load in domain.loads.values())
        if not domain.held or limit is None:
            return now_ms if wants else 0
        if limit.concurrency is not None and domain.running >= limit.concurrency:
            return 0
        next_ms = limits.next_start_ms(limit, domain, now_ms=now_ms)
        return next_ms if wants or next_ms > now_ms else 0


def _governing(keys: Collection[DomainKey]) -> Names:
    """The rows that `find_limits` reads."""
    names = [name_of(*key) for key in keys]
    return {DOMAIN: names, LIMIT: names, PATTERNS: {name_of(tenant) for tenant, _ in keys}, PAUSE: None}


def find_domains(txn: ReadTxn, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
    """The records of these domains."""
    found = map(read_domain, txn.rows(DOMAIN, [name_of(*key) for key in keys]).values())
    return {domain.key: domain for domain in found}


def due_domains(txn: ReadTxn, limit: int) -> list[DomainKey]:
    """The domains that are due for upkeep, earliest first."""
    return [read_domain(raw).key for _, raw in txn.scan(DOMAIN, due_before=txn.now_ms, limit=limit)]


def list_domains(txn: ReadTxn, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
    """The records of a tenant's domains above `after` (b"": all), ordered by the text of their keys."""
    prefix = name_of(tenant, "").removesuffix('""]')
    above = name_of(tenant, after) if after else ""
    return [read_domain(raw) for _, raw in txn.scan(DOMAIN, after=above, prefix=prefix, limit=limit)]


def find_limits(
    rows: Callable[[str, Collection[str]], dict[str, bytes]],
    paused: Collection[Paused],
    keys: Collection[DomainKey],
) -> dict[DomainKey, Limit | None]:
    """The limits of domains: by exact name, else by the longest pattern. A paused domain allows no start."""
    exact = rows(LIMIT, [name_of(*key) for key in keys])
    patterns = rows(PATTERNS, {name_of(tenant) for tenant, _ in keys})
    found: dict[DomainKey, Limit | None] = {}
    for key in keys:
        tenant, domain = key
        if (tenant, None, domain) in paused:
            found[key] = STOPPED
        elif raw := exact.get(name_of(*key)):
            found[key] = read_limit(raw)
        else:
            raw = patterns.get(name_of(tenant))
            pattern = limits.find_pattern(read_patterns(raw).limits, domain) if raw else None
            found[key] = pattern[1] if pattern else None
    return found


def _is_sooner(after: Domain, before: Domain | None) -> bool:
    """Whether a domain is now due earlier than before."""
    return bool(after.due_ms) and (before is None or not 0 < before.due_ms <= after.due_ms)


def _stood_ready(before: Job | None, after: Job) -> bool:
    return before is not None and before.place == Place.READY and before.task == after.task


def _moved(domain: Domain, before: Job | None, after: Job | None) -> Domain:
    running = (after is not None and after.place == Place.RUNNING) - (
        before is not None and before.place == Place.RUNNING
    )
    loads = dict(domain.loads)
    for job, change in ((before, -1), (after, 1)):
        if job is not None and job.place in (Place.READY, Place.HELD):
            load = loads.get(job.task, TaskLoad())
            ready, held = (change, 0) if job.place == Place.READY else (0, change)
            last = _last(load, job) if ready > 0 else load.last
            loads[job.task] = TaskLoad(
                ready=max(load.ready + ready, 0), held=max(load.held + held, 0), last=last
            )
    return replace(domain, running=max(domain.running + running, 0), loads=_trimmed(loads))


def _spot(job: Job) -> tuple[int, int]:
    return job.rank, job.id


def _last(load: TaskLoad, job: Job) -> tuple[int, int] | None:
    """The last (rank, id) of the READY jobs of a task when `job` becomes READY too."""
    if not load.ready:
        return _spot(job)
    return None if load.last is None else max(load.last, _spot(job))


def _trimmed(loads: dict[str, TaskLoad]) -> dict[str, TaskLoad]:
    return {task: load for task, load in loads.items() if load.ready or load.held}
