"""How runs end: the four codes, the backoff before another run, and the stored errors.

code     exit code   means
retry    1xx         not now: run again after the backoff
ok       2xx         done
failed   4xx         failed permanently: do not run again
error    5xx         an error occurred: run again after the backoff
"""

from functools import lru_cache

from msgspec.structs import replace

from .bounds import ERROR_BYTES, ERRORS_KEPT
from .commands import Answer
from .job import Backoff, Code, Job, Outcome

EXIT_CODES = {Code.RETRY: 100, Code.OK: 200, Code.FAILED: 400, Code.ERROR: 500, Code.SUSPEND: 100}


def code_of(exit_code: int) -> Code:
    """The code for a numeric exit code; any other number is an error."""
    return {1: Code.RETRY, 2: Code.OK, 4: Code.FAILED}.get(exit_code // 100, Code.ERROR)


def outcome(answer: Answer, now_ms: int) -> Outcome:
    """An `Outcome` with its texts cut to their limits. Of a traceback the end is kept."""
    code, exit_code = answer.code, answer.exit_code or EXIT_CODES[answer.code]
    if not answer.error and not answer.traceback and not answer.wall_ms:
        return _without_text(code, now_ms, exit_code, answer.hold.owner)
    return Outcome(
        code=code,
        at=now_ms,
        exit_code=exit_code,
        error=_start(answer.error),
        traceback=_end(answer.traceback),
        cpu_ms=answer.cpu_ms,
        wall_ms=answer.wall_ms,
        owner=answer.hold.owner,
    )


@lru_cache(maxsize=16)
def _without_text(code: Code, now_ms: int, exit_code: int, owner: int) -> Outcome:
    """Cached, for jobs that end together."""
    return Outcome(code=code, at=now_ms, exit_code=exit_code, owner=owner)


def noted(job: Job, end: Outcome) -> Job:
    """Return the job with the outcome of a run; it keeps the last ones that did not succeed."""
    if end.code == Code.OK:
        return replace(job, outcome=end)
    ran_ms = max(end.at - job.started_at, 0) if job.started_at else 0
    end = replace(end, ran_ms=ran_ms)
    return replace(job, outcome=end, errors=(*job.errors, end)[-ERRORS_KEPT:])


def note_loss(job: Job, *, now_ms: int, error: str) -> Job:
    """Return the job with an error for a run that has no outcome: its process died."""
    ran_ms = max(now_ms - job.started_at, 0) if job.started_at else 0
    code, exit_code = Code.ERROR, EXIT_CODES[Code.ERROR]
    end = Outcome(
        code=code, at=now_ms, exit_code=exit_code, error=_start(error), owner=job.owner, ran_ms=ran_ms
    )
    return replace(job, errors=(*job.errors, end)[-ERRORS_KEPT:])


def backoff_ms(backoff: Backoff, *, attempts: int, rng: float) -> int:
    """How long to wait after the n-th attempt: doubles up to a limit, with jitter by `rng` in [0, 1).

    The jitter keeps a thousand jobs that failed together from running again at the same time.
    """
    doublings = min(max(attempts - 1, 0), 60)
    wait = min(backoff.first_ms << doublings, backoff.most_ms)
    return max(int(wait * (1 + backoff.jitter * (2 * rng - 1))), 0)


def _start(text: str) -> str:
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= ERROR_BYTES else raw[: ERROR_BYTES - 3].decode(errors="ignore") + "…"


def _end(text: str) -> str:
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= ERROR_BYTES else "…" + raw[3 - ERROR_BYTES :].decode(errors="ignore")
