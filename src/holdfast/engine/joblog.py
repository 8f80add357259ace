"""Log lines about jobs, one for each event, under the logger `holdfast.job`.

    event         level     written by                      when
    added         DEBUG     the process that adds it        it is committed
    started       DEBUG     the process that runs it        its handler is called
    finished      INFO      the same                        the handler returned
    retry         WARNING   the same, with the traceback    it raised, and the job has attempts left; INFO
                                                            where the handler asked and no attempt is spent
    failed        ERROR     the same, with the traceback    it raised, and the job has none left
    cancelled     INFO      the same                        it ended after the job had been cancelled
    lost          WARNING   the process that detects it     the holder's process died or ended the run, or
                                                            its lease expired
    quarantined   ERROR     the same                        it was lost too often
    expired       ERROR     the same                        its `expires` came before it could finish

Fields of each record: `event`, `job_id`, `task`, `attempt`, `tenant`, `waited_ms` (from when it was due until
it started), `duration_ms`, `exit_code` and `cpu_ms` (of a run that has ended; None: not known), `error` (one
line, "" if there is none) and `trace_id` (of its run, or of the span that added it; "" if there is none).
A run that exceeded its time limit has its stack instead of a traceback. Data and results are never logged.
"""

import logging
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..core import commands as c
from ..core.answering import answered
from ..core.job import Code, Job, Place, State
from ..core.outcome import EXIT_CODES
from ..core.rules import EXPIRED, QUARANTINED
from ..store.common.clock import system_clock
from ..store.contract import NewJobs

LOG = logging.getLogger("holdfast.job")
# The levels of events that every job has: callers check whether they are enabled before measuring anything.
ADDED, STARTED, FINISHED = logging.DEBUG, logging.DEBUG, logging.INFO
# The text of an error is cut to this length; its traceback is logged whole.
ERROR_CHARS = 200
EXPECTED_DICE = 0.5


def added(groups: Iterable[NewJobs]) -> None:
    """Jobs were added, also by schedules, or because another job has ended."""
    for group in groups:
        for job_id, _ in group.rows:
            _write(ADDED, "added", group.template, "added", job_id=job_id)


def started(job: Job, *, trace_id: str = "") -> None:
    """The handler of a job is about to be called."""
    fields: dict[str, Any] = {"waited_ms": _waited_ms(job, 0), "trace_id": trace_id}
    _write(STARTED, "started", job, "started, attempt %s", _attempt(job), **fields)


def event_of(job: Job, answer: c.Answer) -> str:
    """The event that a run ends with: finished, suspended, retry, failed or cancelled."""
    if answer.code in (Code.OK, Code.SUSPEND):
        return "finished" if answer.suspend is None else "suspended"
    after = answered(job, answer, now_ms=job.started_at or system_clock(), rng=lambda: EXPECTED_DICE)
    return _event(job, answer, after)


def ended(
    job: Job,
    answer: c.Answer,
    *,
    duration_ms: float | None,
    error: BaseException | str | None = None,
    trace_id: str = "",
) -> None:
    """A run of a job has ended, and is about to be answered.

    `error` is what its handler raised, or its stack at its time limit.
    """
    fields: dict[str, Any] = {
        "waited_ms": _waited_ms(job, duration_ms),
        "duration_ms": duration_ms,
        "exit_code": answer.exit_code or EXIT_CODES[answer.code],
        "cpu_ms": round(answer.cpu_ms, 1) or None,
        "trace_id": trace_id,
    }
    if answer.code is Code.OK:
        _write(FINISHED, "finished", job, "finished in %s", _length(duration_ms), **fields)
    if answer.suspend is not None:
        _write(FINISHED, "suspended", job, "%s", _waits(answer.suspend, duration_ms), **fields)
    if answer.code in (Code.OK, Code.SUSPEND) or not LOG.isEnabledFor(logging.ERROR):
        return
    # By the clock of the store, as the times of the record are, if the start of the run is known.
    now_ms = job.started_at + int(duration_ms or 0) if job.started_at else system_clock()
    after = answered(job, answer, now_ms=now_ms, rng=lambda: EXPECTED_DICE)
    text, lasted, attempt = _one_line(answer.error), _length(duration_ms), _attempt(job)
    fields["error"] = text
    if isinstance(error, str) or (error is not None and _has_trace(error, answer)):
        fields["exc_info"] = error
    event = _event(job, answer, after)
    if event == "cancelled":
        _write(logging.INFO, event, job, "was cancelled: its run ended after %s", lasted, **fields)
    elif event == "failed":
        line = "failed: attempt %s ended after %s: %s"
        _write(logging.ERROR, event, job, line, attempt, lasted, text, **fields)
    else:
        level = logging.WARNING if answer.counts else logging.INFO
        line = "runs again in about %s: attempt %s ended after %s: %s"
        wait = _length(max(after.run_at - now_ms, 0))
        _write(level, event, job, line, wait, attempt, lasted, text, **fields)


def _has_trace(error: BaseException, answer: c.Answer) -> bool:
    # Of a `Retry` only its cause; an error without a traceback was not raised by the user's code.
    return bool(error.__cause__ or (error.__traceback__ and answer.code is not Code.RETRY))


