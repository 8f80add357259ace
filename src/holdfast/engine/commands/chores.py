"""Work that may be too much for one transaction: done up to a limit at once, the rest by upkeep.

A parent may have a million children. Its finish queues or archives as many as fit into a transaction. A row
notes that there are more, and upkeep continues.
"""

import msgspec
from msgspec.structs import replace

from ...core import family
from ...core.bounds import UPKEEP_JOBS
from ...core.job import Job, Place, Record, State
from ...core.kinds import CHORE, name_of
from ..batch.batch import Batch
from ..batch.limiting import list_domains


class Chore(Record, frozen=True, kw_only=True):
    """The rest of the work: for a parent, archive ended children added before one of its claims."""

    claim: int = 0
    after_id: int = 0
    after: bytes = b""


def note(batch: Batch, name: str, chore: Chore | None) -> None:
    """Write a chore; None deletes it."""
    if chore is not None or name in batch.rows_of(CHORE, [name]):
        batch.rows[CHORE, name] = msgspec.json.encode(chore) if chore else None
        batch.wants_upkeep = batch.wants_upkeep or chore is not None


def put(batch: Batch, after: Job) -> None:
    """Change a job to `after`; if it is archived, its ended children are archived too."""
    goes = after.place == Place.DONE and after.ended != State.FAILED
    batch.put(sweep(batch, after, goes=True) if goes else after)


def lose(batch: Batch, after: Job) -> None:
    """Change a lost or expired job to `after`; it is logged after the commit, since no worker reports it."""
    before = batch.jobs.get(after.id)
    put(batch, after)
    if before is not None:
        batch.unreported.append((before, after))


def release(batch: Batch, parent: Job, *, after: int = 0) -> None:
    """Queue the children that wait for a parent, which has finished its run."""
    children, more = batch.children(parent.id, Place.PAUSED, UPKEEP_JOBS, after=after)
    for child in filter(family.waits_for_parent, children):
        batch.put(family.released(child, now_ms=batch.now_ms))
    note(batch, name_of("release", str(parent.id)), Chore(after_id=more) if more else None)


def sweep(batch: Batch, parent: Job, *, goes: bool) -> Job:
    """Archive the ended children of a parent: those of earlier runs, or all if the parent is archived.

    Returns the parent with the remaining numbers of children.
    """
    if not parent.children.kept:
        return parent
    return family.forget_children(parent, _sweep(batch, parent.id, Chore(claim=parent.claim + goes)))


def _sweep(batch: Batch, parent_id: int, chore: Chore) -> int:
    children, more = batch.children(parent_id, Place.DONE, UPKEEP_JOBS, after=chore.after_id)
    seen = [job for job in children if job.ended != State.FAILED and job.parent_claim < chore.claim]
    for child in seen:
        batch.sweep(child)
    note(batch, name_of("sweep", str(parent_id)), replace(chore, after_id=more) if more else None)
    return len(seen)


def _sweep_on(batch: Batch, parent_id: int, chore: Chore) -> None:
    count = _sweep(batch, parent_id, chore)
    if parent := batch.find(parent_id):
        batch.put(family.forget_children(parent, count))


def touch_domains(batch: Batch, tenant: str, *, after: bytes) -> None:
    """Check the domains of a tenant again, because the limit that applies to them may have changed."""
    domains = list_domains(batch.txn, tenant, after=after, limit=UPKEEP_JOBS)
    batch.domains.refresh([domain.key for domain in domains])
    more = len(domains) == UPKEEP_JOBS
    note(batch, name_of("domains", tenant), Chore(after=domains[-1].name) if more else None)


def go_on(batch: Batch) -> bool:
    """Do some of what is left; whether there was anything, so that upkeep comes back at once."""
    left = batch.rows_of(CHORE)
    for name, raw in sorted(left.items())[:10]:
        kind, subject = msgspec.json.decode(name, type=tuple[str, str])
        chore = msgspec.json.decode(raw, type=Chore)
        if kind == "release":
            parent = batch.find(int(subject))
            # Also if it has expired meanwhile. But one that was requeued queues them with its next finish.
            is_over = parent is not None and parent.place in (Place.PAUSED, Place.DONE)
            if parent is not None and (is_over or (parent.waits_for and parent.place != Place.RUNNING)):
                release(batch, parent, after=chore.after_id)
            else:
                note(batch, name, None)
        elif kind == "sweep":
            _sweep_on(batch, int(subject), chore)
        elif kind == "domains":
            touch_domains(batch, subject, after=chore.after)
    return bool(left)
