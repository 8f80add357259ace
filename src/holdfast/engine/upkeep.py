"""Upkeep: whatever becomes true by itself.

    promote    jobs that came due, leases that ran out, jobs that expired, domains whose moment has come
    the rest   schedules, chores, unique keys that ran out, the archive's old end, workers that are gone

`promote` goes before every claim, so that nobody waits for upkeep. The rest is done when a schedule fires,
while there is something to do a few seconds later, and else seldom: what has no moment of its own is only
tidied away, and one who waits is told of chores and letters (`prospects`). Everything is idempotent and works
in bounded batches by index; every process may do it, and nothing depends on who does.
"""

from collections.abc import Iterator

from ..core import rules
from ..core.bounds import UPKEEP_JOBS
from ..core.job import Job, Place
from ..core.jump import regranted
from .batch.batch import Batch
from .batch.limiting import due_domains
from .commands import chores, letters, schedules, workers

# How often a process that claims looks at what has no moment of its own: while jobs come and go, and else.
PERIOD_MS = 10_000
QUIET_MS = 300_000
# The archive's old end is late by such a part of the retention at most.
PART_OF_RETENTION = 10


def promote(batch: Batch) -> None:
    """Let what is due be so."""
    now_ms, txn = batch.now_ms, batch.txn
    moments = txn.moments()
    # Before the others: what has expired does not come due any more.
    if _is_due(moments.expiring, now_ms):
        for job in _standing(batch, txn.expiring(now_ms, UPKEEP_JOBS)):
            chores.lose(batch, rules.expire(job, now_ms=now_ms))
    if _is_due(moments.scheduled, now_ms):
        for job in _standing(batch, txn.first(Place.SCHEDULED, now_ms, UPKEEP_JOBS)):
            # A damaged one may be of a task that nobody asks for any more.
            is_damaged = job.damaged is not None
            batch.put(rules.set_aside(job, now_ms=now_ms) if is_damaged else rules.due(job))
    if _is_due(moments.running, now_ms):
        for job in _standing(batch, txn.first(Place.RUNNING, now_ms, UPKEEP_JOBS)):
            _end_lease(batch, job)
    if _is_due(moments.domains, now_ms):
        batch.domains.load(due_domains(txn, UPKEEP_JOBS))


def _end_lease(batch: Batch, job: Job) -> None:
    """A lease has ended, unless it only seems so because the clock was set ahead."""
    if batch.txn.jump is not None and (kept := regranted(job, batch.txn.jump)).lease_until > batch.now_ms:
        batch.put(kept)
    else:
        chores.lose(batch, rules.lapse(job, now_ms=batch.now_ms))


def clock_went_back(batch: Batch) -> None:
    """Have all domains looked at: what they took for their next moment may now be far ahead."""
    for tenant in sorted({key.tenant for key in batch.txn.counts()}):
        chores.touch_domains(batch, tenant, after=b"")


def rest(batch: Batch) -> int:
    """Everything else; when to do it next."""
    # Before schedules are: one may wait for a job that is still in a letter.
    letters.pick_up(batch)
    again = schedules.fire(batch)
    busy = chores.go_on(batch)
    workers.bury(batch)
    busy = batch.holders.lapse(UPKEEP_JOBS) == UPKEEP_JOBS or busy
    old = batch.txn.ended(batch.now_ms - batch.retention_ms, tenant=None, limit=UPKEEP_JOBS)
    batch.forget(old)
    if busy or len(old) == UPKEEP_JOBS:
        return batch.now_ms
    pause_ms = PERIOD_MS if old or batch.letters else _quiet_ms(batch)
    return min(again or batch.now_ms + pause_ms, batch.now_ms + pause_ms)


def _quiet_ms(batch: Batch) -> int:
    """How long the rest may wait where nothing was to do."""
    return max(PERIOD_MS, min(QUIET_MS, batch.retention_ms // PART_OF_RETENTION))


def _is_due(moment: int | None, now_ms: int) -> bool:
    return moment is not None and moment <= now_ms


def _standing(batch: Batch, jobs: list[Job]) -> Iterator[Job]:
    """Those that nothing in this transaction has moved meanwhile; a parent moves with its children."""
    for job in jobs:
        batch.bring(job)
        if batch.jobs.get(job.id) is batch.stored[job.id]:
            yield batch.stored[job.id]
