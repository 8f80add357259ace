"""The table of commands: one short function for each, which calls the rules and changes the batch.

A function raises before it changes anything that cannot be undone; its error fails only that command. It
returns a value, or a `JobRef` for a job as it is at the end of the transaction.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core import family, rules
from ...core import handler as h
from ...core.answering import answered
from ...core.commands import RunSchedule, SetRetention, StopWorker, TakeSysid
from ...core.errors import LeaseLost, NotFound, StoreCorrupt
from ...core.job import VERB_OF, Body, Code, Job, Place, State, whole_second
from ...core.slots import slot_in
from ..batch import notes, task_defaults
from ..batch.batch import Batch
from ..queries import check_counts
from . import chores, governing, handlers, indexing, requests, schedules, suspending, tokens, workers
from .adding import add_all, add_one, check_held, put, reserve_ids
from .sysids import MarkRestored, mark_restored, take_sysid


class JobRef(int):
    """The id of a job as a reply; the caller gets the job as it is at the end of the transaction."""


def answer(batch: Batch, command: c.Answer) -> JobRef:
    """Apply the outcome of a run; see `Answer`."""
    code = command.code
    job = check_held(batch, command.hold, VERB_OF[code])
    if job.parent_id and code is not Code.FAILED:
        family.check_child_may_end(job, batch.find(job.parent_id), VERB_OF[code])
    if code is Code.SUSPEND:
        return _suspend(batch, command)
    if command.lines:
        job = notes.add_lines(batch, job, command.lines)
    after = answered(job, command, now_ms=batch.now_ms, rng=batch.rng)
    if after.children.kept and not after.open_call:
        goes = after.place == Place.DONE and after.ended != State.FAILED
        # With a finish or retry the parent has seen its ended children. After an error, as after the death of
        # its process, the next run needs them again.
        # All of them are archived, also those that were cancelled during this run, as on the port.
        if goes or code in (Code.OK, Code.RETRY):
            after = chores.sweep(batch, after, goes=goes or job.strict)
    if command.result is not None:
        batch.results[job.id] = command.result
    if command.data is None:
        batch.put(after)
    else:
        put(batch, job, after, command.data)
    if after.place is Place.PAUSED:
        chores.release(batch, after)
    elif job.then and code is Code.OK:
        _follow(batch, job, command.result)
    return JobRef(job.id)


def _suspend(batch: Batch, command: c.Answer) -> JobRef:
    """End a run that goes on later; it fails if that is impossible."""
    job = check_held(batch, command.hold, "suspend")
    try:
        if command.lines:
            job = notes.add_lines(batch, job, command.lines)
        after = suspending.suspended(batch, job, command)
    except suspending.IMPOSSIBLE as error:
        batch.drop()
        failed = replace(command, code=Code.FAILED, error=str(error), suspend=None, data=None)
        return answer(batch, failed)
    if after.children.kept and not after.open_call:
        after = chores.sweep(batch, after, goes=after.place is Place.DONE)
    # Data that replaced its own during this run stay.
    put(batch, job, after, None if job.again_at else command.data)
    if after.children.pending and after.place is not Place.DONE:
        chores.release(batch, after)
    return JobRef(job.id)


def _follow(batch: Batch, job: Job, result: Body | None) -> None:
    """Add the follow-up job in the job's slot; note its id, or that of the job that holds its unique key."""
    new = family.follower(job, result)
    new = new if new.id else replace(new, id=batch.ids.make(slot=slot_in(job.id)))
    then_id = add_one(batch, new, follows=True)
    after = batch.find(job.id)
    if after is not None:
        batch.put(replace(after, then_id=then_id, followed=True))


def follow_failures(batch: Batch) -> None:
    """Add the jobs that follow those that have become FAILED, in their slots."""
    for job_id in batch.failed:
        job = batch.find(job_id)
        # Not if the command was undone.
        if job is None or job.place is not Place.DONE or job.ended is not State.FAILED:
            continue
        try:
            data: Body | None = batch.body_of(job_id)
        except StoreCorrupt:
            data = None
        new = family.failure_follower(job, data)
        add_one(batch, replace(new, id=batch.ids.make(slot=slot_in(job_id))), follows=True)
    batch.failed.clear()


