"""Work that may be too much for one transaction: done up to a limit at once, the rest in upkeep.

A parent may have a million children. Its finish releases, or lays to rest, as many as fit; a small
record remembers that there are more, and upkeep goes on where it ended.
"""

import msgspec

from ..core import family
from ..core.bounds import UPKEEP_JOBS
from ..core.job import Job, Place, Record, State
from .batch import Batch
from .records import CHORE, name_of


class Chore(Record, frozen=True, kw_only=True):
    """What is left to do: for a family, children to sweep that were born before a claim of the parent."""

    release: bool = False
    swept_claim: int = 0
    after_id: int = 0
    after: bytes = b""


def note(batch: Batch, name: str, chore: Chore | None) -> None:
    """Remember a chore, or (None) that it is done."""
    if chore is not None or name in batch.records_of(CHORE, [name]):
        batch.records[CHORE, name] = msgspec.json.encode(chore) if chore else None


def release(batch: Batch, parent: Job) -> None:
    """Queue the children of a parent that has finished its run."""
    children = batch.children(parent.id, Place.PAUSED, UPKEEP_JOBS)
    for child in children:
        batch.put(family.released(child, now_ms=batch.now_ms))
    if len(children) == UPKEEP_JOBS:
        note(batch, name_of("release", str(parent.id)), Chore(release=True))


def sweep(batch: Batch, parent: Job, *, goes: bool) -> None:
    """Archive the ended children that a parent has seen: those of its earlier runs, or all when it goes."""
    _sweep(batch, parent.id, Chore(swept_claim=parent.claim + goes))


def _sweep(batch: Batch, parent_id: int, chore: Chore) -> None:
    children = batch.children(parent_id, Place.DONE, UPKEEP_JOBS, after=chore.after_id)
    for child in children:
        if child.ended != State.FAILED and child.parent_claim < chore.swept_claim:
            batch.sweep(child)
    more = len(children) == UPKEEP_JOBS
    rest = Chore(swept_claim=chore.swept_claim, after_id=children[-1].id) if more else None
    note(batch, name_of("sweep", str(parent_id)), rest)


def touch_domains(batch: Batch, tenant: str, *, after: bytes) -> None:
    """Have the domains of a tenant looked at anew, because the limit that governs them may have changed."""
    domains = batch.txn.list_domains(tenant, after=after, limit=UPKEEP_JOBS)
    batch.domains.refresh([domain.key for domain in domains])
    more = len(domains) == UPKEEP_JOBS
    note(batch, name_of("domains", tenant), Chore(after=domains[-1].name) if more else None)


def go_on(batch: Batch) -> bool:
    """Do some of what is left; whether there was anything, so that upkeep comes back at once."""
    left = batch.records_of(CHORE)
    for name, raw in sorted(left.items())[:10]:
        kind, subject = msgspec.json.decode(name, type=tuple[str, str])
        chore = msgspec.json.decode(raw, type=Chore)
        if kind == "release":
            parent = batch.find(int(subject))
            batch.records[CHORE, name] = None
            if parent is not None and parent.place == Place.PAUSED:
                release(batch, parent)
        elif kind == "sweep":
            _sweep(batch, int(subject), chore)
        elif kind == "domains":
            touch_domains(batch, subject, after=chore.after)
    return bool(left)
