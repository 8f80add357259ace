"""The step results and the log of a job.

They are stored outside the job's record, which only counts them; see docs/decisions/0005.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from . import bounds
from .errors import TooLarge
from .job import Job, Mailbox, Record, StepKind

CUT_MARK = "…"
# How the names of steps begin that undo others.
UNDO = "undo "


class StepResult(Record, frozen=True, kw_only=True):
    """One entry of what a job has done; see `NewStep` and `Suspension`. `number` counts from 1.

    A wait has `until` if it has an end, and `ended` once it is over: with the data of the signal, or with the
    results of the `jobs` that it has called. A sleep ends with its time; so does the wait for a signal that
    never came.
    """

    # In replies; not in the stored form, which has it in its key.
    number: int = 0
    kind: StepKind = "step"
    name: str = ""
    result: str = ""
    # When it was recorded, by which claim, and how long its function took.
    at: int = 0
    claim: int = 0
    took_ms: int = 0
    until: int = 0
    ended: int = 0
    jobs: tuple[int, ...] = ()


def entry_name(entry: StepResult) -> str:
    """An entry for people: "charge", "failed: charge", "undo charge", "signal approval", "sleep"."""
    kind = {"step": "", "undo": "", "error": "failed: "}.get(entry.kind, f"{entry.kind} ")
    return f"{kind}{entry.name}".rstrip()


def entry_error(entry: StepResult) -> str:
    """What an entry has kept of an exception: that of its step, or the one for which steps are undone."""
    if entry.kind not in ("error", "undo"):
        return ""
    kept = msgspec.json.decode(entry.result or "null")
    if not isinstance(kept, dict):
        return entry.result
    # Those of an ending that the function or an operator asked for have no class that tells more.
    is_asked = entry.kind == "undo" and kept.get("name") in ("Failed", "Retry")
    return f"{kept.get('text')}" if is_asked else f"{kept.get('name')}: {kept.get('text')}"


class LogLine(Record, frozen=True, kw_only=True):
    """A log line: when it was committed, and by which claim."""

    at: int
    claim: int = 0
    text: str = ""


class JobLog(Record, frozen=True, kw_only=True):
    """The last lines of a job's log; `cut` earlier ones were dropped."""

    lines: tuple[LogLine, ...] = ()
    cut: int = 0


# About how many bytes the id of a called job takes.
_ID_BYTES = 20


def stepped(job: Job, entry: StepResult) -> Job:
    """Return the job with an entry among its steps: a new one, or one that has its result now."""
    is_new = entry.number > job.steps
    total = job.step_bytes + (entry_size(entry) if is_new else len(entry.result.encode()))
    # What undoes steps may come after the last one.
    undoes = entry.kind == "undo" or entry.name.startswith(UNDO)
    more = 2 if undoes else 1
    if entry.number > bounds.STEPS_KEPT * more + (bounds.UNDO_TRIES if undoes else 0):
        raise TooLarge(f"steps of job {job.id}", entry.number, needed=f"at most {bounds.STEPS_KEPT:,}")
    if total > bounds.STEP_BYTES * more:
        needed = f"at most {bounds.STEP_BYTES:,} bytes in all"
        raise TooLarge(f"steps of job {job.id}", f"{total:,} bytes", needed=needed)
    return replace(job, steps=max(job.steps, entry.number), step_bytes=total)


def undone_steps(entries: Sequence[StepResult]) -> tuple[str, ...] | None:
    """The names of the steps that were undone; None: the job has not begun to undo its steps."""
    begun = next((at for at, one in enumerate(entries) if one.kind == "undo"), None)
    if begun is None:
        return None
    return tuple(one.name.removeprefix(UNDO) for one in entries[begun + 1 :] if one.kind == "step")


def entry_size(entry: StepResult) -> int:
    """About how many bytes an entry takes of those that a job may have."""
    return len(entry.name.encode()) + len(entry.result.encode()) + _ID_BYTES * len(entry.jobs)


def mailed(job: Job, name: str, size: int) -> tuple[Job, int]:
    """Return the job with one more signal that waits for it, and the number of that."""
    kept, total = sum(box.next - box.first for box in job.signals), sum(box.size for box in job.signals)
    if kept >= bounds.SIGNALS_KEPT:
        needed = f"at most {bounds.SIGNALS_KEPT:,} that wait for their job"
        raise TooLarge(f"signals of job {job.id}", kept + 1, needed=needed)
    if total + size > bounds.SIGNALS_BYTES:
        needed = f"at most {bounds.SIGNALS_BYTES:,} that wait for their job"
        raise TooLarge(f"signals of job {job.id}", f"{total + size:,} bytes", needed=needed)
    box = mailbox(job, name) or Mailbox(name=name, next=0)
    others = tuple(one for one in job.signals if one.name != name)
    if len(others) >= bounds.SIGNAL_NAMES:
        needed = f"at most {bounds.SIGNAL_NAMES} that wait for their job"
        raise TooLarge(f"names of signals of job {job.id}", len(others) + 1, needed=needed)
    box = replace(box, next=box.next + 1, size=box.size + size)
    return replace(job, signals=(*others, box)), box.next - 1


def unmailed(job: Job, box: Mailbox, size: int) -> Job:
    """Return the job without the first signal of a mailbox."""
    others = tuple(one for one in job.signals if one.name != box.name)
    left = replace(box, first=box.first + 1, size=max(box.size - size, 0))
    return replace(job, signals=(*others, left) if left.first < left.next else others)


def mailbox(job: Job, name: str) -> Mailbox | None:
    """The signals of a name that wait for a job."""
    return next((box for box in job.signals if box.name == name), None)


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
