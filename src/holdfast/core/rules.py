"""The life of a job: which state may follow which, and what else must change.

Each function takes a job and the current facts and returns the changed job; none reads a clock, does I/O or
knows that stores exist. Changes of a parent, a domain or the counts are derived from the changed job in
`family` and `limits`, not written into each rule.

    add ──▶ SCHEDULED ──due──▶ READY ──claim──▶ RUNNING ──finish──▶ DONE (FINISHED)
                 ▲              │ ▲ ▲              │ │ │
                 │         held │ │ │ allowed      │ │ └─ fail, give up ──▶ DONE (FAILED)
                 │              ▼ │ └── release, ──┤ │
                 │             HELD     lapse      │ └─ finish with children ──▶ PAUSED
                 └── retry, error, repeat, sleep ──┘          (resumed to READY by the last child,
                                                               or by a signal that it waits for)

    cancel: from any waiting place ──▶ DONE (CANCELLED)        requeue: from anywhere ──▶ READY

A claim ends when the job is answered, claimed again, requeued or cancelled, not when the clock passes
`lease_until`: `lapse` leaves `owner` and `claim` unchanged. So until another process claims the job, its
holder may still answer, and `extend` makes it RUNNING again. The engine sets versions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from . import rank
from .bounds import MAX_TIME_MS, SUSPECT_CROWD
from .commands import Hold
from .damage import DAMAGED
from .errors import BadInput, LeaseLost, Refused
from .job import (
    NO_CHILDREN,
    WAITING,
    Job,
    JobProgress,
    Outcome,
    Place,
    State,
    Wait,
    start_of,
    whole_second,
)
from .outcome import note_loss, noted
from .repeat import after_ms, next_run_ms, parse_repeat
from .units import counted

QUARANTINED = "quarantined"
EXPIRED = "expired"
DAMAGED_DATA = "damaged: its data cannot be read any more, and are kept as they were found"


# The fields of every job that has ended, except for the time and the steps.
_ENDED: dict[str, Any] = {
    "place": Place.DONE,
    "owner": 0,
    "lease_until": 0,
    "lapsed": False,
    "again_at": 0,
    "waits_for": None,
    "undoes": "",
}
_NO_STEPS: dict[str, Any] = {"steps": 0, "step_bytes": 0, "open_call": 0, "compensates": False}
# How long a lease outlasts the timeout of its run at most, for the answer.
MAX_ANSWERING_MS = 500
# A FAILED job may be requeued, and goes on with its steps, its signals and the jobs that it has called.
_OVER: dict[str, Any] = _ENDED | {"signals": (), "open_call": 0, "compensates": False}
_FINISHED = _OVER | {"ended": State.FINISHED, "reason": ""}
# What a job starts over with: after a repeat, or with data that replaced its own.
FRESH: dict[str, Any] = {"attempts": 0, "losses": 0, "crowd_limit": 0, "scheduled_at": 0} | _NO_STEPS


def repeat_text(text: str, *, strict: bool) -> str:
    """A repeat as it is stored: its canonical text, or with `strict` as it was given."""
    if not text:
        return ""
    return text if strict else str(parse_repeat(text))


def queued(job: Job, *, run_at: int, now_ms: int, **changes: Any) -> Job:
    """Return the job as waiting, SCHEDULED or READY by its time, without an owner."""
    due = run_at <= now_ms
    priority = changes.get("priority", job.priority)
    return replace(
        job,
        place=Place.READY if due else Place.SCHEDULED,
        rank=rank.ready(priority, run_at) if due else rank.scheduled(run_at, changes.get("waits_for")),
        run_at=run_at,
        **{"owner": 0, "lease_until": 0, "lapsed": False, "progress": None, "finished_at": 0}
        | {"ended": None, "reason": "", "again_at": 0, "cancel_requested": False, "waits_for": None}
        | {"undoes": ""}
        | changes,
    )


def promote(job: Job) -> Job:
    """Make a due SCHEDULED job READY. Its last holder, if its lease expired, may still answer."""
    return replace(job, place=Place.READY, rank=rank.ready(job.priority, job.run_at))


def make_held(job: Job) -> Job:
    """Make a READY job HELD: its domain does not allow it to run now."""
    return replace(job, place=Place.HELD)


def make_ready(job: Job) -> Job:
    """Make a HELD job READY: its domain allows it to run."""
    return replace(job, place=Place.READY)


def claim(job: Job, *, owner: int, now_ms: int, lease_ms: int | None, start: bool = True) -> Job:
    """Claim a READY job for an owner. It has no lease only if neither the job nor the caller gives one.

    With `start` False its `timeout` does not run yet, and an expired lease is not a loss. A job that may not
    be lost even once counts as started anyway, because later no process could tell whether it was.
    """
    if job.damaged is not None:
        return fail_damaged(job, now_ms=now_ms)
    if job.expires_at and now_ms >= job.expires_at:
        return expire(job, now_ms=now_ms)
    try:
        until = _lease_end(job, started_at=now_ms if start else 0, now_ms=now_ms, lease_ms=lease_ms)
    except BadInput as error:  # a `retry_after` that leads beyond MAX_TIME_MS
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
        # This run gets the current data.
        again_at=0,
    )


def fail_damaged(job: Job, *, now_ms: int) -> Job:
    """Fail a job whose record or data is damaged, instead of running it."""
    return _failed(job, now_ms=now_ms, reason=DAMAGED_DATA if job.damaged is None else DAMAGED)


def check_hold(job: Job, hold: Hold, verb: str) -> None:
    """Refuse a holder whose claim has ended. At the job-command port a mocked job needs no claim."""
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
    """End a run that succeeded: wait for the children, run again if it repeats, or be done.

    `known` are fields that became known at the end of the run, such as when it started.
    """
    outstanding = job.wait_for_failed and job.children.failed
    if job.children is NO_CHILDREN and not (job.again_at or job.repeat or outstanding):
        # The most common case in one step, with the same result as below.
        return replace(job, outcome=end, finished_at=now_ms, rank=now_ms, **known, **_FINISHED)
    job = noted(replace(job, **known), end)
    if job.children.pending or (outstanding and not job.strict):
        slot = {"again_at": job.again_at, "scheduled_at": job.scheduled_at or job.run_at}
        slot["losses"] = 0 if job.strict else job.losses
        run_at = job.started_at or now_ms
        run_at = whole_second(run_at) if job.strict else run_at
        return replace(queued(job, run_at=run_at, now_ms=now_ms, **slot), place=Place.PAUSED, rank=0)
    if (again := _run_again(job, now_ms=now_ms, ignore_repeat=ignore_repeat)) is not None:
        return again
    if outstanding:
        found = f"the parent of {counted(job.children.failed, 'FAILED child', 'FAILED children')}"
        needed = "without outstanding children: delete or cancel them"
        raise Refused("finish", job.id, found=found, needed=needed, because="outstanding")
    return _done(job, State.FINISHED, now_ms=now_ms, reason="")


def fail(job: Job, *, now_ms: int, end: Outcome) -> Job:
    """End a run that failed permanently. A repeating job still repeats, unless the port added it."""
    return _give_up(noted(job, end), now_ms=now_ms, reason=end.error or "failed")


def retry(
    job: Job, *, now_ms: int, end: Outcome, run_at: int, counts: bool = True, ignore_repeat: bool = False
) -> Job:
    """End a run after which the job runs again at `run_at`, if it has attempts left.

    Attempts are counted here, not at the claim: a process that dies without an answer is a loss, and losses
    have a limit of their own (`lapse`). `max_attempts` 0: no limit. By the documents a repeat takes
    precedence over `run_at`, and a retry resets the losses.
    """
    job = replace(noted(job, end), attempts=job.attempts + (1 if counts else 0))
    if _cancel_takes_effect(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    if job.strict and (again := _run_again(job, now_ms=now_ms, ignore_repeat=ignore_repeat)) is not None:
        return again
    if counts and 0 < job.max_attempts <= job.attempts:
        return _give_up(
            job,
            now_ms=now_ms,
            reason=f"gave up after {counted(job.attempts, 'attempt')}: {end.error or end.code}",
        )
    if job.expires_at and run_at >= job.expires_at:
        return fail_between_runs(job, now_ms=now_ms, reason=EXPIRED)
    scheduled_at = 0 if job.strict else job.scheduled_at or job.run_at
    kept = {"scheduled_at": scheduled_at, "cancel_requested": job.cancel_requested, "undoes": job.undoes}
    kept["losses"] = 0 if job.strict else job.losses
    if job.strict and run_at == now_ms:
        run_at = whole_second(now_ms)
    return queued(job, run_at=job.again_at or run_at, now_ms=now_ms, **kept)


def suspend(job: Job, *, now_ms: int, wait: Wait, until: int) -> Job:
    """End a run that goes on when what it waits for has come true: neither an attempt nor a loss.

    `until`: when the wait ends by itself; 0: it does not.
    """
    if _cancel_takes_effect(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    kept: dict[str, Any] = {"attempts": 0, "losses": 0, "crowd_limit": 0, "waits_for": wait}
    kept |= {"scheduled_at": job.scheduled_at or job.run_at, "cancel_requested": job.cancel_requested}
    after = queued(job, run_at=until or now_ms, now_ms=now_ms, **kept)
    return after if until else replace(after, place=Place.PAUSED, rank=0)


def cancelled_run(job: Job, *, now_ms: int) -> Job:
    """The job after a run that was asked to stop: it is over, or is queued to undo what it has done."""
    if not job.compensates:
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    return queued(job, run_at=now_ms, now_ms=now_ms, scheduled_at=job.scheduled_at, cancel_requested=True)


def woken(job: Job, *, now_ms: int) -> Job:
    """Queue a suspended job: what it waits for has come true."""
    return queued(
        job,
        run_at=now_ms,
        now_ms=now_ms,
        scheduled_at=job.scheduled_at,
        cancel_requested=job.cancel_requested,
    )


def restart(job: Job, *, now_ms: int) -> Job:
    """End a run after which the job begins again without its steps: now, or as new data were given to it."""
    if _cancel_takes_effect(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    scheduled_at = job.scheduled_at or job.run_at
    run_at = job.again_at or now_ms
    return queued(job, run_at=run_at, now_ms=now_ms, **FRESH | {"scheduled_at": scheduled_at})


def waits_for_signal(job: Job, name: str | None = None) -> bool:
    """Whether a job is suspended until it gets a signal, of this name."""
    wait = job.waits_for
    if wait is None or wait.kind != "signal" or job.place in (Place.RUNNING, Place.DONE):
        return False
    return name in (None, wait.name)


def release(job: Job, *, now_ms: int, delay_ms: int = 0, **changes: Any) -> Job:
    """Return a job to the queue as if it had not been claimed, except that `claim` never decreases.

    If it was replaced meanwhile, it waits for the time of the replacement.
    """
    if _cancel_takes_effect(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    run_at = job.again_at or job.run_at
    if delay_ms:
        changes["scheduled_at"] = job.scheduled_at or job.run_at
        run_at = max(run_at, now_ms + delay_ms)
    changes |= {"cancel_requested": job.cancel_requested, "undoes": job.undoes}
    return queued(job, run_at=run_at, now_ms=now_ms, **changes)


def lapse(job: Job, *, now_ms: int, error: str = "") -> Job:
    """The lease expired, or the process died: run again, up to `max_losses` (0: no limit).

    A job that had not started is not lost. In both cases it becomes a suspect, which runs beside few others:
    one of the jobs of the process may have killed it. A suspect that had not started did not: its start is
    committed before its handler gets it.
    """
    beside = job.crowd_limit or SUSPECT_CROWD
    if job.crowd_limit and job.started_at:
        beside = max(job.crowd_limit // 2, 1)
    job = replace(job, losses=job.losses + (1 if job.started_at else 0), crowd_limit=beside)
    if _cancel_takes_effect(job):
        return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")
    if job.undoes and job.started_at:
        return fail_between_runs(job, now_ms=now_ms, reason=job.undoes)
    if job.started_at and 0 < job.max_losses <= job.losses:
        reason = f"{QUARANTINED}: {counted(job.losses, 'run')} ended without an answer"
        reason += f": {error}" if error else ""
        return fail_between_runs(job, now_ms=now_ms, reason=reason)
    if job.expires_at and now_ms >= job.expires_at:
        return fail_between_runs(job, now_ms=now_ms, reason=EXPIRED)
    kept: dict[str, Any] = {"owner": job.owner, "again_at": job.again_at, "lapsed": bool(job.retry_after)}
    kept |= {"cancel_requested": job.cancel_requested, "undoes": job.undoes}
    # With `retry_after` it is due at the end of the lease, as in the documents; otherwise it keeps its time,
    # and so its position.
    run_at = job.lease_until if job.retry_after and job.lease_until else job.run_at
    run_at = job.again_at or min(run_at, now_ms)
    return queued(job, run_at=run_at, now_ms=now_ms, scheduled_at=job.scheduled_at or job.run_at, **kept)


def lost(job: Job, *, now_ms: int, crowd: int, error: str = "") -> Job:
    """A job that was running in a process that died, as one of `crowd` jobs; `error` says how, if known.

        crowd of 1       it ran alone, so it probably killed the process: a loss
        crowd of more    any of them may have: all run again in crowds of half the size, none counts a loss
        crowd of 0       the supervisor killed the process because of another job: run again

    So of a hundred jobs the one that kills processes runs alone after seven crashes, and the others have run
    again at most seven times. A job that may not be lost even once is lost in each case.
    """
    job = note_loss(job, now_ms=now_ms, error=error) if error else job
    if crowd == 1 or job.max_losses == 1:
        # The process is dead, so it cannot answer any more.
        after = lapse(replace(job, started_at=job.started_at or now_ms), now_ms=now_ms, error=error)
        # Unless it repeats and waits for its next run.
        return replace(after, owner=0, crowd_limit=1 if after.losses else 0)
    # Rounded up, so that two executors can take all of them.
    limit = (crowd + 1) // 2 if crowd else job.crowd_limit
    return release(job, now_ms=now_ms, crowd_limit=limit)


def extend(job: Job, *, now_ms: int, lease_ms: int, ran_ms: int | None = None) -> Job:
    """Renew the lease. A job whose lease expired, and that was not claimed again, becomes RUNNING again."""
    losses = job.losses
    if job.place != Place.RUNNING and job.started_at:
        losses = max(job.losses - 1, 0)
    job = started(job, now_ms=now_ms, ran_ms=ran_ms)
    # A job that may not be lost counts as started by its claim, even if its handler has not started.
    waits = job.max_losses == 1 and ran_ms is None
    if job.timeout_ms and job.started_at and now_ms >= _last_lease_end(job, job.started_at) and not waits:
        found = f"past its timeout of {job.timeout_ms} ms"
        raise LeaseLost("extend", job.id, found=found, needed="within it")
    until = _lease_end(job, started_at=job.started_at, now_ms=now_ms, lease_ms=lease_ms)
    until = max(until, job.lease_until) if waits else until
    return replace(
        job, place=Place.RUNNING, rank=rank.lease(until), lease_until=until, lapsed=False, losses=losses
    )


def started(job: Job, *, now_ms: int, ran_ms: int | None) -> Job:
    """Return the job with the start time of its handler; the holder reports how long ago that was.

    A recorded start stays, unless it is too early: each report would give a slightly different time.
    """
    moment = start_of(job, now_ms=now_ms, ran_ms=ran_ms)
    return job if moment == job.started_at else replace(job, started_at=moment)


def report(job: Job, *, fraction: float, note: str) -> Job:
    """Record the progress of a running job."""
    return replace(job, progress=JobProgress(fraction=fraction, note=note.encode(errors="replace").decode()))


def cancel(job: Job, *, now_ms: int, force: bool = False) -> Job:
    """Cancel a job. A running job is asked to stop; with `force` its claim ends now. Without it, one that has
    something to undo runs once more for that.

    A job claimed with a `retry_after` counts as queued, as in the documents. By these, a RUNNING or PAUSED
    job does not change. Nor does a job that has ended, except that FAILED becomes CANCELLED.
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
    if job.compensates and not force and job.place != Place.DONE:
        return queued(job, run_at=now_ms, now_ms=now_ms, scheduled_at=job.scheduled_at, cancel_requested=True)
    return _done(job, State.CANCELLED, now_ms=now_ms, reason="cancelled")


