"""Steps, signals and logs of jobs: rows that are deleted with the job, or when it needs them no more."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from ...core import bounds, notes
from ...core.commands import Claimed, NewStep
from ...core.errors import NotFound
from ...core.job import Job
from ...core.kinds import JOB_LOG, SIGNALS, STEPS, name_of
from ...core.notes import JobLog, StepResult
from ...store.contract import ReadTxn
from .working_set import WorkingSet

# How rows are read: with the changes of a batch, or without.
ReadsRows = Callable[[str, Collection[str]], dict[str, bytes]]
_encode = msgspec.json.Encoder().encode
_read_step = msgspec.json.Decoder(StepResult).decode
_read_log = msgspec.json.Decoder(JobLog).decode


def add_steps(batch: WorkingSet, job: Job, steps: Iterable[NewStep]) -> Job:
    """Add the entries of a run; return the job with them."""
    for new in steps:
        entry = StepResult(kind=new.kind, name=new.name, result=new.result, took_ms=new.took_ms)
        job = put_step(batch, job, entry)
    return job


def put_step(batch: WorkingSet, job: Job, entry: StepResult) -> Job:
    """Write an entry with its number, or a new one; return the job with it."""
    if not entry.number:
        entry = replace(entry, number=job.steps + 1, at=batch.now_ms, claim=job.claim)
    batch.rows[STEPS, step_name(job, entry.number)] = _encode(replace(entry, number=0))
    return notes.stepped(job, entry)


def find_step(batch: WorkingSet, job: Job, number: int) -> StepResult | None:
    """The entry with a number; None: there is none."""
    name = step_name(job, number)
    raw = batch.rows_of(STEPS, [name]).get(name) if number <= job.steps else None
    return None if raw is None else replace(_read_step(raw), number=number)


def add_signal(batch: WorkingSet, job: Job, name: str, data: str) -> Job:
    """Keep a signal for a job; return the job with it."""
    after, number = notes.mailed(job, name, len(data.encode()))
    batch.rows[SIGNALS, signal_name(job, name, number)] = data.encode()
    return after


def take_signal(batch: WorkingSet, job: Job, name: str) -> tuple[Job, str | None]:
    """Take the first signal of a name; None: there is none."""
    box = notes.mailbox(job, name)
    if box is None:
        return job, None
    key = signal_name(job, name, box.first)
    data = batch.rows_of(SIGNALS, [key]).get(key)
    if data is None:
        # The record that the holder has sent is out of date.
        raise NotFound(f"signal {name} of job", job.id)
    batch.rows[SIGNALS, key] = None
    return notes.unmailed(job, box, len(data)), data.decode()


def add_lines(batch: WorkingSet, job: Job, lines: Iterable[str]) -> Job:
    """Append lines to a job's log; return the job with the new number of lines."""
    name = str(job.id)
    raw = batch.rows_of(JOB_LOG, [name]).get(name) if job.log_lines else None
    after, log = notes.logged(job, _read_log(raw) if raw else JobLog(), lines, now_ms=batch.now_ms)
    batch.rows[JOB_LOG, name] = _encode(log)
    return after


def followed(batch: WorkingSet, before: Job, after: Job | None) -> None:
    """Delete the signals of a job that has ended, the steps of one that begins again, or all."""
    if after is None:
        forget(batch, before)
    elif after.steps < before.steps:
        _cut_steps(batch, before, after.steps)
    if before.signals and (after is None or not after.signals):
        for name in signals_of(before):
            batch.rows[SIGNALS, name] = None


def forget(batch: WorkingSet, old: Job) -> None:
    """Delete the steps and the log of a job that is deleted, live or from the archive."""
    _cut_steps(batch, old, 0)
    if old.log_lines:
        batch.rows[JOB_LOG, str(old.id)] = None


def few(jobs: Iterable[Job]) -> list[Job]:
    """The first of these jobs, as many as one transaction can delete with their steps; at least one."""
    found: list[Job] = []
    steps = 0
    for job in jobs:
        steps += job.steps
        if found and steps > bounds.STEPS_KEPT:
            break
        found.append(job)
    return found


def _cut_steps(batch: WorkingSet, job: Job, kept: int) -> None:
    for number in range(kept, job.steps):
        batch.rows[STEPS, step_name(job, number + 1)] = None


def step_name(job: Job, number: int) -> str:
    """The key of the row of a job's n-th entry."""
    return name_of(str(job.id), str(number))


def signal_name(job: Job, name: str, number: int) -> str:
    """The key of the row of a signal that waits for its job."""
    return name_of(str(job.id), name, str(number))


def signals_of(job: Job) -> Iterator[str]:
    """The keys of the rows of all signals that wait for a job."""
    for box in job.signals:
        for number in range(box.first, box.next):
            yield signal_name(job, box.name, number)


def steps(rows: ReadsRows, job: Job, *, after: int, limit: int) -> list[StepResult]:
    """The entries of a job with numbers above `after`, in order."""
    names = {step_name(job, number): number for number in range(after + 1, min(job.steps, after + limit) + 1)}
    found = rows(STEPS, list(names)) if names else {}
    return [replace(_read_step(found[name]), number=names[name]) for name in names if name in found]


def with_steps(rows: ReadsRows, claimed: Sequence[Claimed]) -> list[Claimed]:
    """Claimed jobs with the steps of those that have few, so that their runs need not ask for them."""
    names: dict[int, list[str]] = {}
    count = size = 0
    for job in [one.job for one in claimed if 0 < one.job.steps <= bounds.CLAIMED_STEPS]:
        count, size = count + job.steps, size + job.step_bytes
        if count <= bounds.CLAIM_STEPS and size <= bounds.CLAIM_STEPS_BYTES:
            names[job.id] = [step_name(job, number) for number in range(1, job.steps + 1)]
    found = rows(STEPS, [name for some in names.values() for name in some]) if names else {}

    def steps_of(job: Job) -> tuple[StepResult, ...]:
        return tuple(steps(lambda *_: found, job, after=0, limit=job.steps))

    return [replace(one, steps=steps_of(one.job)) if one.job.id in names else one for one in claimed]


def log(txn: ReadTxn, job: Job) -> JobLog:
    """The log of a job, live or archived."""
    name = str(job.id)
    raw = txn.rows(JOB_LOG, [name]).get(name) if job.log_lines else None
    return _read_log(raw) if raw else JobLog()
