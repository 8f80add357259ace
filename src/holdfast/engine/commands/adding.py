"""Adding one job to a batch, with all that may stand in its way: a known id, its parent, its unique key."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...core import commands as c
from ...core import family, rules, unique
from ...core.errors import BadInput, LeaseLost, NotFound, Refused
from ...core.ids import SLOTS, IdRange, moved
from ...core.job import Body, Job, size_of
from ...core.unique import Unique
from ..batch.batch import Batch

CHILD_DOMAIN = "its parent's, or absent: a child lives in its parent's shard, and a job in its domain's"


def held(batch: Batch, hold: c.Hold, verb: str) -> Job:
    """The job of a holder whose claim stands."""
    jobs, job_id = batch.jobs, hold.job_id
    job = jobs[job_id] if job_id in jobs else batch.find(job_id)
    if job is not None and job.owner and (job.owner, job.claim) == (hold.owner, hold.claim):  # noqa: SIM102 - shorter
        if hold.tenant in (None, job.tenant):
            return job
    if job is not None and hold.tenant not in (None, job.tenant):
        # To another tenant it is not there, live or archived.
        job = None
    if hold.claim is None and (job is None or batch.is_archivable(job)):
        # Also where it has ended in this very transaction.
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
    """Add jobs; their ids in order."""
    if batch.forgotten and (command.ids or any(new.id for new in command.jobs)):
        # An id of an archived job that this batch has deleted can be used again once that is written.
        batch.flush()
    if command.ids:
        return _add_by_ids(batch, command)
    jobs, hold = command.jobs, command.hold
    if hold is not None and hold.claim is not None:
        # First: a holder who is late hears that, not that its job is unknown.
        held(batch, hold, "add a child by")
    for new in jobs:
        if new.strict and new.unique is not None:
            return _add_named(batch, command.every(), hold)
    if command.more and not is_free(jobs[-1]):
        return [add_one(batch, new, hold) for new in command.every()]
    ids = []
    for new in jobs:
        ids.append(_bear(batch, new) if is_free(new) else add_one(batch, new, hold))
    return ids + _bear_more(batch, command.more) if command.more else ids


def _add_by_ids(batch: Batch, command: c.Add) -> list[int]:
    """Add jobs under reserved ids; a job whose id exists was added by the same command before.

    At first ids are believed to be new: one that is not is a `Conflict`, and then all are looked up.
    """
    ids, now_ms = command.ids, batch.now_ms
    if batch.trusts and command.hold is None and all(is_free(new) for new in command.jobs):
        for new, job_id in zip(command.jobs, ids, strict=False):
            batch.new_jobs.add(new, job_id=job_id, now_ms=now_ms)
        if command.more:
            batch.new_jobs.add_more(list(zip(ids[len(command.jobs) :], command.more, strict=True)))
        return list(ids)
    known = _tenants_of(batch, ids)
    jobs = list(command.every())
    for new in jobs:
        if known.get(new.id, new.tenant) != new.tenant:
            raise BadInput("id", new.id, needed="one that ReserveIds has replied")
    if len(known) < len(ids) and command.hold is not None and command.hold.claim is not None:
        held(batch, command.hold, "add a child by")
    if any(new.strict and new.unique is not None for new in jobs):
        return _add_named(batch, jobs, command.hold)
    return [new.id if new.id in known else add_one(batch, new, command.hold) for new in jobs]


def _tenants_of(batch: Batch, ids: Sequence[int]) -> dict[int, str]:
    """Whose jobs these are, of those that exist, live or archived."""
    batch.load(ids)
    live = {id: job.tenant for id in ids if (job := batch.find(id)) is not None}
    archived = batch.txn.archived([id for id in ids if id not in live])
    return live | {id: job.tenant for id, job in archived.items()}


def reserve_ids(batch: Batch, command: c.ReserveIds) -> list[IdRange]:
    """Make ids that nobody else has; see `ReserveIds`."""
    ranges: list[IdRange] = []
    first, count = -1, 0
    for made in batch.ids.make_many(command.count):
        job_id = moved(made, 0)
        if job_id == first + count * SLOTS:
            count += 1
            continue
        if count:
            ranges.append(IdRange(first=first, count=count))
        first, count = job_id, 1
    return [*ranges, IdRange(first=first, count=count)]


def _add_named(batch: Batch, jobs: Iterable[c.NewJob], hold: c.Hold | None) -> list[int]:
    """Add jobs of the port, of which a unique one is any that has its name, of the same command too."""
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
    """Into the working set, where those that follow find it."""
    return batch.add(new) if is_free(new) else add_one(batch, new, hold)


def is_free(new: c.NewJob) -> bool:
    """Whether nothing can stand in a job's way: nobody but the reply will know its id.

    One with a follower is like no other, because the record has the id of the follower.
    """
    return new.unique is None and new.domain is None and new.then is None and not new.id and not new.parent_id


def _bear(batch: Batch, new: c.NewJob) -> int:
    job_id = batch.ids.make(slot=None)
    batch.new_jobs.add(new, job_id=job_id, now_ms=batch.now_ms)
    return job_id


def _bear_more(batch: Batch, bodies: Sequence[Body]) -> list[int]:
    """Jobs that are as the one that was just born."""
    ids = batch.ids.make_many(len(bodies))
    batch.new_jobs.add_more(list(zip(ids, bodies, strict=True)))
    return ids


def add_one(
    batch: Batch, new: c.NewJob, hold: c.Hold | None = None, *, follows: bool = False, known: int = 0
) -> int:
    """Add a job, or find the one that is it already, perhaps `known`; its id.

    What `follows` a job is never refused: that would refuse the finish, each time anew, until all that
    was done is thrown away. Where its unique key is held it is that job, whoever's child that is.
    """
    if is_free(new):
        return _bear(batch, new)
    if new.id and (known_job := batch.find(new.id) or batch.archived(new.id)):
        if known_job.tenant != new.tenant:
            raise BadInput("id", new.id, needed="an id that no other job has")
        return new.id
    parent = None
    if new.parent_id:
        parent = batch.find(new.parent_id)
        if parent is None or parent.tenant != new.tenant:
            raise NotFound("parent job", new.parent_id)
        _check_domain(batch, new, parent)
        family.check_birth(parent, hold, batch.find(hold.job_id) if hold else None)
        new = replace(new, mock=parent.mock)
    key = unique.key_of(new)
    holder = batch.holders.of(key) if key else None
    if holder is not None:
        return add_to(batch, new, holder, follows=follows)
    job = None
    if key and new.strict:
        job = batch.find(known) if known else _namesake(batch, new)
    return batch.add(new, parent) if job is None else _hit(batch, new, job, follows)


def add_to(batch: Batch, new: c.NewJob, holder: Unique, *, follows: bool = False) -> int:
    """Add a job whose unique key is held: what that does to the holder; its id."""
    job = None if holder.until_ms else batch.find(holder.job_id)
    return holder.job_id if job is None else _hit(batch, new, job, follows)


def add_to_namesake(batch: Batch, new: c.NewJob, job: Job) -> int:
    """Add a unique job of the port where another of its name is: what that does to the other; its id."""
    return _hit(batch, new, job, follows=False)


def _check_domain(batch: Batch, new: c.NewJob, parent: Job) -> None:
    """A child lives with its parent, and a job with its domain: on several shards both must be one place."""
    if not batch.shard_info.is_only_store and new.domain is not None and new.domain != parent.domain:
        raise BadInput("domain", new.domain, needed=CHILD_DOMAIN)


def _namesake(batch: Batch, new: c.NewJob) -> Job | None:
    """The documents' unique jobs look for any job of that name, whether or not it was made as unique."""
    found = batch.txn.named(new.tenant, new.task, mock=new.mock)
    job = batch.find(found) if found else None
    return job if job is not None and job.task == new.task else None


def _hit(batch: Batch, new: c.NewJob, job: Job, follows: bool) -> int:
    if job.parent_id and job.parent_id != new.parent_id and not follows:
        found = f"the holder of its unique key, and a child of {job.parent_id}"
        raise Refused("add again", job.id, found=found, needed="a child of the same parent")
    old = batch.body_of(job.id) if new.on_conflict == "merge" else "{}"
    try:
        after, data = unique.hit(job, old, new, now_ms=batch.now_ms)
    except BadInput:
        if not follows:
            raise
        # Data that is no JSON cannot be merged with.
        after, data = unique.hit(job, old, replace(new, on_conflict="replace"), now_ms=batch.now_ms)
    if data is not None:
        # Other work: what its steps found was of the old data.
        after = replace(after, steps=0)
    put(batch, job, after, data)
    return job.id


def put(batch: Batch, before: Job, after: Job, data: Body | None) -> None:
    """Let a job become `after`, with new data if there is any."""
    if data is not None:
        batch.data[after.id] = data
        after = replace(after, size=size_of(data))
    if after is not before:
        batch.put(after)