def requeue(
    job: Job, *, now_ms: int, run_at: int = 0, task: str | None = None, forgive: int | None = None
) -> Job:
    """Put a job back in the queue from any state, with its attempts and losses reset.

    `forgive`: only this many losses, of which the current run counts as one. An expiry that has passed by
    then no longer counts: otherwise the job would fail at once.
    """
    if job.expires_at and job.expires_at <= (run_at or now_ms):
        job = expiring(job, 0)
    losses = 0 if forgive is None else max(job.losses + (job.place == Place.RUNNING) - forgive, 0)
    forgiven = {"attempts": 0, "losses": losses, "crowd_limit": 0, "task": task or job.task}
    return queued(job, run_at=run_at or now_ms, now_ms=now_ms, **forgiven)


def check_not_running(job: Job) -> None:
    """Refuse to requeue a job that runs: its handler may go on beside the next run."""
    if job.place == Place.RUNNING:
        raise Refused("requeue", job.id, found="RUNNING", needed="in any other state: cancel it first")


def offered_verbs(job: Job) -> tuple[str, ...]:
    """What a person can do with a job as it is: what pages offer, and what they accept.

        waiting                edit, cancel, delete; if SCHEDULED also requeue, which runs it now,
                               but not if it waits for a signal
        RUNNING                cancel, which asks it to stop; force_cancel and requeue, which end its claim
        PAUSED                 cancel; if it waits for a signal also delete
        FAILED                 requeue, edit, cancel, delete
        FINISHED, CANCELLED    delete

    A job whose children have not ended is neither cancelled nor deleted, and one with steps to undo is not
    deleted.
    """
    if job.place == Place.DONE:
        return ("requeue", "edit", "cancel", "delete") if job.ended == State.FAILED else ("delete",)
    family = () if job.children.pending else ("cancel",) if job.compensates else ("cancel", "delete")
    if job.place in WAITING:
        runs_now = job.place == Place.SCHEDULED and not waits_for_signal(job)
        return (*(("requeue",) if runs_now else ()), "edit", *family)
    if job.place == Place.PAUSED:
        return () if job.strict else family[: 2 if waits_for_signal(job) else 1]
    # A job of the port does not stop when it is asked; one with a `retry_after` is cancelled at once.
    asks = job.state == State.RUNNING and not (job.strict or job.cancel_requested)
    return (*family[: 1 if asks else 0], *(("force_cancel",) if family else ()), "requeue")


