"""Sysids of journals, which make ids for days on their own; and what a restored backup has set back.

That are the claims, and the ids and sysids of the store.
"""

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import ids
from ...core.bounds import PAGE_JOBS, SYSID_LEASE_MS
from ...core.commands import TakenSysid, TakeSysid
from ...core.kinds import SYSID
from ...core.queries import JobFilter
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..sysid import NUMBERS, Sysid, first_free_ms, free_number

# A journal that ends keeps its sysid, to start without the store next time, while at most this part is taken.
KEPT_PART = 4


def take_sysid(batch: Batch, command: TakeSysid) -> TakenSysid:
    """Lease a sysid, renew it, or take it back; see `TakeSysid`."""
    kept = {int(name): msgspec.json.decode(raw, type=Sysid) for name, raw in batch.rows_of(SYSID).items()}
    own = _find_own(kept, command)
    if not command.for_ms:
        return _take_back(batch, kept, own, command)
    number = free_number(kept, batch.now_ms, _numbers(batch)) if own is None else own
    # Up to where the holder before has made ids, also in the reply to a repeated command.
    from_ms = first_free_ms(kept, number) if own is None else kept[own].ids_from_ms
    until_ms = max(batch.now_ms, from_ms) + command.for_ms
    if own is not None:
        until_ms = max(until_ms, kept[own].ids_until_ms)
    lease = Sysid(token=command.token, until_ms=until_ms, ids_until_ms=until_ms, ids_from_ms=from_ms)
    _keep(batch, number, lease)
    return TakenSysid(number=number, token=command.token, ids_from_ms=from_ms, ids_until_ms=until_ms)


def _find_own(kept: dict[int, Sysid], command: TakeSysid) -> int | None:
    """The sysid with the token of a command, or the one it names if that has its previous token."""
    for number, lease in kept.items():
        if lease.token == command.token:
            return number
    named = kept.get(command.number)
    return command.number if named is not None and named.token == command.previous != "" else None


def _take_back(batch: Batch, kept: dict[int, Sysid], own: int | None, command: TakeSysid) -> TakenSysid:
    """Release a sysid for the next holder, or have the caller keep it; see `TakeSysid`."""
    released = TakenSysid(number=0, token=command.token)
    if own is None:
        return released
    numbers, lease = _numbers(batch), kept[own]
    taken = sum(one.until_ms > batch.now_ms for number, one in kept.items() if number in numbers)
    if command.used_until_ms and taken <= len(numbers) // KEPT_PART:
        return replace(released, number=own, ids_until_ms=lease.ids_until_ms)
    # Not before the ids of earlier holders end, whatever the command says.
    used_ms = max(lease.ids_from_ms, min(command.used_until_ms or lease.ids_until_ms, lease.ids_until_ms))
    _keep(batch, own, Sysid(token="", until_ms=0, ids_until_ms=used_ms))
    return released


def _numbers(batch: Batch) -> range:
    """The sysids that this shard leases to journals."""
    first, count = ids.FIRST_JOURNAL_SYSID, batch.shard_info.count
    return range(first + (batch.shard_info.number - first) % count, ids.SYSIDS, count)


def _keep(batch: Batch, number: int, lease: Sysid) -> None:
    batch.rows[SYSID, str(number)] = msgspec.json.encode(lease)


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
