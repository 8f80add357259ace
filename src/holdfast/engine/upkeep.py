"""Upkeep: changes that are due by time.

    promote    scheduled jobs that are due, expired leases and jobs, limited domains that may start a job
    the rest   schedules, chores, expired unique keys, old archived jobs, workers that are gone,
               history

`promote` runs before every claim, so that no claim waits for upkeep. The rest runs when a schedule is due, a
few seconds later while there is more to do, and else seldom; chores wake up waiting
claims (`claim_hint`). Everything is idempotent and works in bounded batches by index, in any process.
"""

from collections.abc import Iterator

from ..core import bounds, rules
from ..core.bounds import UPKEEP_JOBS
from ..core.job import Job, Place
from ..core.jump import Overdue, extend_lease, purged_before
from . import history
from .batch import notes
from .batch.batch import Batch
from .batch.limiting import due_domains
from .commands import chores, governing, schedules, workers

# How often it runs the rest of upkeep while idle.
QUIET_MS = 300_000
# Old jobs leave the archive late by at most this part of the retention.
PART_OF_RETENTION = 10


def promote(batch: Batch) -> None:
    """Promote due jobs, and end expired leases and jobs."""
    now_ms, txn = batch.now_ms, batch.txn
    moments = txn.moments()
    # First: an expired job must not become due.
    if is_due(moments.expiring, now_ms):
        for job in _unchanged(batch, txn.expiring(now_ms, UPKEEP_JOBS)):
            chores.lose(batch, rules.expire(job, now_ms=now_ms))
    if is_due(moments.scheduled, now_ms):
        for job in _unchanged(batch, txn.first(Place.SCHEDULED, now_ms, UPKEEP_JOBS)):
            # A damaged job may have a task that no worker knows.
            is_damaged = job.damaged is not None
            batch.put(rules.fail_damaged(job, now_ms=now_ms) if is_damaged else rules.promote(job))
    if is_due(moments.running, now_ms):
        for job in _unchanged(batch, txn.first(Place.RUNNING, now_ms, UPKEEP_JOBS)):
            _end_lease(batch, job)
    if is_due(moments.domains, now_ms):
        batch.domains.load(due_domains(txn, UPKEEP_JOBS))


def _end_lease(batch: Batch, job: Job) -> None:
    """End an expired lease, unless it only seems expired because the clock was set ahead."""
    if batch.txn.jump is not None and (kept := extend_lease(job, batch.txn.jump)).lease_until > batch.now_ms:
        batch.put(kept)
    else:
        chores.lose(batch, rules.lapse(job, now_ms=batch.now_ms))


def clock_went_back(batch: Batch) -> None:
    """Have all domains checked again after the clock was set back: their due times may be far ahead."""
    for tenant in sorted({key.tenant for key in batch.txn.counts()}):
        chores.touch_domains(batch, tenant, after=b"")


def rest(batch: Batch) -> int:
    """Run the rest of upkeep; returns when to run it next."""
    again = schedules.fire(batch)
    busy = chores.go_on(batch)
    workers.remove_dead(batch)
    history.record(batch)
    busy = batch.holders.lapse(UPKEEP_JOBS) == UPKEEP_JOBS or busy
    gone = _purge(batch)
    if busy or gone == UPKEEP_JOBS:
        return batch.now_ms
    pause_ms = bounds.UPKEEP_PERIOD_MS if gone else _quiet_ms(batch)
    return min(again or batch.now_ms + pause_ms, batch.now_ms + pause_ms)


def _purge(batch: Batch) -> int:
    """Delete archived jobs after their retention, unless the clock may have been set ahead; their number."""
    now_ms, retention_ms = batch.now_ms, batch.retention_ms
    old = batch.txn.ended(now_ms - retention_ms, tenant=None, limit=UPKEEP_JOBS)
    if not old:
        return 0
    # The time in a damaged record may be lost; the store has the job in order nevertheless.
    oldest_ms = min((job.finished_at for job in old if job.finished_at), default=now_ms - retention_ms)
    last = governing.get_overdue(batch)
    before = purged_before(oldest_ms, last, now_ms=now_ms, retention_ms=retention_ms)
    if isinstance(before, Overdue):
        governing.put_overdue(batch, before)
        return 0
    return batch.forget(notes.few([job for job in old if job.finished_at < before]))


def _quiet_ms(batch: Batch) -> int:
    """How long the rest of upkeep may wait while idle."""
    return max(bounds.UPKEEP_PERIOD_MS, min(QUIET_MS, batch.retention_ms // PART_OF_RETENTION))


def is_due(moment: int | None, now_ms: int) -> bool:
    """Whether a time has come."""
    return moment is not None and moment <= now_ms


def _unchanged(batch: Batch, jobs: list[Job]) -> Iterator[Job]:
    """Yield the jobs that this transaction has not changed meanwhile; children change their parents."""
    for job in jobs:
        batch.bring(job)
        if batch.jobs.get(job.id) is batch.stored[job.id]:
            yield batch.stored[job.id]
