"""Functions that go on later: how a run is suspended, and what wakes its job. See docs/decisions/0025."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...core import commands as c
from ...core import rules
from ...core.answering import with_outcome
from ...core.bounds import DAY_MS, MAX_TIME_MS
from ...core.errors import BadInput, NotFound, Refused
from ...core.job import Job, Place, Wait
from ...core.kinds import SIGNAL_KEY, name_of
from ...core.notes import StepResult, entry_size, undone_steps
from ...core.rules import waits_for_signal
from ..batch import notes
from ..batch.batch import Batch
from . import chores
from .adding import add_one

# How many names of steps an error shows.
SHOWN = 10
# How many expired keys each new one deletes; more than one, so that they do not accumulate.
REMOVED_AT_ONCE = 10


def suspended(batch: Batch, job: Job, command: c.Answer) -> Job:
    """The job after a run that ended with `Code.SUSPEND`."""
    how = command.suspend
    assert how is not None
    if job.strict:
        raise Refused("suspend", job.id, found="a job of the job-command port", needed="one of a task")
    job = with_outcome(job, command, now_ms=batch.now_ms)
    if job.again_at or how.kind == "restart":
        # Its data was changed during this run: it begins again, and has no use for what this run waits for.
        return rules.restart(job, now_ms=batch.now_ms)
    if job.undoes:
        # Its function has changed, and has nothing to undo.
        return rules.fail_between_runs(job, now_ms=batch.now_ms, reason=job.undoes)
    job = replace(job, compensates=command.compensates)
    if job.cancel_requested and not job.children.pending:
        # It ends, or runs once more to undo what it has done: whatever it would have waited for.
        return rules.cancelled_run(notes.add_steps(batch, job, how.steps), now_ms=batch.now_ms)
    job = notes.add_steps(batch, job, how.steps)
    job, entry = _find_wait(batch, job, how) if how.step else _new_wait(batch, job, command, how)
    wait = Wait(kind=how.kind, step=entry.number, since=entry.at, name=entry.name, calls=len(entry.jobs))
    if entry.ended or (how.kind == "call" and not job.children.pending):
        return rules.woken(replace(job, waits_for=None), now_ms=batch.now_ms)
    return rules.suspend(job, now_ms=batch.now_ms, wait=wait, until=entry.until)


def _find_wait(batch: Batch, job: Job, how: c.Suspension) -> tuple[Job, StepResult]:
    """The entry of an earlier run that waited for the same."""
    entry = notes.find_step(batch, job, how.step)
    if entry is None or entry.kind != how.kind:
        found = f"step {how.step}, {entry.kind}" if entry else f"step {how.step}, of {job.steps}"
        raise Refused("suspend", job.id, found=found, needed=f"a step that is {how.kind}")
    if entry.kind == "signal" and not entry.ended:
        # One that came while nothing waited, because the job had been requeued.
        job, data = notes.take_signal(batch, job, entry.name)
        if data is not None:
            entry = replace(entry, result=data, ended=batch.now_ms)
            job = notes.put_step(batch, job, entry)
    return job, entry


def _new_wait(batch: Batch, job: Job, command: c.Answer, how: c.Suspension) -> tuple[Job, StepResult]:
    until = how.until or (0 if how.delay_ms is None else batch.now_ms + max(how.delay_ms, 1))
    data, children = None, list[int]()
    assert how.kind != "restart"
    if how.kind == "signal":
        job, data = notes.take_signal(batch, job, how.name)
    if how.kind == "call":
        batch.put(job)
        for new in how.jobs:
            child = replace(new, parent_id=job.id, tenant=job.tenant)
            children.append(add_one(batch, child, command.hold))
        job = batch.get(job.id)
    entry = StepResult(
        number=job.steps + 1,
        kind=how.kind,
        name=how.name,
        at=batch.now_ms,
        claim=job.claim,
        until=min(until, MAX_TIME_MS),
        jobs=tuple(children),
        result=data or "",
        ended=0 if data is None else batch.now_ms,
    )
    job = notes.put_step(batch, job, entry)
    return (replace(job, open_call=entry.number) if children else job), entry


def step(batch: Batch, job: Job, command: c.Step) -> Job:
    """The job after a step; see `Step`."""
    if job.again_at:
        # The data was changed during this run: the next run does all steps again.
        return job
    job = replace(job, compensates=job.compensates or command.compensates)
    if command.is_note:
        return notes.add_steps(batch, job, command.before)
    if not command.number:
        new = c.NewStep(kind=command.kind, name=command.name, result=command.result, took_ms=command.took_ms)
        last = notes.find_step(batch, job, job.steps) if command.before else None
        if last is not None and (last.name, last.result, last.claim) == (new.name, new.result, job.claim):
            # Sent again, because the reply was lost: errors are not recorded twice.
            return job
        return notes.add_steps(batch, job, (*command.before, new))
    entry = notes.find_step(batch, job, command.number)
    if entry is None or entry.kind != "call":
        found = entry.kind if entry else "none"
        raise Refused("keep a step of", job.id, found=found, needed=f"a call at step {command.number}")
    if entry.ended:
        return job
    job = notes.put_step(batch, job, replace(entry, result=command.result, ended=batch.now_ms))
    job = replace(job, open_call=0)
    # The called jobs have an earlier claim than those that this run calls next.
    return chores.sweep(batch, job, goes=False) if job.children.kept else job


def cut_from(batch: Batch, job: Job, wanted: str) -> Job:
    """The job without a step, by its name or number, and what came after it."""
    entries = notes.steps(batch.rows_of, job, after=0, limit=job.steps)
    first = next((one for one in entries if wanted in (one.name, str(one.number))), None)
    if first is None:
        names = ", ".join(dict.fromkeys([one.name for one in entries[-SHOWN:] if one.name]))
        found = f"the last are {names}" if names else f"it has {job.steps}"
        raise BadInput("from_step", wanted, needed=f"the name or number of a step of job {job.id}: {found}")
    _check_not_undone(entries, first)
    kept = first.number - 1
    size = sum(entry_size(one) for one in entries[:kept])
    return replace(job, steps=kept, step_bytes=size, open_call=job.open_call if job.open_call <= kept else 0)


def _check_not_undone(entries: Sequence[StepResult], first: StepResult) -> None:
    """Refuse to keep a step that was undone."""
    begun = next((at for at, one in enumerate(entries) if one.kind == "undo"), len(entries))
    undone = undone_steps(entries) or ()
    # What undoes a step has its name, perhaps with a number behind it; if not, it may be any step.
    numbers = {one.name: one.number for one in reversed(entries[:begun])}
    last = min((numbers.get(name.partition(" #")[0], 1) for name in undone), default=first.number)
    if first.number > last:
        step, names = entries[last - 1].name or last, ", ".join(map(repr, undone[:SHOWN]))
        needed = f"{step!r}, or a step before it: what was undone is {names}"
        raise BadInput("from_step", first.name or first.number, needed=needed)


def end_sleep(batch: Batch, job: Job, run_at: int) -> Job:
    """The job, whose sleep ends at this time instead of its own, if it sleeps."""
    if job.waits_for is None or job.waits_for.kind != "sleep" or job.place is not Place.SCHEDULED:
        return job
    entry = notes.find_step(batch, job, job.waits_for.step)
    assert entry is not None
    return notes.put_step(batch, job, replace(entry, until=max(run_at, 1)))


def send_signal(batch: Batch, command: c.SendSignal) -> None:
    """Send a signal; see `SendSignal`."""
    key = name_of(str(command.job_id), command.name, command.key) if command.key else ""
    if key and _was_sent(batch, key, command.tenant):
        return
    job = batch.get(command.job_id, command.tenant, verb="signal")
    if job.place is Place.DONE or job.strict:
        found = str(job.state) if job.place is Place.DONE else "a job of the job-command port"
        raise Refused("signal", job.id, found=found, needed="a job that has not ended")
    if job.cancel_requested or job.undoes:
        found = "being cancelled" if job.cancel_requested else f"failing: {job.undoes}"
        raise Refused("signal", job.id, found=found, needed="a job that goes on")
    if key:
        _note_key(batch, key, job.tenant)
    if waits_for_signal(job, command.name) and job.waits_for is not None:
        entry = notes.find_step(batch, job, job.waits_for.step)
        assert entry is not None
        after = notes.put_step(batch, job, replace(entry, result=command.data, ended=batch.now_ms))
        # A cancel before its next run must not pass over a signal: that run may have something to undo.
        batch.put(rules.woken(replace(after, compensates=True), now_ms=batch.now_ms))
    else:
        batch.put(notes.add_signal(batch, job, command.name, command.data))


def _was_sent(batch: Batch, key: str, tenant: str | None) -> bool:
    """Whether a signal with this key was sent to the job of this tenant."""
    raw = batch.rows_of(SIGNAL_KEY, [key]).get(key)
    if raw is None:
        return False
    until, _, whose = raw.decode().partition(" ")
    return int(until) > batch.now_ms and tenant in (None, whose)


def _note_key(batch: Batch, key: str, tenant: str) -> None:
    for old, _ in batch.txn.scan(SIGNAL_KEY, due_before=batch.now_ms, limit=REMOVED_AT_ONCE):
        batch.rows[SIGNAL_KEY, old] = None
    until = batch.now_ms + DAY_MS
    batch.rows[SIGNAL_KEY, key] = f"{until} {tenant}".encode()
    batch.dues[SIGNAL_KEY, key] = until


# What makes a suspension impossible, and would again: such as a domain that the called jobs cannot have.
IMPOSSIBLE = (BadInput, Refused, NotFound)
