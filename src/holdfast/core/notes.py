"""The step results and the log of a job.

They are stored outside the job's record, which only counts them; see docs/decisions/0005.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from . import bounds
from .errors import TooLarge
from .job import Job, Record

CUT_MARK = "…"


class StepResult(Record, frozen=True, kw_only=True):
    """The result of a step, as JSON text; `total` is the size of all steps up to this one."""

    name: str
    result: str
    total: int = 0


class LogLine(Record, frozen=True, kw_only=True):
    """A log line: when it was committed, and by which claim."""

    at: int
    claim: int = 0
    text: str = ""


class JobLog(Record, frozen=True, kw_only=True):
    """The last lines of a job's log; `cut` earlier ones were dropped."""

    lines: tuple[LogLine, ...] = ()
    cut: int = 0


def stepped(job: Job, last: StepResult | None, *, name: str, result: str) -> tuple[Job, StepResult]:
    """Return the job with one more step, and that step; `last` is the step before it."""
    total = (last.total if last else 0) + len(name.encode()) + len(result.encode())
    if job.steps >= bounds.STEPS_KEPT:
        raise TooLarge(f"steps of job {job.id}", job.steps + 1, needed=f"at most {bounds.STEPS_KEPT:,}")
    if total > bounds.STEP_BYTES:
        needed = f"at most {bounds.STEP_BYTES:,} bytes in all"
        raise TooLarge(f"steps of job {job.id}", f"{total:,} bytes", needed=needed)
    return replace(job, steps=job.steps + 1), StepResult(name=name, result=result, total=total)


def logged(job: Job, log: JobLog, lines: Iterable[str], *, now_ms: int) -> tuple[Job, JobLog]:
    """Return the job and its log with more lines; if the log is too long, the first lines are dropped."""
    new = [LogLine(at=now_ms, claim=job.claim, text=text) for text in lines]
    kept = [*log.lines, *new][-bounds.LOG_LINES :]
    size, first = 0, len(kept)
    while first and (size := size + len(kept[first - 1].text.encode()) + 1) <= bounds.LOG_BYTES:
        first -= 1
    kept = kept[first:]
    total = job.log_lines + len(new)
    return replace(job, log_lines=total), JobLog(lines=tuple(kept), cut=total - len(kept))


def lines_of(text: str) -> list[str]:
    """Split a text into log lines: encodable as UTF-8, and cut off with a mark if too long."""
    return [_cut(line.encode(errors="replace")) for line in text.splitlines() or [""]]


def _cut(raw: bytes) -> str:
    if len(raw) <= bounds.LOG_LINE_BYTES:
        return raw.decode()
    mark = len(CUT_MARK.encode())
    return raw[: bounds.LOG_LINE_BYTES - mark].decode(errors="ignore") + CUT_MARK
