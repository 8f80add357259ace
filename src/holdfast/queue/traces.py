"""Tracebacks without the frames of Holdfast that called a handler: the user's own, and what those called."""

import asyncio
import concurrent.futures
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from ..core.errors import HoldfastError
from .answers import Failed

E = TypeVar("E", bound=BaseException)
_PACKAGE = Path(__file__).parents[1]
# What stands between a worker and a handler: its own code, and what runs coroutines, threads and imports.
_MODULES = (asyncio, concurrent.futures, importlib)
_BETWEEN = (
    *(str(_PACKAGE / name) for name in ("queue", "work")),
    *(str(Path(module.__file__ or "").parent) for module in _MODULES),
    "<frozen importlib",
)


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
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_BETWEEN):
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