def is_offered_for_many(job: Job, verb: str) -> bool:
    """Whether a verb may be done to a job as one of many: not what ends a claim."""
    return verb in offered_verbs(job) and not ends_claim(job, verb)


def check_offered(job: Job, verb: str) -> None:
    """Refuse a verb that the state of a job does not allow."""
    if verb not in offered_verbs(job):
        allowed = ", ".join(offered_verbs(job)) or "nothing, while its family has not ended"
        found = f"{job.state}, which allows {allowed}"
        raise Refused(verb.replace("_", " "), job.id, found=found, needed="in another state")


def ends_claim(job: Job, verb: str) -> bool:
    """Whether a verb takes a job away from the worker that runs it."""
    return job.place == Place.RUNNING and verb in ("requeue", "force_cancel")


WITHOUT_STEPS = "without them: cancel it first"


def check_delete(job: Job) -> None:
    """Refuse to delete a job that runs or that its family waits for."""
    if job.state == State.RUNNING:
        raise Refused("delete", job.id, found="RUNNING", needed="in any other state: cancel it first")
    if job.compensates and job.place != Place.DONE:
        raise Refused("delete", job.id, found="a function with steps to undo", needed=WITHOUT_STEPS)
    if (job.place == Place.PAUSED and not waits_for_signal(job)) or job.children.pending:
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
    """Change the data, priority, time or repeat of a job. A waiting job moves to its new position."""
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
        # The documents have one time for both: when it is due, and when it can be claimed again.
        return replace(job, lease_until=run_at, rank=rank.lease(run_at))
    if job.place not in WAITING:
        return job
    kept: dict[str, Any] = {"owner": job.owner, "lapsed": job.lapsed, "again_at": job.again_at}
    kept |= {"waits_for": job.waits_for, "undoes": job.undoes, "cancel_requested": job.cancel_requested}
    return queued(job, run_at=job.run_at, now_ms=now_ms, **kept)


