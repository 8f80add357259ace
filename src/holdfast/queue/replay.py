"""What earlier runs of a job have recorded, compared with what this run does.

steps       by name: the errors that were caught, each raised again once, and then the result
waits       by position: the n-th sleep, signal or call of a run is the n-th of the runs before
versions    by name: whether the run that came first to that place knew the version
"""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ..core.commands import NewStep
from ..core.job import Job, StepKind, WaitKind
from ..core.notes import StepResult
from .answers import Failed, Retry, storable

# For how long older code gives back a job that newer code has begun.
GIVEN_BACK_FOR = "10s"
_SHOWN = {"sleep": "sleep", "signal": "wait_for", "call": "call"}


class StepFailed(Exception):
    """A step failed in an earlier run, with an exception whose class this process has not loaded."""

    __module__ = "holdfast"


class FunctionChanged(Failed):
    """A function waits for something else than it did in an earlier run; it can be put back."""

    # In tracebacks.
    __module__, __qualname__ = "holdfast", "Failed"


def changed(number: int, was: str, now: str) -> FunctionChanged:
    """The error of a wait that was another in an earlier run."""
    return FunctionChanged(
        f"step {number} was {was}, is now {now}: the function has changed since the job was "
        "suspended; put it back and requeue the job, or let ctx.version tell old jobs from new ones"
    )


class Replay:
    """The entries of a job, as far as this run has come to them."""

    def __init__(self, job: Job, found: Iterable[StepResult]) -> None:
        self._steps: dict[str, deque[StepResult]] = {}
        # The steps that undo others, which may have the names of others.
        self._undone: dict[str, deque[StepResult]] = {}
        self._waits: deque[StepResult] = deque()
        self._versions: dict[str, bool] = {}
        # Those that this run has asked for.
        self._known_versions: set[str] = set()
        # Why an earlier run has begun to undo the steps; None: none has.
        self.undo: StepResult | None = None
        # How often that was begun.
        self.undo_tries = 0
        # The numbers of the entries that this run has not come to.
        self._left: set[int] = set()
        # The last one that it has come to.
        self._last = 0
        # Entries of this run that are recorded together with the next one.
        self._unrecorded: list[NewStep] = []
        for entry in found:
            if entry.kind == "version":
                self._versions[entry.name] = True
                continue
            if entry.kind == "undo":
                self.undo, self.undo_tries = entry, self.undo_tries + 1
                continue
            steps = self._steps if self.undo is None else self._undone
            known = steps.get(entry.name)
            if entry.kind == "step" and known and known[-1].kind == "step":
                # It was recorded again, because a reply was lost: the later counts.
                known[-1] = replace(entry, number=known[-1].number)
                continue
            self._left.add(entry.number)
            if entry.kind in ("step", "error"):
                steps.setdefault(entry.name, deque()).append(entry)
            else:
                self._waits.append(entry)

    def begin_undo(self) -> None:
        """The steps from here on undo others."""
        self._steps = self._undone

    def step(self, name: str) -> StepResult | None:
        """The next recorded end of a step: an error, once, or its result; None: it is not recorded."""
        entries = self._steps.get(name)
        if not entries:
            return None
        entry = entries[0] if entries[0].kind == "step" else entries.popleft()
        self._visit(entry)
        return entry

    def _visit(self, entry: StepResult) -> None:
        self._left.discard(entry.number)
        self._last = max(self._last, entry.number)

    def kept(self, name: str, result: str) -> None:
        """This run has recorded the result of a step."""
        self._steps[name] = deque([StepResult(name=name, result=result)])

    def failed(self, name: str, error: BaseException, took_ms: int) -> None:
        """A step has failed in this run: recorded if its error is caught, and what comes next is recorded."""
        new = NewStep(kind="error", name=name, result=error_text(error), took_ms=took_ms)
        self._unrecorded.append(new)

    def version(self, name: str) -> bool:
        """Whether no earlier run went on from here without this version."""
        self._known_versions.add(name)
        known = self._versions.get(name)
        if known is None:
            known = self._versions[name] = not any(number > self._last for number in self._left)
            if known:
                self._unrecorded.append(NewStep(kind="version", name=name))
        return known

    def wait(self, kind: WaitKind, name: str = "") -> StepResult | None:
        """The entry of this wait; None: no earlier run came here. `Failed`: it waited for something else."""
        if not self._waits:
            return None
        entry = self._waits.popleft()
        self._visit(entry)
        if (entry.kind, entry.name) != (kind, name):
            was, now = _described(entry.kind, entry.name), _described(kind, name)
            self.check_version()
            raise changed(entry.number, was, now)
        return entry

    def check_version(self) -> None:
        """Give the job back if it has gone past a version that this process does not know."""
        newer = [name for name in self._versions if name not in self._known_versions]
        if newer:
            reason = f"it has gone past the version {newer[0]!r}, which this worker does not have"
            raise Retry(GIVEN_BACK_FOR, counts=False, reason=reason)

    def take_unrecorded(self) -> tuple[NewStep, ...]:
        """The entries to be recorded before the next one."""
        new, self._unrecorded = tuple(self._unrecorded), []
        return new

    def untake(self, new: tuple[NewStep, ...]) -> None:
        """What was to be recorded before them was refused."""
        self._unrecorded[:0] = new


def _described(kind: StepKind, name: str) -> str:
    return f"{_SHOWN[kind]} {name}".rstrip()


class _Error(msgspec.Struct, omit_defaults=True):
    """An exception as it is recorded: its class by module and name, its arguments, and what it says."""

    module: str
    name: str
    text: str
    args: list[Any] = []
    fields: dict[str, Any] = {}


def error_text(error: BaseException) -> str:
    """An exception as JSON. Of its arguments and attributes only what JSON keeps unchanged."""
    kind, text = type(error), storable(str(error))
    fields = {name: value for name, value in vars(error).items() if _is_kept(value)}
    fields.pop("__notes__", None)
    args = list(error.args) if all(map(_is_kept, error.args)) else [text]
    kept = _Error(kind.__module__, kind.__qualname__, text, args, fields)
    return msgspec.json.encode(kept).decode(errors="replace")


def read_error(text: str) -> Exception:
    """The exception of an entry: of its class, if that is loaded. What a store names is not imported."""
    kept = msgspec.json.decode(text, type=_Error)
    kind: Any = sys.modules.get(kept.module)
    for part in kept.name.split("."):
        kind = getattr(kind, part, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return StepFailed(f"{kept.name}: {kept.text}")
    # Not by calling the class, which may want other arguments than those it passed on.
    error = kind.__new__(kind, *kept.args)
    error.args = tuple(kept.args)
    vars(error).update(kept.fields)
    return error


def _is_kept(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