def raised_late(job: Job, error: BaseException, *, trace_id: str = "") -> None:
    """A handler that had answered its job by itself raised an error afterwards."""
    text = _one_line(f"{type(error).__name__}: {error}")
    fields: dict[str, Any] = {"error": text, "exc_info": error, "trace_id": trace_id}
    _write(logging.ERROR, "failed", job, "raised after it was answered: %s", text, **fields)


def claim_lost(job: Job, error: BaseException) -> None:
    """The holder of a job learned that its claim has ended: its answer will be refused."""
    text = _one_line(str(error))
    _write(
        logging.WARNING, "lost", job, "lost: its claim has ended, its answer is refused: %s", text, error=text
    )


def unreported(changes: list[tuple[Job, Job]], *, now_ms: int) -> None:
    """Jobs changed because they were lost or expired."""
    for before, after in changes:
        runs = before.place is Place.RUNNING and before.started_at
        since_ms = now_ms - before.started_at if runs else None
        fields: dict[str, Any] = {"duration_ms": since_ms, "error": after.reason}
        if after.ended is State.CANCELLED:
            _write(logging.INFO, "cancelled", before, "was cancelled, and its run was lost", **fields)
        elif after.place is not Place.DONE:
            fields["error"] = how = _how_lost(before, after)
            text = "lost after %s: %s; it runs again"
            _write(logging.WARNING, "lost", before, text, _length(since_ms), how, **fields)
        else:
            event = next((name for name in (QUARANTINED, EXPIRED) if after.reason.startswith(name)), "failed")
            _write(logging.ERROR, event, before, "failed: %s", after.reason, **fields)


def _how_lost(before: Job, after: Job) -> str:
    if after.errors != before.errors:
        return after.errors[-1].error
    # What has lapsed, or was in a process that died, is a suspect now, and has lost a run if one had started.
    is_same = (before.losses, before.crowd_limit) == (after.losses, after.crowd_limit)
    if is_same and (before.started_at or not after.crowd_limit):
        return "its worker ended the run and released it"
    return "its process died or its lease ran out"


def _waits(wait: c.Suspension, ran_ms: float | None) -> str:
    texts = {"sleep": "sleeps", "call": "waits for jobs", "restart": "begins again"}
    text = f"waits for the signal {wait.name!r}" if wait.kind == "signal" else texts[wait.kind]
    return f"{text} after {_length(ran_ms)}"


def _event(job: Job, answer: c.Answer, after: Job) -> str:
    if after.ended is State.CANCELLED:
        return "cancelled"
    return "failed" if _gives_up(job, answer, after) else "retry"


def _gives_up(job: Job, answer: c.Answer, after: Job) -> bool:
    """Whether the job ends with this run, or, if it repeats, its current repetition does."""
    if answer.code is Code.FAILED or after.place is Place.DONE:
        return True
    return answer.counts and after.attempts <= job.attempts


def _write(
    level: int,
    event: str,
    job: Job,
    text: str,
    *words: object,
    job_id: int = 0,
    waited_ms: int | None = None,
    duration_ms: float | None = None,
    exit_code: int | None = None,
    cpu_ms: float | None = None,
    error: str = "",
    exc_info: BaseException | str | None = None,
    trace_id: str = "",
) -> None:
    if not LOG.isEnabledFor(level):
        return
    fields = {
        "event": event,
        "job_id": job_id or job.id,
        "task": job.task,
        "attempt": job.attempts + 1,
        "tenant": job.tenant,
        "waited_ms": waited_ms,
        "duration_ms": duration_ms,
        "exit_code": exit_code,
        "cpu_ms": cpu_ms,
        "error": error,
        "trace_id": trace_id or job.trace_id,
    }
    whose = f" of tenant {job.tenant}" if job.tenant else ""
    # A fixed text with parameters, by which error collectors group similar lines.
    line = f"job %s (%s)%s {text}"
    try:
        _log(level, line, (job_id or job.id, job.task, whose, *words), fields, exc_info)
    except Exception:
        # A handler of the program, whose disk may be full: what is logged has happened all the same.
        with suppress(OSError, ValueError):
            traceback.print_exc()


def _log(
    level: int,
    line: str,
    words: tuple[object, ...],
    fields: dict[str, Any],
    trace: BaseException | str | None,
) -> None:
    if isinstance(trace, str):
        LOG.handle(LOG.makeRecord(LOG.name, level, __file__, 0, line, words, None, None, fields, trace))
    else:
        LOG.log(level, line, *words, extra=fields, exc_info=trace)


def _waited_ms(job: Job, duration_ms: float | None) -> int | None:
    """The time from when a job was due until this run started; None if it is not known."""
    if duration_ms is None:
        return None
    # The record of a job that was claimed before its start has no start time.
    since_ms = job.started_at or system_clock() - int(duration_ms)
    return max(since_ms - job.run_at, 0)


def _attempt(job: Job) -> str:
    return f"{job.attempts + 1}" + (f" of {job.max_attempts}" if job.max_attempts else "")


def _length(ms: float | None) -> str:
    if ms is None:
        return "an unknown time"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _one_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= ERROR_CHARS else line[: ERROR_CHARS - 1] + "…"