def expiring(job: Job, expires_at: int) -> Job:
    """The job with another expiry, which no default of its task replaces."""
    return replace(job, expires_at=expires_at, given=tuple(dict.fromkeys((*job.given, "expires"))))


def expire(job: Job, *, now_ms: int) -> Job:
    """End a waiting job whose `expires_at` has passed."""
    if job.compensates:
        return fail_between_runs(job, now_ms=now_ms, reason=EXPIRED)
    return _failed(job, now_ms=now_ms, reason=EXPIRED)


def fail_between_runs(job: Job, *, now_ms: int, reason: str) -> Job:
    """Fail a job that no run fails. One that has something to undo runs once more for that."""
    if not job.compensates or job.undoes:
        return _give_up(job, now_ms=now_ms, reason=job.undoes or reason)
    job = expiring(job, 0) if job.expires_at else job
    kept = {"scheduled_at": job.scheduled_at, "cancel_requested": job.cancel_requested}
    return queued(job, run_at=now_ms, now_ms=now_ms, undoes=reason, **kept)


def _cancel_takes_effect(job: Job) -> bool:
    # As in `cancel`: not while it has children, of which one may have been requeued since.
    # One that has something to undo runs once more for that.
    return job.cancel_requested and not (job.children.pending or job.compensates)


