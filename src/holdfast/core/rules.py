"""The life of a job: which state may follow which, and what else must change.

Each function takes a job and the facts of the moment and returns the job as it should become; none
reads a clock, does I/O or knows that stores exist. What follows for others (a parent, a domain, the
counts) is derived from the change in `family` and `limits`, not written into each rule.

    add ──▶ SCHEDULED ──due──▶ READY ──claim──▶ RUNNING ──finish──▶ DONE (FINISHED)
                 ▲              │ ▲ ▲              │ │ │
                 │         held │ │ │ allowed      │ │ └─ fail, give up ──▶ DONE (FAILED)
                 │              ▼ │ └── release, ──┤ │
                 │             HELD     lapse      │ └─ finish with children ──▶ PAUSED
                 └── retry, error, repeat ─────────┘          (resumed to READY by the last child)

    cancel: from any waiting place ──▶ DONE (CANCELLED)        requeue: from anywhere ──▶ READY

A claim ends when the job is answered, handed out again, requeued or cancelled, not when the clock
passes `lease_until`: `lapse` leaves `owner` and `claim` as they are, so that until somebody else has
the job its holder may still answer, and `extend` takes it back. Versions are the store's affair.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from . import rank
from .bounds import MAX_TIME_MS, SUSPECT_CROWD
from .commands import Hold
from .counting import counted
from .errors import BadInput, LeaseLost, Refused
from .job import NO_CHILDREN, WAITING, Job, Outcome, Place, Progress, State, whole_second
from .outcome import noted
from .repeat import after_ms, next_run_ms, parse_repeat
from .starting import start_of

QUARANTINED = "quarantined"
EXPIRED = "expired"
DAMAGED = "damaged: its record cannot be read any more, and is kept as it was found"
DAMAGED_DATA = "damaged: its data cannot be read any more, and are kept as they were found"


# What a job that has ended is, whichever it was before; but for the moment, and steps, which go.
_OVER: dict[str, Any] = {
    "place": Place.DONE,
    "owner": 0,
    "lease_until": 0,
    "lapsed": False,
    "progress": None,
    "again_at": 0,
}
_FINISHED = _OVER | {"ended": State.FINISHED, "reason": "", "steps": 0}


def repeat_text(text: str, *, strict: bool) -> str:
    """A repeat as it is kept: in its one form, or, to the letter of the documents, as it was given."""
    if not text:
        return ""
    return text if strict else str(parse_repeat(text))


def queued(job: Job, *, run_at: int, now_ms: int, **changes: Any) -> Job:
    """The job waiting again, SCHEDULED or READY by its time, without an owner."""
    due = run_at <= now_ms
    priority = changes.get("priority", job.priority)
    return replace(
        job,
        place=Place.READY if due else Place.SCHEDULED,
        rank=rank.ready(priority, run_at) if due else run_at,
        run_at=run_at,
        **{"owner": 0, "lease_until": 0, "lapsed": False, "progress": None, "finished_at": 0}
        | {"ended": None, "reason": "", "again_at": 0, "cancel_requested": False}
        | changes,
    )


def due(job: Job) -> Job:
    """A scheduled job whose time has come. Its last holder, if it lapsed, may still answer."""
    return replace(job, place=Place.READY, rank=rank.ready(job.priority, job.run_at))


def hold_back(job: Job) -> Job:
    """A ready job that its domain does not let run now."""
    return replace(job, place=Place.HELD)


def let_go(job: Job) -> Job:
    """A held job that its domain lets run again."""
    return replace(job, place=Place.READY)


def claim(job: Job, *, owner: int, now_ms: int, lease_ms: int | None, start: bool = True) -> Job:
    """Hand a ready job to an owner. Without a lease only where neither job nor caller names one.

    Unless it is to `start` now, its `timeout` does not run yet, and a lease that runs out is no loss. A job
    that may not be lost even once counts as started all the same: nobody could tell later whether it was.
    """
    if job.damaged is not None:
        return set_aside(job, now_ms=now_ms)
    if job.expires_at and now_ms >= job.expires_at:
        return _failed(job, now_ms=now_ms, reason=EXPIRED)
    try:
        until = _lease_end(job, started_at=now_ms if start else 0, now_ms=now_ms, lease_ms=lease_ms)
    except BadInput as error:  # a `retry_after` that leads past the end of time
        return _failed(job, now_ms=now_ms, reason=str(error))
    return replace(
        job,
        place=Place.RUNNING,
        rank=rank.lease(until),
        owner=owner,
        claim=job.claim + 1,
        lease_until=until,
        started_at=now_ms if start or job.max_losses == 1 else 0,
        lapsed=False,
        # This run has the data as it is now.
        again_at=0,
    )


def set_aside(job: Job, *, now_ms: int) -> Job:
    """Fail a job whose record, or else whose data, is damaged: nobody is given it."""
    return _failed(job, now_ms=now_ms, reason=DAMAGED_DATA if job.damaged is None else DAMAGED)


def check_hold(job: Job, hold: Hold, verb: str) -> None:
    """Refuse a holder whose claim has ended. At the port a mocked job is finished and retried without one."""
    if hold.claim is None and job.mock and verb in ("finish", "retry"):
        return
    if job.owner and job.owner == hold.owner and hold.claim in (None, job.claim):
        return
    found = f"{job.state}, claim {job.claim} of owner {job.owner}" if job.owner else str(job.state)
    needed = f"held by owner {hold.owner}" + (f" under claim {hold.claim}" if hold.claim is not None else "")
    raise LeaseLost(verb, job.id, found=found, needed=needed)


def finish(
    job: Job,
    *,
    now_ms: int,
    end: Outcome,
    ignore_repeat: bool = False,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Job:
    """A run that went well: wait for the children, run again if it repeats, or be done.

    `known` are fields of the job that became known with the end of its run: when it started, for one.
    """
    outstanding = job.wait_for_failed and job.children.failed
    if job.children is NO_CHILDREN and not (job.again_at or job.repeat or outstanding):
        # What most runs come to, in one step: the same as below.
        return replace(job, outcome=end, finished_at=now_ms, rank=now_ms, **known, **_FINISHED)
    job = noted(replace(job, **known), end)
    if job.children.pending or (outstanding and not job.strict):
        slot = {"again_at": job.again_at, "scheduled_at": job.scheduled_at or job.run_at}
        slot["losses"] = 0 if job.strict else job.losses
        run_at = job.started_at or now_ms
        run_at = whole_second(run_at) if job.strict else run_at
        return replace(queued(job, run_at=run_at, now_ms=now_ms, **slot), place=Place.PAUSED, rank=0)
    if (again := _once_more(job, now_ms=now_ms, ignore_repeat=ignore_repeat)) is not None:
        return again
    if outstanding:
        found = f"the parent of {counted(job.children.failed, 'FAILED child', 'FAILED children')}"
        needed = "without outstanding children: delete or cancel them"
        raise Refused("finish", job.id, found=found, needed=needed, because="outstanding")
    return _done(job, State.FINISHED, now_ms=now_ms, reason="")


def fail(job: Job, *, now_ms: int, end: Outcome) -> Job:
    """A run that failed and is not to be tried again. It does not end a native repeat."""
    return _give_up(noted(job, end), now_ms=now_ms, reason=end.error or "failed")


def retry(
    job: Job, *, now_ms: int, end: Outcome, run_at: int, counts: bool = True, ignore_repeat: bool = False
) -> Job:
    """A run that asks for another, at `run_at`, if it has one left.

    Attempts are counted here, not at the claim: a process that dies without a word is a loss, and
    losses have a limit of their own (`lapse`). `max_attempts` 0 is no limit. To the letter of the
    documents a repeat goes before `run_at`, and a retry forgives the losses.
    """
    job = replace(noted(job, end), attempts=job.attempts + (1 if counts else 0))
    if _stops(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    if job.strict and (again := _once_more(job, now_ms=now_ms, ignore_repeat=ignore_repeat)) is not None:
        return again
    if counts and 0 < job.max_attempts <= job.attempts:
        return _give_up(
            job,
            now_ms=now_ms,
            reason=f"gave up after {counted(job.attempts, 'attempt')}: {end.error or end.code}",
        )
    if job.expires_at and run_at >= job.expires_at:
        return _give_up(job, now_ms=now_ms, reason=EXPIRED)
    scheduled_at = 0 if job.strict else job.scheduled_at or job.run_at
    kept = {"scheduled_at": scheduled_at, "cancel_requested": job.cancel_requested}
    kept["losses"] = 0 if job.strict else job.losses
    if job.strict and run_at == now_ms:
        run_at = whole_second(now_ms)
    return queued(job, run_at=job.again_at or run_at, now_ms=now_ms, **kept)


def release(job: Job, *, now_ms: int, delay_ms: int = 0, **changes: Any) -> Job:
    """Give a job back as if it had not been handed out, but for the claim, which never goes back.

    One that was replaced meanwhile waits for the time that the replacement has.
    """
    if _stops(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    run_at = job.again_at or job.run_at
    if delay_ms:
        changes["scheduled_at"] = job.scheduled_at or job.run_at
        run_at = max(run_at, now_ms + delay_ms)
    return queued(job, run_at=run_at, now_ms=now_ms, cancel_requested=job.cancel_requested, **changes)


def lapse(job: Job, *, now_ms: int) -> Job:
    """A lease that ran out, or a process that died: run again, up to `max_losses` (0: no limit).

    What had not started is no loss. Either way it runs beside few others from now on: one of those that the
    process had may have ended it.
    """
    beside = max(job.crowd_limit // 2, 1) if job.crowd_limit else SUSPECT_CROWD
    job = replace(job, losses=job.losses + (1 if job.started_at else 0), crowd_limit=beside)
    if _stops(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    if job.started_at and 0 < job.max_losses <= job.losses:
        reason = f"{QUARANTINED}: {counted(job.losses, 'run')} ended without an answer"
        return _give_up(job, now_ms=now_ms, reason=reason)
    if job.expires_at and now_ms >= job.expires_at:
        return _give_up(job, now_ms=now_ms, reason=EXPIRED)
    kept = {"owner": job.owner, "again_at": job.again_at, "lapsed": bool(job.retry_after)}
    kept["cancel_requested"] = job.cancel_requested
    # With `retry_after` it is due from the end of the lease on, as the documents have it; else it
    # keeps its time, and so its turn.
    run_at = job.lease_until if job.retry_after and job.lease_until else job.run_at
    run_at = job.again_at or min(run_at, now_ms)
    return queued(job, run_at=run_at, now_ms=now_ms, scheduled_at=job.scheduled_at or job.run_at, **kept)


def lost(job: Job, *, now_ms: int, crowd: int) -> Job:
    """A job that was running, in a crowd of so many, in a process that died.

        crowd of 1       it was alone, so it ended the process, as far as can be told: a loss
        crowd of more    any of them may have: all run again in crowds of half the size, and none is charged
        crowd of 0       the process was ended on purpose, for another job's sake: run again

    So of a hundred jobs the one that ends processes is alone after seven crashes, and the others have run
    again seven times at most. A job that may not be lost even once has been lost in each case.
    """
    if crowd == 1 or job.max_losses == 1:
        # No process is left that could still answer.
        after = lapse(replace(job, started_at=job.started_at or now_ms), now_ms=now_ms)
        # Unless it repeats, and begins its next round.
        return replace(after, owner=0, crowd_limit=1 if after.losses else 0)
    # Rounded up, so that two executors have room for all of them.
    limit = (crowd + 1) // 2 if crowd else job.crowd_limit
    return release(job, now_ms=now_ms, crowd_limit=limit)


def extend(job: Job, *, now_ms: int, lease_ms: int, ran_ms: int | None = None) -> Job:
    """Move the end of the lease; a job whose lease expired, and that was not claimed again, is taken back."""
    losses = job.losses
    if job.place != Place.RUNNING and job.started_at:
        losses = max(job.losses - 1, 0)
    job = started(job, now_ms=now_ms, ran_ms=ran_ms)
    # A claim counts as the start of a job that may not be lost, though its handler may not have started.
    waits = job.max_losses == 1 and ran_ms is None
    if job.timeout_ms and job.started_at and now_ms >= job.started_at + job.timeout_ms and not waits:
        found = f"past its timeout of {job.timeout_ms} ms"
        raise LeaseLost("extend", job.id, found=found, needed="within it")
    until = _lease_end(job, started_at=job.started_at, now_ms=now_ms, lease_ms=lease_ms)
    until = max(until, job.lease_until) if waits else until
    return replace(
        job, place=Place.RUNNING, rank=rank.lease(until), lease_until=until, lapsed=False, losses=losses
    )


def started(job: Job, *, now_ms: int, ran_ms: int | None) -> Job:
    """The job with the start of its handler, of which the holder says how long ago it was.

    What is known already stays, unless it is too early: told again, the moment would come out a little
    different each time.
    """
    moment = start_of(job, now_ms=now_ms, ran_ms=ran_ms)
    return job if moment == job.started_at else replace(job, started_at=moment)


def report(job: Job, *, fraction: float, note: str) -> Job:
    """Write down how far a running job is."""
    return replace(job, progress=Progress(fraction=fraction, note=note.encode(errors="replace").decode()))


def cancel(job: Job, *, now_ms: int, force: bool = False) -> Job:
    """Take a job out of the queue. One that runs is asked to stop; with `force` its claim ends now.

    What was handed out with a `retry_after` counts as queued, as in the documents, to whose letter
    what is RUNNING or PAUSED stays as it is. So does what has already ended, but for FAILED, which
    this lays to rest.
    """
    if job.children.pending:
        pending = counted(job.children.pending, "unfinished child", "unfinished children")
        found = f"the parent of {pending}"
        raise Refused("cancel", job.id, found=found, needed="without them: cancel those first")
    if job.place == Place.DONE and job.ended != State.FAILED:
        return job
    if job.strict and job.state in (State.RUNNING, State.PAUSED) and not force:
        return job
    if job.state == State.RUNNING and not force:
        return replace(job, cancel_requested=True)
    return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")


def requeue(
    job: Job, *, now_ms: int, run_at: int = 0, task: str | None = None, forgive: int | None = None
) -> Job:
    """Put a job back in the queue from any state, its attempts and losses forgiven, or so many losses.

    The run that it is taken from is a loss too, before any is forgiven.
    """
    losses = 0 if forgive is None else max(job.losses + (job.place == Place.RUNNING) - forgive, 0)
    forgiven = {"attempts": 0, "losses": losses, "crowd_limit": 0, "task": task or job.task}
    return queued(job, run_at=run_at or now_ms, now_ms=now_ms, **forgiven)


def check_delete(job: Job) -> None:
    """Refuse to delete what runs or what its family waits for."""
    if job.state == State.RUNNING:
        raise Refused("delete", job.id, found="RUNNING", needed="in any other state: cancel it first")
    if job.place == Place.PAUSED or job.children.pending:
        raise Refused("delete", job.id, found=str(job.state), needed="without a family that waits for it")


def update(
    job: Job,
    *,
    now_ms: int,
    priority: int | None = None,
    run_at: int | None = None,
    repeat: str | None = None,
    task: str | None = None,
) -> Job:
    """Change what a job will do. Its state stays; where it waits it moves to its new position."""
    if run_at is None and repeat:
        run_at = _next_run(replace(job, repeat=repeat), now_ms=now_ms)
    job = replace(
        job,
        priority=job.priority if priority is None else priority,
        repeat=job.repeat if repeat is None else repeat_text(repeat, strict=job.strict),
        run_at=job.run_at if run_at is None else run_at,
        scheduled_at=job.scheduled_at if run_at is None else 0,
        task=task or job.task,
    )
    if job.place == Place.RUNNING and job.strict and job.retry_after and run_at is not None:
        # The documents have one time for both: when it is due, and when it is handed out again.
        return replace(job, lease_until=run_at, rank=rank.lease(run_at))
    if job.place not in WAITING:
        return job
    kept = {"owner": job.owner, "lapsed": job.lapsed, "again_at": job.again_at}
    return queued(job, run_at=job.run_at, now_ms=now_ms, **kept)


def expire(job: Job, *, now_ms: int) -> Job:
    """A waiting job whose `expires_at` has come."""
    return _failed(job, now_ms=now_ms, reason=EXPIRED)


def _stops(job: Job) -> bool:
    # As `cancel` itself: not while there are children, who would wait for their parent for ever.
    return job.cancel_requested and not job.children.pending


def _once_more(job: Job, *, now_ms: int, ignore_repeat: bool) -> Job | None:
    fresh = {"attempts": 0, "losses": 0, "crowd_limit": 0, "scheduled_at": 0, "steps": 0}
    if job.cancel_requested:
        return None
    if job.again_at:
        return queued(job, run_at=job.again_at, now_ms=now_ms, **fresh)
    if not job.repeat or ignore_repeat:
        return None
    try:
        run_at = _next_run(job, now_ms=now_ms)
    except BadInput as error:
        return _failed(job, now_ms=now_ms, reason=str(error))
    return queued(job, run_at=run_at, now_ms=now_ms, **fresh)


def _next_run(job: Job, *, now_ms: int) -> int:
    return next_run_ms(
        parse_repeat(job.repeat),
        scheduled_ms=job.scheduled_at or job.run_at,
        started_ms=job.started_at or now_ms,
        finished_ms=now_ms,
    )


def _give_up(job: Job, *, now_ms: int, reason: str) -> Job:
    if not job.strict and (again := _once_more(job, now_ms=now_ms, ignore_repeat=False)) is not None:
        return again
    return _failed(job, now_ms=now_ms, reason=reason)


def _failed(job: Job, *, now_ms: int, reason: str) -> Job:
    return _done(job, State.FAILED, now_ms=now_ms, reason=reason)


def _done(job: Job, ended: State, *, now_ms: int, reason: str) -> Job:
    return replace(
        job,
        rank=now_ms,
        finished_at=now_ms,
        ended=ended,
        reason=reason,
        **_OVER,
        # What FAILED may be requeued, and goes on where it was.
        steps=job.steps if ended == State.FAILED else 0,
    )


def _lease_end(job: Job, *, started_at: int, now_ms: int, lease_ms: int | None) -> int:
    if job.retry_after:
        after = job.retry_after
        until = now_ms + after if isinstance(after, int) else after_ms(after, now_ms)
    else:
        until = now_ms + lease_ms if lease_ms else 0
    if job.timeout_ms and started_at:
        until = min(until or MAX_TIME_MS, started_at + job.timeout_ms)
    return until
