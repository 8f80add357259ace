"""What a restored backup has set back, and must not: claims and ids.

    claims    handlers pass them to other systems, which refuse an older one than they have seen
    ids       a second job with a known id counts as a repetition, and would be lost
    sysids    two processes with the same one would make the same ids

All three are raised by the clock: above everything that was used before the restore, and below what the
next restore raises them to. A job is claimed less than once in a millisecond, and the ids of a process end a
lease after its clock.
"""

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import ids
from ...core.bounds import PAGE_JOBS, SYSID_LEASE_MS
from ...core.kinds import SYSID
from ...core.queries import JobFilter
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..sysid import NUMBERS, Sysid


class MarkRestored(c.Command, frozen=True, kw_only=True):
    """Raise the claims of the next live jobs after an id, and first of all the ids and sysids of the store.

    Replies the id to go on after, or None at the end. Asked again, it does no harm.
    """

    after: int = 0
    limit: int = PAGE_JOBS


def mark_restored(batch: Batch, command: MarkRestored) -> int | None:
    """Raise what the backup has set back; see `MarkRestored`."""
    if not command.after:
        _raise_ids(batch)
    page = [job.id for job in batch.txn.jobs(JobFilter(), after=command.after, limit=command.limit)]
    batch.load(page)
    claim = batch.now_ms - ids.EPOCH_MS
    for job in [batch.jobs.get(job_id) for job_id in page]:
        if job is not None and job.claim < claim:
            batch.put(replace(job, claim=claim))
    return page[-1] if page else None


def _raise_ids(batch: Batch) -> None:
    """Let all ids begin a lease after the clock, and take the sysids of processes away.

    Journals keep theirs: they make ids without asking the store. The row of the port's sysid is the floor for
    numbers without a row, and for SQL functions.
    """
    floor_ms = batch.now_ms + SYSID_LEASE_MS
    kept = {int(name): raw for name, raw in batch.rows_of(SYSID).items()}
    for number in {ids.PORT_SYSID, *kept}:
        raw = kept.get(number)
        lease = msgspec.json.decode(raw, type=Sysid) if raw else Sysid(token="", until_ms=0, ids_until_ms=0)
        if number < ids.FIRST_JOURNAL_SYSID:
            lease = replace(lease, token="", until_ms=0)
        lease = replace(lease, ids_until_ms=max(lease.ids_until_ms, floor_ms))
        batch.rows[SYSID, str(number)] = msgspec.json.encode(lease)


def last_used_ms(txn: ReadTxn) -> int | None:
    """When a process used the store last, if it did not close it; None: it did, or there was none."""
    found = {int(name): msgspec.json.decode(raw, type=Sysid) for name, raw in txn.rows(SYSID).items()}
    leases = [lease for number, lease in found.items() if number in NUMBERS]
    last = max(leases, key=lambda lease: lease.ids_until_ms, default=None)
    return last.until_ms - SYSID_LEASE_MS if last is not None and last.until_ms else None
