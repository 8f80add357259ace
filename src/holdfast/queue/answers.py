"""What a handler may raise or return besides a result, and how its errors are formatted."""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgspec

from ..core.bounds import ERROR_BYTES
from ..core.errors import BadInput, HoldfastError
from ..core.job import Job
from ..core.rules import answering_ms
from ..core.units import duration_ms
from .options import Duration

E = TypeVar("E", bound=BaseException)
_PACKAGE = Path(__file__).parents[1]


@cache
def hidden_files() -> tuple[str, ...]:
    """The starts of the files that tracebacks leave out: those of Holdfast, asyncio, threads and imports."""
    import asyncio
    import concurrent.futures
    import importlib

    ours = [str(_PACKAGE / name) for name in ("queue", "work")]
    modules = (asyncio, concurrent.futures, importlib)
    return (*ours, *(str(Path(module.__file__ or "").parent) for module in modules), "<frozen importlib")


class Failed(Exception):
    """Raise or return it to fail the job permanently, without a retry."""

    __module__ = "holdfast"


class FailedJob(msgspec.Struct, frozen=True):
    """What the follow-up job of a FAILED job (`on_failure`) gets as its argument `failed`."""

    id: int
    task: str
    reason: str
    attempts: int
    # The data of the job as JSON has it; None if it cannot be read, or would be too large.
    data: Any = None


class Retry(Exception):
    """Raise or return it to run the job again after `delay`, or after its backoff.

    It counts as an attempt; not with `counts=False`, for a job that only waits for something. The reason is
    text or an exception.
    """

    __module__ = "holdfast"

    def __init__(
        self, delay: Duration | None = None, *, counts: bool = True, reason: str | BaseException = ""
    ) -> None:
        self.delay_ms = None if delay is None else duration_ms(delay, name="delay")
        self.counts = bool(counts)
        super().__init__(
            (reason if isinstance(reason, str) else described(reason)[0]) or "asked to run again"
        )


class SoftTimeout(BaseException):
    """Raised in a function that runs longer than the `soft_timeout` of its task, so that it can clean up.

    If it is not caught, the run ends with it, as with any other exception. It may be raised at any
    instruction, also inside a library. It is not an `Exception`, so that `except Exception` does not catch
    it.
    """

    __module__ = "holdfast"

    def __init__(self, text: str = "it ran past its soft_timeout") -> None:
        super().__init__(text)


class Suspended(BaseException):
    """Ends the run of a job that goes on later; raised by `ctx.sleep` and the like, and not to be caught.

    It is no `Exception`, so that `except Exception` does not catch it; if it is caught nevertheless, the run
    ends with it all the same.
    """

    __module__ = "holdfast"

    def __init__(self) -> None:
        super().__init__("the run ends here, and its job goes on later")


# What a handler may raise to end its run; others (`KeyboardInterrupt`) are for the process.
RAISED = (Exception, SoftTimeout)


def is_failure(error: BaseException) -> bool:
    """Whether a function has failed by raising it: not if it was cancelled itself, or its process ends."""
    if isinstance(error, (*RAISED, Suspended, BaseExceptionGroup)):
        return True
    from asyncio import CancelledError, current_task

    try:
        task = current_task()
    except RuntimeError:
        # No event loop runs in this thread: it is from something that the function has awaited elsewhere.
        task = None
    return isinstance(error, CancelledError) and not (task and task.cancelling())


class Fates(NamedTuple):
    """What a task's exceptions do to its job: `retry_on`, `fail_on` and a `backoff` that is a function."""

    # Only these run again; None: all but those of `fail_on`.
    retry_on: tuple[type[BaseException], ...] | None = None
    fail_on: tuple[type[BaseException], ...] = ()
    backoff: Callable[[int, BaseException], Duration | None] | None = None

    def fails(self, error: BaseException) -> bool:
        """Whether the job fails at once."""
        return isinstance(error, self.fail_on) or not (
            self.retry_on is None or isinstance(error, self.retry_on)
        )

    def delay_ms(self, attempt: int, error: BaseException) -> int | None:
        """How long the job waits for its next attempt; None: by its own backoff."""
        try:
            delay = None if self.backoff is None else self.backoff(attempt, error)
            return None if delay is None else duration_ms(delay, name="backoff")
        except Exception as wrong:
            # Not instead of the error of the handler.
            error.add_note(f"the function of its backoff failed: {wrong!r}")
            return None


def described(error: BaseException | str) -> tuple[str, str]:
    """The text of an error, and the end of its traceback."""
    if isinstance(error, str):
        return storable(error), ""
    if not isinstance(error, BaseException):
        raise BadInput("error", error, needed="text or an exception")
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, Failed):
        text = str(error) or "failed"
    if error.__traceback__ is None and error.__cause__ is None:
        return storable(text), ""
    return storable(text), storable("".join(traceback.format_exception(error))[-ERROR_BYTES:])


def storable(text: str) -> str:
    """The text, with ? for lone surrogates, such as those of file names: they have no encoding."""
    return text.encode(errors="replace").decode() if isinstance(text, str) else text


def trimmed(error: E) -> E:
    """Return the error with only the frames from the handler on; likewise for its causes.

    Of Holdfast's own errors also without the frames that raised them below the handler. An error without any
    frame of the user's code has no frames left, unless it is a bug of Holdfast.
    """
    for one in _chain(error):
        rest = _handlers(one.__traceback__)
        if rest is not None or isinstance(one, HoldfastError | Failed | ImportError | SyntaxError):
            one.__traceback__ = rest
        if isinstance(one, HoldfastError | Failed):
            _cut_ours(rest)
    return error


def _cut_ours(trace: TracebackType | None) -> None:
    """End a traceback at its last frame of the user's code, if it has one."""
    last = None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((str(_PACKAGE), contextlib.__file__)):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None


def _handlers(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(hidden_files()):
        trace = trace.tb_next
    return trace


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes, and the errors in groups, each once."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
        yield one


def limit_s(job: Job) -> float:
    """How long the run of a job may take before it is answered with an error."""
    return (job.timeout_ms - (answering_ms(job) if job.strict else 0)) / 1000


def stack_s(job: Job) -> float:
    """How long before that the worker looks where the handler is."""
    return 2 * answering_ms(job) / 1000


def limit_error(job: Job) -> str:
    """The error of a run that has not ended by then."""
    return f"still running after its limit of {job.timeout_ms / 1000:g} s"
