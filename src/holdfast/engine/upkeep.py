"""Upkeep: changes that are due by time; and the hint whether a claim would find a job, or upkeep to do.

    promote    scheduled jobs that are due, expired leases and jobs, limited domains that may start a job
    the rest   schedules, chores, expired unique keys, old archived jobs, workers that are gone,
               history

`promote` runs before every claim, so that no claim waits for upkeep. The rest runs when a schedule is due, a
few seconds later while there is more to do, and else seldom; chores wake up waiting
claims. Everything is idempotent and works in bounded batches by index, in any process.

The hint is a read without a lock, before a claim that writes. It may say yes wrongly, but not no: a claim
that finds nothing costs a transaction, one that is not made would delay a job.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core import bounds, rank, rules
from ..core import commands as c
from ..core.bounds import UPKEEP_JOBS
from ..core.glob import matches
from ..core.job import Job, Place
from ..core.jump import Overdue, extend_lease, purged_before
from ..core.kinds import CHORE, SCHEDULE
from ..core.queries import ListWaiting
from ..store.contract import ReadTxn
from . import history
from .batch import notes
from .batch.batch import Batch
from .batch.limiting import due_domains
from .commands import chores, governing, schedules, workers
from .commands.schedules import fires_at
from .queries import list_waiting

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


# The most pairs of tenant and task that are read: with more, the answer is yes.
MAX_PAIRS_READ = 64


class ClaimHint(NamedTuple):
    """Whether there is anything to claim or upkeep to do, and when a job next becomes due."""

    has_work: bool
    next_ms: int | None = None
    # When full upkeep is due: a schedule fires.
    upkeep_ms: int | None = None
    # Whether full upkeep is due now, or there are chores: a claim alone does not do it.
    is_upkeep_due: bool = False


def read_claim_hint(txn: ReadTxn, commands: Sequence[c.Command]) -> ClaimHint:
    """Read the hint for these claims."""
    next_ms, upkeep_ms = txn.moments().first, _upkeep_at(txn)
    is_upkeep_due = bool(txn.rows(CHORE)) or is_due(upkeep_ms, txn.now_ms)
    found = is_upkeep_due or is_due(next_ms, txn.now_ms) or _has_claimable(txn, commands)
    return ClaimHint(found, next_ms, upkeep_ms, is_upkeep_due)


def _has_claimable(txn: ReadTxn, commands: Sequence[c.Command]) -> bool:
    claims = [command for command in commands if isinstance(command, c.Claim)]
    if any(claim.mock for claim in claims):
        return bool(txn.first(Place.READY, rank.LAST, 1))
    return any(_has_ready(txn, claim) for claim in claims)


def _upkeep_at(txn: ReadTxn) -> int | None:
    moments = [fires_at(raw) for raw in txn.rows(SCHEDULE).values()]
    return min((moment for moment in moments if moment is not None), default=None)


def _has_ready(txn: ReadTxn, claim: c.Claim) -> bool:
    """Whether a claim may find a job."""
    whose = claim.tenants if claim.tenant is None else (claim.tenant,)
    asked = ListWaiting(tenants=whose, tasks=claim.tasks, handled=claim.handled, limit=MAX_PAIRS_READ)
    found = list_waiting(txn, asked)
    if claim.handled and not found:
        # It has looked at very many of them.
        return False
    if claim.glob is None and found:
        return True
    if any(claim.glob is None or matches(claim.glob, one.task) for one in found):
        return True
    return len(found) == MAX_PAIRS_READ or _has_more_pairs(txn)


def _has_more_pairs(txn: ReadTxn) -> bool:
    """Whether there are more pairs than are read."""
    return len(list_waiting(txn, ListWaiting(limit=MAX_PAIRS_READ))) == MAX_PAIRS_READ
