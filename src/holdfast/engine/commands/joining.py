"""Jobs that are added inside a caller's own transaction.

They enter SCHEDULED, due at once or later, and counted as such; promotion does the rest. So the caller's
transaction, however long it lasts, locks neither a lane nor a domain.
"""

from msgspec.structs import replace

from ...core import commands as c
from ...core.creating import create
from ...core.errors import BadInput, Conflict
from ...core.job import Job, Place
from ...core.slots import slot_for
from ...store.contract import Txn
from ..batch.counters import Counts
from ..site import Site
from ..sysid import IdMaker


def insert_scheduled(txn: Txn, maker: IdMaker, command: c.Add, site: Site) -> list[int]:
    """Insert jobs as SCHEDULED; their ids."""
    rows = []
    for new in command.every():
        if new.unique is not None or new.parent_id:
            what = "unique" if new.unique is not None else "parent"
            raise BadInput(what, "given", needed="absent inside your own transaction (connection=)")
        slot = slot_for(new)
        if slot is not None and not site.has(slot):
            raise BadInput("domain", new.domain, needed="one of the shard that your connection leads to")
        job_id = new.id or maker.make(slot=slot)
        job = create(maker.with_follower(new), job_id=job_id, now_ms=txn.now_ms)
        rows.append((_scheduled(job), new.data))
    if txn.insert(rows):
        raise Conflict("an id was taken")
    counts = Counts()
    counts.came(job for job, _ in rows)
    txn.count(counts.take())
    return [job.id for job, _ in rows]


def _scheduled(job: Job) -> Job:
    return replace(job, place=Place.SCHEDULED, rank=job.run_at)
