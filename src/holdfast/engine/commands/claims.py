"""Claims: the store leases jobs, and the rules decide which of them start.

The store leases the first READY jobs. As many of them start as their domains allow; the others become HELD.
Then the store leases more, until there are enough or no more are found. If a claim has picks, jobs that were
held back are replaced by jobs of the same pair.
"""

from collections import Counter

from msgspec.structs import replace

from ...core import commands as c
from ...core import defaults, rules
from ...core.bounds import CLAIM_BYTES, CLAIM_JOBS
from ...core.job import ANY_LEASE_MS, Job, Place, damaged_bodies, plain_lease_ms
from ...core.limits import DomainKey
from ...core.queries import ListWaiting
from ...store.contract import ClaimQuery, Pick, leased_all, picks_left
from ..batch import notes
from ..batch.batch import Batch
from ..queries import list_waiting

# How many jobs are examined in one transaction. Each round moves jobs of exhausted domains out of READY; a
# claim that found too few tries again at once.
LOOKED_AT = 2_000
# From how many tasks a claim for any task with a handler takes jobs.
HANDLED_PAIRS = 64


def claim(batch: Batch, command: c.Claim) -> list[c.Claimed]:
    """Lease jobs with their data; see `Claim`. Jobs without readable data fail, others are claimed."""
    if command.handled and not command.picks:
        command = replace(command, picks=_handled_picks(batch, command))
        if not command.picks:
            return []
    while True:
        started, last_runs = _started(batch, command)
        bodies = batch.txn.bodies([job.id for job in started]) if started else {}
        bad = damaged_bodies([job.id for job in started], bodies)
        damaged = [job for job in started if job.id in bad] if bad else []
        for job in damaged:
            batch.put(rules.fail_damaged(batch.jobs[job.id] or job, now_ms=batch.now_ms))
        batch.keep()
        if len(damaged) < len(started) or not damaged:
            # Read again: a child of a started parent may have expired meanwhile.
            jobs = [batch.jobs[job.id] for job in started if job not in damaged]
            found = [
                c.Claimed(job=job, data=bodies[job.id], last_run=last_runs[job.id])
                for job in jobs
                if job is not None
            ]
            return notes.with_steps(batch.rows_of, found)
        batch.flush()


def _handled_picks(batch: Batch, command: c.Claim) -> tuple[Pick, ...]:
    """The first pairs that have a handler, as picks up to the claim's limit."""
    whose = command.tenants if command.tenant is None else (command.tenant,)
    asked = ListWaiting(tenants=whose, tasks=command.tasks, handled=True, limit=HANDLED_PAIRS)
    limit = min(command.limit, CLAIM_JOBS)
    return tuple((one.tenant, one.task, limit) for one in list_waiting(batch.txn, asked))


def _started(batch: Batch, command: c.Claim) -> tuple[list[Job], dict[int, int]]:
    """The jobs that may start, in order, and when each of them ran last."""
    started: list[Job] = []
    last_runs: dict[int, int] = {}
    wanted = min(command.limit, CLAIM_JOBS)
    looked_at = rounds = 0
    while len(started) < wanted:
        rounds += 1
        before = len(started)
        found = _round(batch, command, wanted - before, started, last_runs)
        looked_at += found
        if not found or len(started) == wanted or (command.picks and found == len(started) - before):
            break
        if looked_at >= LOOKED_AT:
            batch.woke = batch.woke or not started
            break
        # READY jobs of exhausted domains become HELD, so that the next round does not find them.
        batch.settle()
        batch.flush()
    if rounds > 1:
        # A later round may have found an earlier job: one that was HELD behind a job that cannot run.
        started.sort(key=lambda job: (-job.priority, job.run_at, job.id))
    return started, last_runs


