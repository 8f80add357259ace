"""Parents and children, at any depth; each parent counts its own.

A child added by a running parent waits PAUSED until the parent finishes its run. That pauses the parent and
queues the children. When no child is pending any more, the parent is resumed, reads how they ended, and may
add more children. A running child may add children of its own, which it waits for in the same way, and
siblings on behalf of its parent. On the port there is one level, as in its document. A parent that is added
in one command with its children waits for them from the beginning.

Every change of a child goes through `moved`, which updates the counts of the parent and resumes it. Each
added and each ended child changes the parent and its version. So two last children that finish at the same
time cannot both conclude that the other one still runs.

The follow-up job of a job that succeeded (`then`) or FAILED (`on_failure`), and what it gets.

arguments   into    the follow-up job gets
none        none    the result, as its data
some        none    its arguments alone
any         "x"     its arguments, and the result as the argument x
"""

import msgspec
from msgspec.structs import replace

from .bounds import DATA_BYTES
from .commands import Hold, NewJob
from .errors import LeaseLost, Refused
from .job import Body, Job, Place, State
from .rules import check_hold, queued, waits_for_signal, woken


def tally(child: Job | None) -> tuple[int, int, int]:
    """What a child contributes to the pending, failed and kept counts of its parent."""
    if child is None:
        return 0, 0, 0
    if child.place != Place.DONE:
        return 1, 0, 0
    return (0, 1, 0) if child.ended == State.FAILED else (0, 0, 1)


def check_new_child(parent: Job, hold: Hold | None, sibling: Job | None, *, strict: bool) -> None:
    """Refuse a child unless it is added by its running parent, or by a sibling while the parent is PAUSED."""
    if hold is not None and not hold.job_id:
        hold = replace(hold, job_id=parent.id)
    if hold is not None and hold.job_id == parent.id:
        if hold.claim is not None or parent.place != Place.PAUSED:
            check_hold(parent, hold, "add a child to")
    elif hold is not None:
        if sibling is None or sibling.parent_id != parent.id:
            needed = f"its parent or a child of {parent.id}"
            raise LeaseLost("add a child by", hold.job_id, found="a stranger", needed=needed)
        check_hold(sibling, hold, "add a sibling by")
    elif parent.place != Place.PAUSED:
        needed = "PAUSED, or RUNNING and held by the caller"
        raise Refused("add a child to", parent.id, found=str(parent.state), needed=needed)
    if parent.place == Place.PAUSED and waits_for_parent(parent):
        found = "a child that waits for its parent"
        raise Refused("add a child to", parent.id, found=found, needed="one that runs or has run")
    if parent.place == Place.DONE:
        raise Refused("add a child to", parent.id, found=str(parent.state), needed="RUNNING or PAUSED")
    if parent.cancel_requested:
        # A parent that waits for its children cannot be cancelled.
        raise Refused("add a child to", parent.id, found="asked to stop", needed="not cancelled")
    if parent.parent_id and (parent.strict or strict):
        needed = "a job without a parent"
        raise Refused(
            "add a child to", parent.id, found="itself a child", needed=needed, because="generation"
        )


def as_child(child: Job, parent: Job) -> Job:
    """A new child: PAUSED while its parent runs; mocked if its parent is."""
    child = replace(
        child,
        mock=parent.mock,
        repeat="" if parent.mock else child.repeat,
        parent_claim=parent.claim,
    )
    return child if parent.place == Place.PAUSED else replace(child, place=Place.PAUSED, rank=0)


def waiting(parent: Job) -> Job:
    """A new parent, which waits for the children that are added with it."""
    return replace(parent, place=Place.PAUSED, rank=0)


def released(child: Job, *, now_ms: int) -> Job:
    """Return a child as queued, now that its parent has finished its run."""
    return queued(child, run_at=child.run_at, now_ms=now_ms)


def check_child_may_end(child: Job, parent: Job | None, verb: str) -> None:
    """Refuse to finish or retry a child unless its parent is PAUSED, as the documents require."""
    if child.strict and child.parent_id and (parent is None or parent.place != Place.PAUSED):
        found = f"a child whose parent is {parent.state if parent else 'gone'}"
        raise Refused(verb, child.id, found=found, needed="a child of a PAUSED parent", because="parent")


def moved(parent: Job, before: Job | None, after: Job | None, *, now_ms: int) -> Job:
    """The parent after one of its children changed, was added (`before` None) or removed (`after` None)."""
    change = [new - old for new, old in zip(tally(after), tally(before), strict=True)]
    if not any(change):
        return parent
    pending, failed, kept = (
        max(count + diff, 0)
        for count, diff in zip(
            (parent.children.pending, parent.children.failed, parent.children.kept), change, strict=True
        )
    )
    parent = replace(parent, children=replace(parent.children, pending=pending, failed=failed, kept=kept))
    if parent.place != Place.PAUSED or pending or waits_for_signal(parent):
        return parent
    if parent.waits_for is not None:
        return woken(parent, now_ms=now_ms)
    if _waits_for_failed(parent, after):
        return parent
    return queued(parent, run_at=parent.run_at, now_ms=now_ms, again_at=parent.again_at)


def forget_children(parent: Job, count: int) -> Job:
    """The parent after `count` of its ended children were archived."""
    sums = parent.children
    return replace(
        parent, children=replace(sums, kept=max(sums.kept - count, 0), archived=sums.archived + count)
    )


def waits_for_parent(job: Job) -> bool:
    """Whether a PAUSED job waits for its parent to finish its run, and not for its children or a signal."""
    return bool(job.parent_id) and not (job.waits_for or job.children.pending or job.children.failed)


def _waits_for_failed(parent: Job, after: Job | None) -> bool:
    # By the documents a failed child does not resume its parent, but a sibling that finishes later does.
    if not parent.wait_for_failed:
        return False
    if parent.strict:
        return after is not None and after.ended == State.FAILED
    return parent.children.failed > 0


NO_ARGUMENTS = "{}"
# The argument of the job that follows a FAILED one.
FAILED_JOB = "failed"


def follower(job: Job, result: Body | None) -> NewJob:
    """The follow-up job of one that ended with this result, and its id if that has not been used yet."""
    new = msgspec.json.decode(job.then, type=NewJob)
    data: Body = new.data
    if job.into:
        named = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        named[job.into] = msgspec.Raw(_json(result))
        data = msgspec.json.encode(named).decode()
    elif data == NO_ARGUMENTS:
        data = "null" if result is None else result
    job_id = 0 if job.followed else job.then_id
    return replace(new, id=job_id, data=data, tenant=job.tenant, traceparent=job.traceparent)


def failure_follower(job: Job, data: Body | None) -> NewJob:
    """The job that follows a FAILED one: its argument `failed` tells of that, and has its data, or null."""
    new = msgspec.json.decode(job.on_failure, type=NewJob)
    named = msgspec.json.decode(new.data, type=dict[str, msgspec.Raw])
    told = {"id": job.id, "task": job.task, "reason": job.reason, "attempts": job.attempts}
    failed = {**told, "data": None if data is None else msgspec.Raw(_json(data))}
    named[FAILED_JOB] = msgspec.Raw(msgspec.json.encode(failed))
    text = msgspec.json.encode(named).decode()
    if len(text) > DATA_BYTES:
        return failure_follower(job, None)
    return replace(new, data=text, tenant=job.tenant, traceparent=job.traceparent)


def _json(result: Body | None) -> bytes:
    """A result as a value in a JSON object: bytes become base64 text."""
    return result.encode() if isinstance(result, str) else msgspec.json.encode(result)
