"""Claims: what the store leased is looked at by the rules before anyone hears of it.

The store takes the first READY jobs; of these the domains let start as many as they may, and the rest
goes back behind them. Then it takes more, until enough was found or nothing is left to take. Where a claim
picks its pairs, what was held back is made up for from the same pair.
"""

from collections import Counter

from ...core import commands as c
from ...core import defaults, plain, rules
from ...core.bounds import CLAIM_BYTES, CLAIM_JOBS
from ...core.job import Job, Place, Unreadable
from ...core.limits import DomainKey
from ...store.common.picks import picks_left
from ...store.contract import ClaimQuery, leased
from ..batch.batch import Batch

# Each round that meets a spent domain clears it out of the way. So many jobs are looked at in one
# transaction; whoever still waits after that looks again at once.
LOOKED_AT = 2_000


def claim(batch: Batch, command: c.Claim) -> list[c.Claimed]:
    """Lease jobs with their data; see `Claim`. Those whose data is damaged are failed, and others taken."""
    while True:
        started, last_runs = _started(batch, command)
        bodies = batch.txn.bodies([job.id for job in started]) if started else {}
        damaged = {job.id for job in started if isinstance(bodies.get(job.id), Unreadable)}
        if damaged:
            _set_aside(batch, [job for job in started if job.id in damaged])
            started = [job for job in started if job.id not in damaged]
        if started or not damaged:
            return [
                c.Claimed(job=job, data=bodies.get(job.id, "{}"), last_run=last_runs[job.id])
                for job in _as_they_are(batch, started)
            ]


def _started(batch: Batch, command: c.Claim) -> tuple[list[Job], dict[int, int]]:
    """The jobs that may start, in order, and when each of them ran last."""
    started: list[Job] = []
    last_runs: dict[int, int] = {}
    wanted = min(command.limit, CLAIM_JOBS)
    owner = command.owner or batch.ids.number
    looked_at = rounds = 0
    while len(started) < wanted:
        rounds += 1
        before = len(started)
        found = _round(batch, command, owner, wanted - before, started, last_runs)
        looked_at += found
        if not found or (command.picks and found == len(started) - before):
            break
        if looked_at >= LOOKED_AT:
            batch.woke = batch.woke or not started
            break
    if rounds > 1:
        # A later one may have found what comes before: one who was HELD behind a job that cannot run.
        started.sort(key=lambda job: (-job.priority, job.run_at, job.id))
    return started, last_runs


def _set_aside(batch: Batch, jobs: list[Job]) -> None:
    for job in jobs:
        # Not in the working set if it was started plainly.
        batch.bring(job)
        batch.put(rules.set_aside(batch.jobs.get(job.id) or job, now_ms=batch.now_ms))
    batch.keep()
    batch.flush()


def _round(
    batch: Batch,
    command: c.Claim,
    owner: int,
    limit: int,
    started: list[Job],
    last_runs: dict[int, int],
) -> int:
    """Take jobs from the store, start those that may; how many there were to look at, 0 when it is enough."""
    query = _query(batch, command, owner, limit, started)
    jobs = batch.txn.claim(query)
    if jobs and not command.owner:
        # Only now: a process that finds nothing, and waits, must not write to keep its number.
        owner = batch.ids.owner()
    last_runs.update((job.id, job.started_at) for job in jobs)
    filled = _filled(batch, command, jobs)
    if query.owner == owner and not filled and _start_plainly(batch, command, query, jobs, started):
        # Where a store has found fewer than were asked for there are hardly any more.
        return len(jobs) if len(jobs) == query.limit else 0
    for job in jobs:
        batch.bring_claimed(job, leased(job, query))
    full = _start(batch, command, owner, jobs, started, filled)
    batch.keep()
    batch.flush()
    if len(jobs) and batch.domains:
        # What a spent domain has left in READY is moved out of the next round's way.
        batch.domains.settle()
        batch.keep()
        batch.flush()
    return 0 if full and (started or command.taken_bytes) else len(jobs)