def _round(batch: Batch, command: c.Claim, limit: int, started: list[Job], last_runs: dict[int, int]) -> int:
    """Lease jobs from the store, start those that may; return how many were examined, 0 if it is enough."""
    query = _query(batch, command, limit, started)
    jobs = batch.txn.claim(query)
    if not jobs:
        return 0
    # Only now: a process that finds nothing and waits must not write to renew its sysid.
    owner = command.owner or batch.ids.owner()
    last_runs |= {job.id: job.started_at for job in jobs}
    now = leased_all(jobs, query)
    batch.bring_claimed(jobs, now)
    size = command.taken_bytes + sum([job.size for job in (*started, *jobs)])
    filled = _filled(batch, command, jobs)
    odd = owner != query.owner or size > CLAIM_BYTES or bool(filled)
    lease_ms = command.lease_ms or ANY_LEASE_MS
    if not odd and all([plain_lease_ms(job) >= lease_ms for job in jobs]):  # noqa: C419 - a call for each less
        # Plain jobs: the rules would decide just what the store has done.
        started += now
        # If the store has found fewer than the limit there are hardly any more.
        return len(jobs) if len(jobs) == query.limit else 0
    full = _start(batch, command, owner, jobs, started, filled)
    batch.keep()
    return 0 if full and (started or command.taken_bytes) else len(jobs)


def _query(batch: Batch, command: c.Claim, limit: int, started: list[Job]) -> ClaimQuery:
    """The query of a claim to the store."""
    pauses = batch.pauses()
    return ClaimQuery(
        owner=command.owner or batch.ids.number,
        now_ms=batch.now_ms,
        start=command.start,
        limit=limit,
        lease_until=batch.now_ms + command.lease_ms if command.lease_ms else 0,
        tenant=command.tenant,
        tasks=command.tasks,
        glob=command.glob,
        priority=command.priority,
        mock=command.mock,
        tenants=command.tenants,
        skipped=tuple((tenant, task) for tenant, task, domain in pauses if domain is None) if pauses else (),
        picks=picks_left(command.picks, started) if command.picks else (),
    )


def _filled(batch: Batch, command: c.Claim, jobs: list[Job]) -> dict[int, Job]:
    """The jobs that the defaults of their tasks change, with these defaults, by id.

    Jobs claimed through the job-command port are left out: its protocol has no such defaults.
    """
    published = batch.task_defaults
    if not published:
        return {}
    native = [job for job in jobs if command.lease_ms is not None or not job.strict]
    return {job.id: after for job in native if (after := defaults.follow(job, published)) is not job}


def _start(
    batch: Batch, command: c.Claim, owner: int, jobs: list[Job], started: list[Job], filled: dict[int, Job]
) -> bool:
    """Start the jobs that may start, move the others; return whether the limit of bytes was reached."""
    full = False
    size = command.taken_bytes + sum(job.size for job in started)
    has_some = bool(started or command.taken_bytes)
    lease_ms = command.lease_ms or ANY_LEASE_MS
    runs: list[tuple[Job, Job]] = []
    failed: list[Job] = []
    for job in jobs:
        wanted, after = filled.get(job.id, job), batch.stored[job.id]
        if after.owner != owner or wanted is not job or plain_lease_ms(job) < lease_ms:
            after = rules.claim(
                wanted, owner=owner, now_ms=batch.now_ms, lease_ms=command.lease_ms, start=command.start
            )
        size += job.size
        if after.place is not Place.RUNNING:
            failed.append(after)
        elif size > CLAIM_BYTES and (runs or has_some):
            # As it was before: no caller knows of this claim.
            batch.put(job)
            full = True
        else:
            runs.append((job, after))
    room = _room(batch, [job for job, _ in runs if job.domain is not None])
    for job, after in runs:
        if job.domain is not None:
            key = (job.tenant, job.domain)
            if not room[key]:
                batch.put(rules.make_held(job))
                continue
            room[key] -= 1
        if after is not batch.stored[job.id]:
            batch.put_claimed(after)
        started.append(after)
    # Last, because a parent of one of them may just have been started, and must be updated.
    for after in failed:
        batch.put(after)
    return full


def _room(batch: Batch, jobs: list[Job]) -> dict[DomainKey, int]:
    """How many of these jobs may start, by domain; their allowance is spent."""
    asked = Counter((job.tenant, job.domain) for job in jobs if job.domain is not None)
    if not asked:
        return {}
    batch.domains.load(list(asked))
    return {key: batch.domains.start(key, count) for key, count in asked.items()}
