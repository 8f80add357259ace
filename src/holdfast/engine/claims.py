"""Claims: what the store leased is looked at by the rules before anyone hears of it.

The store takes the first READY jobs; of these the domains let start as many as they may, and the rest
goes back behind them. Then it takes more, until enough was found or nothing is left to take.
"""

from ..core import commands as c
from ..core import rules
from ..core.bounds import CLAIM_BYTES, CLAIM_JOBS
from ..core.job import Body, Job, Place
from ..core.limits import DomainKey
from ..store.contract import ClaimQuery
from .batch import Batch

# Each round that meets a spent domain clears it out of the way, so few are needed.
ROUNDS = 10


def claim(batch: Batch, command: c.Claim) -> list[c.Claimed]:
    """Lease jobs with their data; see `Claim`."""
    started: list[Job] = []
    wanted = min(command.limit, CLAIM_JOBS)
    owner = command.owner or batch.ids.owner()
    for _ in range(ROUNDS):
        jobs = batch.txn.claim(_query(batch, command, owner, wanted - len(started)))
        started += _started(batch, command, jobs)
        batch.keep()
        batch.flush()
        if not jobs or len(started) >= wanted:
            break
        if not batch.domains:
            break
        # What a spent domain has left in READY is moved out of the next round's way.
        batch.domains.settle()
        batch.keep()
        batch.flush()
    started = _within_bytes(batch, started)
    bodies = batch.txn.bodies([job.id for job in started]) if started else {}
    return [_claimed(batch, job, bodies) for job in started]


def _query(batch: Batch, command: c.Claim, owner: int, limit: int) -> ClaimQuery:
    return ClaimQuery(
        owner=owner,
        now_ms=batch.now_ms,
        limit=limit,
        lease_until=batch.now_ms + command.lease_ms if command.lease_ms else 0,
        tenant=command.tenant,
        tasks=command.tasks,
        priority=command.priority,
        mock=command.mock,
        passing=tuple((tenant, task) for tenant, task, domain in batch.pauses() if domain is None),
    )


def _started(batch: Batch, command: c.Claim, jobs: list[Job]) -> list[Job]:
    """Those that really start; the others are put where they belong."""
    asked: dict[DomainKey, int] = {}
    ready = [batch.bring_claimed(job) for job in jobs]
    for job in ready:
        if job.domain is not None:
            key = (job.tenant, job.domain)
            asked[key] = asked.get(key, 0) + 1
    batch.domains.load(asked)
    room = {key: batch.domains.start(key, count) for key, count in asked.items()}
    started = []
    for job, leased in zip(ready, jobs, strict=True):
        domain = (job.tenant, job.domain or b"")
        after = rules.claim(job, owner=leased.owner, now_ms=batch.now_ms, lease_ms=command.lease_ms)
        if after.place != Place.RUNNING:
            batch.put(after)
        elif job.domain is not None and not room[domain]:
            batch.put(rules.hold_back(rules.release(after, now_ms=batch.now_ms)))
        else:
            if job.domain is not None:
                room[domain] -= 1
            batch.put_claimed(leased, after)
            started.append(after)
    return started


def _within_bytes(batch: Batch, jobs: list[Job]) -> list[Job]:
    """As many as fit, but at least one; the others go back to where they stood."""
    total, kept = 0, []
    for at, job in enumerate(jobs):
        total += job.size
        if at and total > CLAIM_BYTES:
            for late in jobs[at:]:
                batch.put(rules.release(late, now_ms=batch.now_ms))
            batch.keep()
            batch.flush()
            break
        kept.append(job)
    return kept


def _claimed(batch: Batch, job: Job, bodies: dict[int, Body]) -> c.Claimed:
    current = batch.jobs.get(job.id)
    assert current is not None
    return c.Claimed(job=current, data=bodies.get(job.id, "{}"))