def _query(batch: Batch, command: c.Claim, owner: int, limit: int, started: list[Job]) -> ClaimQuery:
    passing = tuple((tenant, task) for tenant, task, domain in batch.pauses() if domain is None)
    query = query_of(command, owner=owner, now_ms=batch.now_ms)
    return query._replace(limit=limit, passing=passing, picks=picks_left(command.picks, started))


def query_of(command: c.Claim, *, owner: int, now_ms: int) -> ClaimQuery:
    """What a claim first asks a store for, where nothing is paused."""
    return ClaimQuery(
        owner=owner,
        now_ms=now_ms,
        start=command.start,
        limit=min(command.limit, CLAIM_JOBS),
        lease_until=now_ms + command.lease_ms if command.lease_ms else 0,
        tenant=command.tenant,
        tasks=command.tasks,
        glob=command.glob,
        priority=command.priority,
        mock=command.mock,
        tenants=command.tenants,
        picks=command.picks,
    )


def _start_plainly(
    batch: Batch, command: c.Claim, query: ClaimQuery, jobs: list[Job], started: list[Job]
) -> bool:
    """Let all start as the store has leased them, past the working set; False: some need a second look."""
    size = command.taken_bytes + sum(job.size for job in started) + sum(job.size for job in jobs)
    if size > CLAIM_BYTES or not all(map(plain.starts_alone, jobs)):
        return False
    if batch.stored and not batch.stored.keys().isdisjoint(job.id for job in jobs):
        # The working set has some of them as they were before.
        return False
    after = [leased(job, query) for job in jobs]
    batch.counts.went(jobs)
    batch.counts.came(after)
    started += after
    return True


def _filled(batch: Batch, command: c.Claim, jobs: list[Job]) -> dict[int, Job]:
    """The jobs that their task's defaults change, as they are with these, by id.

    Not those of the job-command port that are claimed there: these are the documents' affair.
    """
    published = batch.task_defaults if jobs else {}
    if not published:
        return {}
    native = [job for job in jobs if command.lease_ms is not None or not job.strict]
    return {job.id: after for job in native if (after := defaults.follow(job, published)) is not job}


def _start(
    batch: Batch, command: c.Claim, owner: int, jobs: list[Job], started: list[Job], filled: dict[int, Job]
) -> bool:
    """Let those start that really may, put the others where they belong; whether the bytes ran out."""
    full = False
    size = command.taken_bytes + sum(job.size for job in started)
    has_some = bool(started or command.taken_bytes)
    runs: list[tuple[Job, Job]] = []
    failed: list[Job] = []
    for job in jobs:
        after = batch.stored[job.id]
        # The store leased it to the number that this process had last, which may be another by now.
        wanted = filled.get(job.id, job)
        if after.owner != owner or wanted is not job or not plain.starts_plainly(job):
            after = rules.claim(
                wanted, owner=owner, now_ms=batch.now_ms, lease_ms=command.lease_ms, start=command.start
            )
        size += job.size
        if after.place is not Place.RUNNING:
            failed.append(after)
        elif size > CLAIM_BYTES and (runs or has_some):
            # As it stood: nobody has heard of this claim.
            batch.put(job)
            full = True
        else:
            runs.append((job, after))
    room = _room(batch, [job for job, _ in runs if job.domain is not None])
    for job, after in runs:
        if job.domain is not None:
            key = (job.tenant, job.domain)
            if not room[key]:
                batch.put(rules.hold_back(job))
                continue
            room[key] -= 1
        if after is not batch.stored[job.id]:
            batch.put_claimed(after)
        started.append(after)
    # Last, because the parent of one of them may just have been started, and is to know.
    for after in failed:
        batch.put(after)
    return full


def _room(batch: Batch, jobs: list[Job]) -> dict[DomainKey, int]:
    """How many of these jobs their domains let start, whose allowance is spent with it."""
    asked = Counter((job.tenant, job.domain) for job in jobs if job.domain is not None)
    batch.domains.load(list(asked))
    return {key: batch.domains.start(key, count) for key, count in asked.items()}


def _as_they_are(batch: Batch, jobs: list[Job]) -> list[Job]:
    current = [batch.jobs.get(job.id) if job.id in batch.jobs else job for job in jobs]
    return [job for job in current if job is not None]
