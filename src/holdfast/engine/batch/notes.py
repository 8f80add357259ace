"""Steps and logs of jobs: rows that the holder of a job writes and that are deleted with the job."""

from collections.abc import Iterable

import msgspec

from ...core import notes
from ...core.job import Job
from ...core.kinds import JOB_LOG, STEPS, name_of
from ...core.notes import JobLog, StepResult
from ...store.contract import ReadTxn
from .working_set import WorkingSet

_encode = msgspec.json.Encoder().encode
_read_step = msgspec.json.Decoder(StepResult).decode
_read_log = msgspec.json.Decoder(JobLog).decode


def add_step(batch: WorkingSet, job: Job, *, name: str, result: str) -> Job:
    """Write the result of a step; return the job with the new number of steps."""
    if job.again_at:
        # The data was changed during this run: the next run does all steps again.
        return job
    before = step_name(job, job.steps)
    raw = batch.rows_of(STEPS, [before]).get(before)
    after, step = notes.stepped(job, _read_step(raw) if raw else None, name=name, result=result)
    batch.rows[STEPS, step_name(after, after.steps)] = _encode(step)
    return after


def add_lines(batch: WorkingSet, job: Job, lines: Iterable[str]) -> Job:
    """Append lines to a job's log; return the job with the new number of lines."""
    name = str(job.id)
    raw = batch.rows_of(JOB_LOG, [name]).get(name) if job.log_lines else None
    after, log = notes.logged(job, _read_log(raw) if raw else JobLog(), lines, now_ms=batch.now_ms)
    batch.rows[JOB_LOG, name] = _encode(log)
    return after


def followed(batch: WorkingSet, before: Job, after: Job | None) -> None:
    """Delete the steps of a job that has ended, and the log of one that is deleted."""
    for number in range(after.steps if after else 0, before.steps):
        batch.rows[STEPS, step_name(before, number + 1)] = None
    if after is None:
        forget(batch, before)


def forget(batch: WorkingSet, old: Job) -> None:
    """Delete the log of a job that is deleted from the archive."""
    if old.log_lines:
        batch.rows[JOB_LOG, str(old.id)] = None


def step_name(job: Job, number: int) -> str:
    """The key of the row of a job's n-th step."""
    return name_of(str(job.id), str(number))


def steps(txn: ReadTxn, job: Job) -> dict[str, str]:
    """The results of a job's steps as JSON texts, by name, in the order in which they were first done."""
    if not job.steps:
        return {}
    names = [step_name(job, number + 1) for number in range(job.steps)]
    found = txn.rows(STEPS, names)
    done = (_read_step(found[name]) for name in names if name in found)
    return {step.name: step.result for step in done}


def log(txn: ReadTxn, job: Job) -> JobLog:
    """The log of a job, live or archived."""
    name = str(job.id)
    raw = txn.rows(JOB_LOG, [name]).get(name) if job.log_lines else None
    return _read_log(raw) if raw else JobLog()
