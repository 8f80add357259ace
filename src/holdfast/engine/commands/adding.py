"""Adds jobs to a batch, with the checks of id, parent, domain and unique key."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...core import commands as c
from ...core import family, rules, unique
from ...core.creating import create
from ...core.errors import BadInput, HoldfastError, LeaseLost, NotFound, Refused, StoreCorrupt
from ...core.ids import IdRange, moved, ranges_of
from ...core.job import Body, Job, Place, size_of
from ...core.slots import CHILD_DOMAIN, check_one_slot, slot_for, slot_in
from ...store.contract import JOBS, Changes, NewJobs, Txn
from ..batch.batch import Batch
from ..batch.counters import Counts
from ..shard_info import ShardInfo
from ..sysid import IdMaker


class NameGone(HoldfastError):
    """The job that had the name of a new job of the port has ended: it is added in the shard of its name."""

    code = "NAME_GONE"

    def __init__(self) -> None:
        super().__init__("no job of this shard has the name any more")


def check_held(batch: Batch, hold: c.Hold, verb: str) -> Job:
    """The job of a hold; raises `LeaseLost` or `NotFound` if the hold is not valid."""
    jobs, job_id = batch.jobs, hold.job_id
    job = jobs[job_id] if job_id in jobs else batch.find(job_id)
    if job is not None and job.owner and (job.owner, job.claim) == (hold.owner, hold.claim):  # noqa: SIM102 - shorter
        if hold.tenant in (None, job.tenant):
            return job
    if job is not None and hold.tenant not in (None, job.tenant):
        # For another tenant the job does not exist, live or archived.
        job = None
    if hold.claim is None and (job is None or batch.is_archivable(job)):
        # Also if it has ended in this transaction.
        raise NotFound("job", hold.job_id)
    if job is None:
        old = batch.archived(hold.job_id)
        if old is not None and hold.tenant not in (None, old.tenant):
            old = None
        if old is None and hold.job_id <= 0:
            raise NotFound("job", hold.job_id)
        found = str(old.state) if old else "gone"
        raise LeaseLost(verb, hold.job_id, found=found, needed=f"held under claim {hold.claim}")
    rules.check_hold(job, hold, verb)
    return job


def add_all(batch: Batch, command: c.Add) -> list[int]:
    """Add jobs; return their ids in order."""
    if batch.forgotten or batch.touched:
        _free_ids(batch, command)
    if command.ids:
        return _add_by_ids(batch, command)
    jobs, hold = command.jobs, command.hold
    if hold is not None and hold.claim is not None:
        # First, so that a holder without a valid claim gets `LeaseLost`, not `NotFound`.
        check_held(batch, hold, "add a child by")
    for new in jobs:
        if new.strict and new.unique is not None:
            return _add_named(batch, command.every(), hold)
    if command.more and not is_free(jobs[-1]):
        return [add_one(batch, new, hold, marks=command.mark_existing) for new in command.every()]
    ids = []
    for new in jobs:
        if is_free(new):
            ids.append(_add_new(batch, new))
        else:
            ids.append(add_one(batch, new, hold, marks=command.mark_existing))
    return ids + _add_like_last(batch, command.more) if command.more else ids


def _free_ids(batch: Batch, command: c.Add) -> None:
    """Write the deletions of this batch, if an id of a deleted job is to be used again."""
    for job_id in command.ids or [new.id for new in command.jobs if new.id]:
        if batch.has_deleted(job_id):
            batch.flush()
            return


def _add_by_ids(batch: Batch, command: c.Add) -> list[int]:
    """Add jobs under reserved ids; a job whose id exists was added by the same command before.

    At first all ids are assumed to be new. One that exists is a `Conflict`; the next try looks all of them
    up.
    """
    ids, now_ms = command.ids, batch.now_ms
    if batch.trusts and command.hold is None and all(is_free(new) for new in command.jobs):
        for new, job_id in zip(command.jobs, ids, strict=False):
            batch.new_jobs.add(new, job_id=job_id, now_ms=now_ms, is_fresh=False)
        if command.more:
            batch.new_jobs.add_more(list(zip(ids[len(command.jobs) :], command.more, strict=True)))
        return list(ids)
    known = _tenants_of(batch, ids)
    jobs = list(command.every())
    for new in jobs:
        if known.get(new.id, new.tenant) != new.tenant:
            raise BadInput("id", new.id, needed="one that ReserveIds has replied")
    if len(known) < len(ids) and command.hold is not None and command.hold.claim is not None:
        check_held(batch, command.hold, "add a child by")
    if any(new.strict and new.unique is not None for new in jobs):
        return _add_named(batch, jobs, command.hold)
    # A job that is added with its children waits for them.
    parents = {new.parent_id for new in jobs if new.parent_id} if command.hold is None else set()
    added = []
    for new in jobs:
        marks = command.mark_existing
        added.append(new.id if new.id in known else add_one(batch, new, command.hold, marks=marks))
        if new.id in parents and new.id not in known and (parent := batch.find(new.id)) is not None:
            batch.put(family.waiting(parent))
    return added


def _tenants_of(batch: Batch, ids: Sequence[int]) -> dict[int, str]:
    """The tenants of those of these jobs that exist, live or archived."""
    batch.load(ids)
    live = {id: job.tenant for id in ids if (job := batch.find(id)) is not None}
    archived = batch.txn.archived([id for id in ids if id not in live])
    return live | {id: job.tenant for id, job in archived.items()}


def reserve_ids(batch: Batch, command: c.ReserveIds) -> list[IdRange]:
    """Allocate unique ids; see `ReserveIds`."""
    return ranges_of(moved(made, 0) for made in batch.ids.make_many(command.count))


def _add_named(batch: Batch, jobs: Iterable[c.NewJob], hold: c.Hold | None) -> list[int]:
    """Add jobs of the job-command port, where any job with its name counts as a unique job."""
    ids: list[int] = []
    first: dict[tuple[str, str, bool], int] = {}
    for new in jobs:
        name = (new.tenant, new.task, new.mock)
        if new.unique is None:
            ids.append(_add_plain(batch, new, hold))
        else:
            ids.append(add_one(batch, new, hold, known=first.get(name, 0)))
        first.setdefault(name, ids[-1])
    return ids


def _add_plain(batch: Batch, new: c.NewJob, hold: c.Hold | None) -> int:
    """Add a job to the working set, where later commands find it."""
    return batch.add(new) if is_free(new) else add_one(batch, new, hold)


def is_free(new: c.NewJob) -> bool:
    """Whether a new job needs no checks, and no other command can know its id before the reply.

    Not a job with a follower: its record has the id of the follower, so it cannot share a template.
    """
    return new.unique is None and new.domain is None and new.then is None and not new.id and not new.parent_id


def _add_new(batch: Batch, new: c.NewJob) -> int:
    job_id = batch.ids.make(slot=None)
    batch.new_jobs.add(new, job_id=job_id, now_ms=batch.now_ms)
    return job_id


def _add_like_last(batch: Batch, bodies: Sequence[Body]) -> list[int]:
    """Add jobs that differ from the last new one only in id and data."""
    ids = batch.ids.make_many(len(bodies))
    batch.new_jobs.add_more(list(zip(ids, bodies, strict=True)))
    return ids


def add_one(
    batch: Batch,
    new: c.NewJob,
    hold: c.Hold | None = None,
    *,
    follows: bool = False,
    known: int = 0,
    marks: bool = False,
) -> int:
    """Add a job, or find the existing one, perhaps `known`; return its id, with `marks` that one's negated.

    A follow-up job (`follows`) is never refused: that would refuse the finish of the job before it, again and
    again, until its result is lost. If its unique key is held, the holder is the follow-up job. A job of the
    port may be looked for by its name in another shard than its own, where it is not added.
    """
    if is_free(new):
        return _add_new(batch, new)
    if new.id and (known_job := batch.find(new.id) or batch.archived(new.id)):
        if known_job.tenant != new.tenant:
            raise BadInput("id", new.id, needed="an id that no other job has")
        return new.id
    parent, is_here = None, not new.strict or batch.shard_info.has_new(new)
    if new.parent_id and is_here:
        parent = batch.find(new.parent_id)
        if parent is None or parent.tenant != new.tenant:
            raise NotFound("parent job", new.parent_id)
        _check_domain(batch, new, parent)
        family.check_new_child(parent, hold, batch.find(hold.job_id) if hold else None, strict=new.strict)
        new = replace(new, mock=parent.mock)
    key = unique.key_of(new)
    holder = batch.holders.of(key) if key else None
    if holder is not None and holder.until_ms:
        return -holder.job_id if marks else holder.job_id
    job = None if holder is None else batch.find(holder.job_id)
    if job is None and key and new.strict:
        job = batch.find(known) if known else _namesake(batch, new)
    if job is not None:
        found = _hit(batch, new, job, follows)
        return -found if marks else found
    if not is_here:
        raise NameGone
    return batch.add(new, parent)


def _check_domain(batch: Batch, new: c.NewJob, parent: Job) -> None:
    """Refuse a child whose domain belongs to another shard than its parent."""
    if not batch.shard_info.is_only_store and new.domain is not None and new.domain != parent.domain:
        raise BadInput("domain", new.domain, needed=CHILD_DOMAIN)


def _namesake(batch: Batch, new: c.NewJob) -> Job | None:
    """The job with the name of a unique job of the port, whether or not it was added as unique."""
    found = batch.txn.named(new.tenant, new.task, mock=new.mock)
    job = batch.find(found) if found else None
    return job if job is not None and job.task == new.task else None


def _hit(batch: Batch, new: c.NewJob, job: Job, follows: bool) -> int:
    if job.parent_id and job.parent_id != new.parent_id and not follows:
        found = f"the holder of its unique key, and a child of {job.parent_id}"
        raise Refused("add again", job.id, found=found, needed="a child of the same parent")
    try:
        old = batch.body_of(job.id) if new.on_conflict == "merge" else "{}"
        after, data = unique.hit(job, old, new, now_ms=batch.now_ms)
    except (BadInput, StoreCorrupt):
        if not follows:
            raise
        # Data that is not JSON cannot be merged.
        after, data = unique.hit(job, "{}", replace(new, on_conflict="replace"), now_ms=batch.now_ms)
    except Refused:
        if not follows:
            raise
        # The end of the job before it cannot be refused.
        return job.id
    if data is not None:
        # The results of its steps belong to the old data.
        after = replace(after, steps=0, step_bytes=0, open_call=0)
    put(batch, job, after, data)
    return job.id


def put(batch: Batch, before: Job, after: Job, data: Body | None) -> None:
    """Change a job to `after`, with new data if there is any."""
    if data is not None:
        batch.data[after.id] = data
        after = replace(after, size=size_of(data))
    if after is not before:
        batch.put(after)


def can_schedule(command: c.Add) -> bool:
    """Whether jobs can be inserted inside a caller's own transaction without locking anything.

    Unique keys are taken there and then: until the transaction ends, others wait to take the same key.
    """
    for new in command.jobs:
        if new.parent_id:
            raise BadInput("parent", "given", needed="absent inside your own transaction (connection=)")
    return all(new.unique is None for new in command.jobs)


def check_shard(command: c.Add, shard_info: ShardInfo) -> None:
    """Refuse jobs that belong in another shard than the caller's own transaction, or in two."""
    if shard_info.is_only_store:
        return
    for new in command.every():
        check_one_slot(new)
        if not shard_info.has_new(new):
            name, found = ("unique", new.unique) if new.domain is None else ("domain", new.domain)
            raise BadInput(name, found, needed="one of the shard that your connection leads to")


def insert_scheduled(txn: Txn, maker: IdMaker, command: c.Add) -> tuple[Changes, list[int]]:
    """Jobs to insert inside a caller's own transaction, and their ids.

    They are inserted as SCHEDULED, due at once or later, and promoted by upkeep. So the caller's transaction,
    however long it lasts, locks neither a (tenant, task) pair nor a domain.
    """
    added = []
    for new in command.every():
        job_id = new.id or maker.make(slot=slot_for(new))
        job = create(maker.with_follower(new, slot_in(job_id)), job_id=job_id, now_ms=txn.now_ms)
        job = replace(job, place=Place.SCHEDULED, rank=job.run_at)
        added.append(NewJobs(job, [(job_id, new.data)], not new.id))
    counts = Counts()
    counts.came(group.template for group in added)
    changes = Changes(added=added, counts=counts.take(), rows=maker.rows, wake=JOBS)
    return changes, [new.template.id for new in added]