def _run_again(job: Job, *, now_ms: int, ignore_repeat: bool) -> Job | None:
    if job.cancel_requested or job.undoes == EXPIRED:
        return None
    if job.again_at:
        return queued(job, run_at=job.again_at, now_ms=now_ms, **FRESH)
    if not job.repeat or ignore_repeat:
        return None
    try:
        run_at = _next_run(job, now_ms=now_ms)
    except BadInput as error:
        return _failed(job, now_ms=now_ms, reason=str(error))
    return queued(job, run_at=run_at, now_ms=now_ms, **FRESH)


def _next_run(job: Job, *, now_ms: int) -> int:
    return next_run_ms(
        parse_repeat(job.repeat),
        scheduled_ms=job.scheduled_at or job.run_at,
        started_ms=job.started_at or now_ms,
        finished_ms=now_ms,
    )


def _give_up(job: Job, *, now_ms: int, reason: str) -> Job:
    if not job.strict and (again := _run_again(job, now_ms=now_ms, ignore_repeat=False)) is not None:
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
        **(_ENDED if ended == State.FAILED else _OVER),
    )


def _lease_end(job: Job, *, started_at: int, now_ms: int, lease_ms: int | None) -> int:
    if job.retry_after:
        after = job.retry_after
        until = now_ms + after if isinstance(after, int) else after_ms(after, now_ms)
    else:
        until = now_ms + lease_ms if lease_ms else 0
    if job.timeout_ms and started_at:
        until = min(until or MAX_TIME_MS, _last_lease_end(job, started_at))
    return until


def answering_ms(job: Job) -> int:
    """How long the lease lasts after a run was given up at its limit: the answer must come in time.

    If the lease ended first, that would be a loss and no attempt. At the job-command port the lease ends at
    the limit, so there the run is given up before.
    """
    return min(job.timeout_ms // 10, MAX_ANSWERING_MS)


def _last_lease_end(job: Job, started_at: int) -> int:
    return started_at + job.timeout_ms + (0 if job.strict else answering_ms(job))
