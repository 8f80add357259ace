"""Adds jobs inside a caller's own transaction.

They are added as SCHEDULED, due at once or later, and promoted by upkeep. So the caller's transaction,
however long it lasts, locks neither a (tenant, task) pair nor a domain.
"""

from msgspec.structs import replace

from ...core import commands as c
from ...core.creating import create
from ...core.errors import BadInput
from ...core.job import Place
from ...core.slots import slot_for
from ...store.contract import JOBS, Changes, NewJobs, Txn
from ..batch.counters import Counts
from ..shard_info import ShardInfo
from ..sysid import IdMaker


def insert_scheduled(
    txn: Txn, maker: IdMaker, command: c.Add, shard_info: ShardInfo
) -> tuple[Changes, list[int]]:
    """Jobs to insert as SCHEDULED, and their ids."""
    added = []
    for new in command.every():
        if new.unique is not None or new.parent_id:
            what = "unique" if new.unique is not None else "parent"
            raise BadInput(what, "given", needed="absent inside your own transaction (connection=)")
        slot = slot_for(new)
        if slot is not None and not shard_info.has_slot(slot):
            raise BadInput("domain", new.domain, needed="one of the shard that your connection leads to")
        job_id = new.id or maker.make(slot=slot)
        job = create(maker.with_follower(new), job_id=job_id, now_ms=txn.now_ms)
        job = replace(job, place=Place.SCHEDULED, rank=job.run_at)
        added.append(NewJobs(job, [(job_id, new.data)]))
    counts = Counts()
    counts.came(template for template, _ in added)
    changes = Changes(added=added, counts=counts.take(), rows=maker.rows, wake=JOBS)
    return changes, [new.template.id for new in added]
