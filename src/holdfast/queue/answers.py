"""What a handler may raise or return besides a result, and how its errors are formatted."""

import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from ..core.bounds import ERROR_BYTES
from ..core.durations import duration_ms
from ..core.errors import HoldfastError
from .options import Duration

E = TypeVar("E", bound=BaseException)
_PACKAGE = Path(__file__).parents[1]


@cache
def _between() -> tuple[str, ...]:
    """The files between a worker and a handler: ours, and those that run coroutines, threads and imports."""
    import asyncio
    import concurrent.futures
    import importlib

    ours = [str(_PACKAGE / name) for name in ("queue", "work")]
    modules = (asyncio, concurrent.futures, importlib)
    return (*ours, *(str(Path(module.__file__ or "").parent) for module in modules), "<frozen importlib")


class Failed(Exception):
    """Raise or return it: the job ends FAILED, and is not retried."""


class Retry(Exception):
    """Raise or return it: the job runs again after `delay`, or after its backoff.

    It spends an attempt unless `counts=False`, for a job that only waits for something.
    """

    def __init__(self, delay: Duration | None = None, *, counts: bool = True, reason: str = "") -> None:
        self.delay_ms = None if delay is None else duration_ms(delay, name="delay")
        self.counts = counts
        super().__init__(reason or "asked to run again")


class SoftTimeout(BaseException):
    """Raised in a function that runs past its task's `soft_timeout`: time to clean up, or to hurry.

    Unless it is caught the run ends with it, as with any other exception. It may be raised at any step,
    inside a library too, so it is no `Exception`: code that handles the errors of a call leaves it alone.
    """

    def __init__(self, text: str = "it ran past its soft_timeout") -> None:
        super().__init__(text)


# What a handler may raise to end its run; the rest (`KeyboardInterrupt`) is meant for the process.
RAISED = (Exception, SoftTimeout)


def described(error: BaseException | str) -> tuple[str, str]:
    """The text of an error, and the end of its traceback."""
    if isinstance(error, str):
        return error, ""
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, Failed):
        text = str(error) or "failed"
    if error.__traceback__ is None and error.__cause__ is None:
        return text, ""
    return text, "".join(traceback.format_exception(error))[-ERROR_BYTES:]


def trimmed(error: E) -> E:
    """The error, with its frames cut down to the handler's and below, and so those that led to it.

    One that no code of the user's was part of has none left, unless it is a fault of Holdfast's own.
    """
    for one in _chain(error):
        rest = _handlers(one.__traceback__)
        if rest is not None or isinstance(one, HoldfastError | Failed | ImportError):
            one.__traceback__ = rest
    return error


def _handlers(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_between()):
        trace = trace.tb_next
    return trace


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes, and the errors of groups; each once."""
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