def release(batch: Batch, command: c.Release) -> JobRef:
    """Release a job; see `Release`."""
    job = check_held(batch, command.hold, "release")
    if command.lease_until not in (0, job.lease_until):
        raise LeaseLost("release", job.id, found="claimed by another call", needed="the claim of this call")
    if not command.lost:
        chores.put(batch, rules.release(job, now_ms=batch.now_ms, delay_ms=command.delay_ms))
    elif job.place == Place.RUNNING:
        chores.lose(batch, rules.lost(job, now_ms=batch.now_ms, crowd=command.crowd, error=command.error))
    return JobRef(job.id)


def extend(batch: Batch, command: c.Extend) -> JobRef:
    """Move the end of a lease; see `Extend`."""
    job = check_held(batch, command.hold, "extend")
    after = rules.extend(job, now_ms=batch.now_ms, lease_ms=command.lease_ms, ran_ms=command.ran_ms)
    lapsed = job.place != Place.RUNNING and job.domain is not None
    # Its permit may have gone to another job meanwhile.
    if lapsed and not batch.domains.take_room((job.tenant, job.domain or b"")):
        raise LeaseLost("extend", job.id, found="lapsed, and its domain full", needed="running")
    batch.put(after)
    return JobRef(job.id)


def report(batch: Batch, command: c.Report) -> JobRef:
    """Write progress; see `Report`."""
    job = check_held(batch, command.hold, "report progress of")
    batch.put(rules.report(job, fraction=command.fraction, note=command.note))
    return JobRef(job.id)


def step(batch: Batch, command: c.Step) -> JobRef:
    """Write a step's result; see `Step`."""
    job = check_held(batch, command.hold, "keep a step of")
    put(batch, job, suspending.step(batch, job, command), None)
    return JobRef(job.id)


def log(batch: Batch, command: c.WriteLog) -> JobRef:
    """Add to a job's log; see `WriteLog`."""
    job = check_held(batch, command.hold, "log for")
    put(batch, job, notes.add_lines(batch, job, command.lines), None)
    return JobRef(job.id)


def update(batch: Batch, command: c.Update) -> JobRef:
    """Change a job; see `Update`."""
    job = (
        check_held(batch, command.hold, "update")
        if command.hold
        else batch.get(command.job_id, command.tenant)
    )
    if command.run_at is not None:
        job = suspending.end_sleep(batch, job, command.run_at)
    after = rules.update(
        job,
        now_ms=batch.now_ms,
        priority=command.priority,
        run_at=command.run_at,
        repeat=command.repeat,
        task=command.task,
    )
    put(batch, job, after, command.data)
    return JobRef(job.id)


def cancel(batch: Batch, command: c.Cancel) -> JobRef | Job:
    """Cancel a job; see `Cancel`. A job that has ended is not changed."""
    job = batch.find(command.job_id)
    if job is None and (old := batch.archived(command.job_id)) is not None:
        check_tenant(old, command.tenant)
        return old
    if job is None or not batch.is_archivable(job):
        job = batch.get(command.job_id, command.tenant)
    check_tenant(job, command.tenant)
    after = rules.cancel(job, now_ms=batch.now_ms, force=command.force)
    if after is not job:
        chores.put(batch, after)
    return JobRef(job.id)


def requeue(batch: Batch, command: c.Requeue) -> JobRef:
    """Requeue a job; see `Requeue`."""
    job = batch.get(command.job_id, command.tenant)
    if command.unless_running:
        rules.check_not_running(job)
    if command.from_step:
        job = suspending.cut_from(batch, job, command.from_step)
    else:
        job = suspending.end_sleep(batch, job, command.run_at or batch.now_ms)
    after = rules.requeue(
        job, now_ms=batch.now_ms, run_at=command.run_at, task=command.task, forgive=command.forgive
    )
    batch.put(after)
    return JobRef(job.id)


