"""How the answer of a run changes its job: calls the rule for its code."""

from collections.abc import Callable

from msgspec.structs import replace

from . import rules
from .commands import Answer
from .job import Code, Job, start_of
from .outcome import backoff_ms, outcome


def answered(job: Job, answer: Answer, *, now_ms: int, rng: Callable[[], float]) -> Job:
    """Return the job after an answer. `rng` returns a number in [0, 1), for the jitter of a backoff."""
    end = outcome(answer, now_ms)
    known = {
        "started_at": _started_at(job, answer, now_ms),
        "has_result": job.has_result or answer.result is not None,
    }
    if answer.code is Code.OK:
        return rules.finish(job, now_ms=now_ms, end=end, ignore_repeat=answer.ignore_repeat, known=known)
    job = replace(job, **known, compensates=answer.compensates)
    if answer.code is Code.FAILED:
        return rules.fail(job, now_ms=now_ms, end=end)
    delay_ms = answer.delay_ms
    if delay_ms is None:
        delay_ms = backoff_ms(job.backoff, attempts=job.attempts + 1, rng=rng())
    priority = job.priority if answer.priority is None else answer.priority
    return rules.retry(
        replace(job, task=answer.task or job.task, priority=priority),
        now_ms=now_ms,
        end=end,
        run_at=answer.run_at or now_ms + delay_ms,
        counts=answer.counts,
        ignore_repeat=answer.ignore_repeat,
    )


def with_outcome(job: Job, answer: Answer, *, now_ms: int) -> Job:
    """The job with the outcome of a run that goes on later."""
    return replace(job, started_at=_started_at(job, answer, now_ms), outcome=outcome(answer, now_ms))


def _started_at(job: Job, answer: Answer, now_ms: int) -> int:
    if answer.ran_ms is None:
        # A job whose start was never reported has started by now.
        return job.started_at or now_ms
    return start_of(job, now_ms=now_ms, ran_ms=answer.ran_ms) or now_ms