def requeue_all(batch: Batch, command: c.RequeueAll) -> None:
    """Requeue several jobs; see `RequeueAll`."""
    batch.load(command.job_ids)
    for job_id in command.job_ids:
        job = batch.find(job_id)
        if job is None or job.tenant != command.tenant or batch.is_archivable(job):
            continue
        run_at = whole_second(job.created_at)
        batch.put(
            rules.requeue(job, now_ms=batch.now_ms, run_at=run_at, task=command.task, forgive=command.forgive)
        )


def delete(batch: Batch, command: c.Delete) -> None:
    """Delete a job, live or archived; see `Delete`."""
    job = batch.find(command.job_id)
    if job is None:
        old = batch.archived(command.job_id)
        if old is None:
            raise NotFound("job", command.job_id)
        check_tenant(old, command.tenant)
        batch.forget([old])
        if old.unique is not None:
            # Not if retention removes it: a key may be held for longer than the archive keeps its job.
            batch.holders.followed(old, None)
        return
    check_tenant(job, command.tenant)
    rules.check_delete(job)
    batch.remove(chores.sweep(batch, job, goes=True))


def check_tenant(job: Job, tenant: str | None) -> None:
    """Raise `NotFound` for a job of another tenant, if the command names one."""
    if tenant not in (None, job.tenant):
        raise NotFound("job", job.id)


def purge(batch: Batch, command: c.Purge) -> int:
    """Delete old archived jobs; see `Purge`."""
    old = batch.txn.ended(command.before_ms, tenant=command.tenant, limit=command.limit)
    return batch.forget(notes.few(old))


class RepairCounts(c.Command, frozen=True, kw_only=True):
    """Set the counts to the numbers of jobs in the store, except for tasks whose counts change meanwhile."""


def repair_counts(batch: Batch, _command: RepairCounts) -> None:
    """Add what the counts lack; see `RepairCounts`. What this batch changes is in neither of the two yet."""
    batch.counts.add_missing({key: found - kept for key, kept, found in check_counts(batch.txn)})


# None: claims, which the engine runs after all other commands of a batch.
VERBS: dict[type[c.Command], Callable[[Batch, Any], Any] | None] = {
    c.Claim: None,
    c.Upkeep: None,
    c.Add: add_all,
    c.ReserveIds: reserve_ids,
    TakeSysid: take_sysid,
    c.Answer: answer,
    c.Release: release,
    c.Extend: extend,
    c.Report: report,
    c.Step: step,
    c.WriteLog: log,
    c.Update: update,
    c.Cancel: cancel,
    c.SendSignal: suspending.send_signal,
    c.Requeue: requeue,
    c.RequeueAll: requeue_all,
    c.Delete: delete,
    c.Purge: purge,
    SetRetention: governing.set_retention,
    c.SetLimit: governing.set_limit,
    c.Pause: governing.pause,
    c.SetSchedule: schedules.set_schedule,
    c.DeleteSchedule: schedules.delete_schedule,
    c.PauseSchedule: schedules.pause_schedule,
    RunSchedule: schedules.run_schedule,
    c.Enlist: workers.enlist,
    c.Dismiss: workers.dismiss,
    StopWorker: workers.stop,
    c.CreateToken: tokens.create,
    c.RevokeToken: tokens.revoke,
    c.Publish: task_defaults.publish,
    h.SetHandler: handlers.set_handler,
    h.RollBackHandler: handlers.roll_back,
    h.DeleteHandler: handlers.delete_handler,
    c.StartProgress: indexing.start_progress,
    c.MoveProgress: indexing.move_progress,
    c.SetProgress: indexing.set_progress,
    c.Append: indexing.append,
    c.TrimLog: indexing.trim,
    # Submitted by `holdfast restored`, and by `holdfast doctor --repair`.
    MarkRestored: mark_restored,
    RepairCounts: repair_counts,
    # Submitted by servers on behalf of a client.
    requests.NoteRequest: requests.note_request,
    # Sent only between shards.
    handlers.MarkHandled: handlers.mark_handled,
}
