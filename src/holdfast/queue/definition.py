"""The arguments of a task's decorator: its function with its annotations, its options, and how it is called.

Two functions with one task name are a mistake: jobs of the first would be run by the second. One function
that is defined again is not. That happens when

- the same `def` is executed again: a function that registers tasks is called twice, a notebook cell is run
  again, a file is imported under two names (`__main__` and its own);
- the module is loaded again by `importlib.reload`;
- an interactive session or notebook defines a function of the same name in a later input.
"""

import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial, reduce
from operator import or_
from types import CodeType, SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import CustomType, type_info

from ..core.bounds import CLAIM_JOBS
from ..core.checks import check_whole
from ..core.errors import BadInput
from ..core.units import duration_ms
from .answers import Fates
from .encoding import is_readable
from .options import Duration, JobOptions, check_options

# Where a function is defined


class Definition(NamedTuple):
    """One execution of the `def` that made a task's function."""

    module: str
    qualname: str
    file: str
    line: int
    # A fresh object each time that the module is loaded or reloaded; None in interactive sessions.
    load: object

    @property
    def place(self) -> str:
        """`file:line`, for errors."""
        return f"{self.file}:{self.line}"

    def may_replace(self, other: "Definition") -> bool:
        """Whether this is the function of `other`, defined again."""
        if self.qualname != other.qualname:
            return False
        if (self.file, self.line) == (other.file, other.line):
            return True
        if self.module != other.module:
            return False
        is_interactive = self.load is None and self.file != other.file
        return is_interactive or self.load is not other.load


def definition_of(function: Callable[..., Any]) -> Definition:
    """Where a function is defined; without code of its own, such as a built-in one, it has no line."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    module = str(getattr(inner, "__module__", None) or "?")
    loaded = sys.modules.get(module)
    return Definition(
        module=module,
        qualname=str(getattr(inner, "__qualname__", type(inner).__qualname__)),
        file=code.co_filename if isinstance(code, CodeType) else module,
        line=code.co_firstlineno if isinstance(code, CodeType) else 0,
        load=getattr(loaded, "__spec__", None),
    )


def check_function(function: Any, *, needs_name: bool) -> None:
    """Refuse what cannot be a task's function: a class, no callable, or one whose parameters are unknown."""
    needed = "a function, made by def or async def"
    if isinstance(function, type) or not callable(function):
        raise BadInput("task", function, needed=needed)
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        raise BadInput("task", function, needed=f"{needed}: the parameters of this one are unknown") from None
    if needs_name and not hasattr(function, "__name__"):
        raise BadInput("task", function, needed="a function with a name, or a name: @queue.task('name')")


def check_not_taken(name: str, new: Definition, known: Definition | None) -> None:
    """Refuse a second function under a task's name."""
    if known is not None and not new.may_replace(known):
        needed = f"another name: {known.qualname} at {known.place} is that task already"
        raise BadInput("task", name, needed=f"{needed} (this is {new.qualname} at {new.place})")


# The annotations of a function

# What an annotation raises that names something unknown here, such as an import for type checkers alone.
_UNKNOWN = (NameError, TypeError, AttributeError, SyntaxError)


def annotations_of(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The annotations of a function by name: those that are known here as types, the others as they are."""
    function = _annotated(function)
    try:
        return get_type_hints(function), {}
    except _UNKNOWN:
        raw = getattr(function, "__annotations__", {})
    found = {word: _known(function, hint) for word, hint in raw.items()}
    known = {word: kind for word, kind in found.items() if kind is not None}
    return known, {word: hint for word, hint in raw.items() if word not in known}


def _annotated(function: Any) -> Any:
    """The function that has the annotations: the one that a partial, or an object with `__call__`, calls."""
    while isinstance(function := inspect.unwrap(function), partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _known(function: Callable[..., Any], hint: Any) -> Any:
    alone = SimpleNamespace(__annotations__={"one": hint})
    try:
        return get_type_hints(alone, getattr(function, "__globals__", {}))["one"]
    except _UNKNOWN:
        return None


def returned_type(function: Callable[..., Any]) -> Any:
    """The annotation of what a call returns, or of what its awaitable gives; a class returns itself."""
    while isinstance(function, partial):
        function = function.func
    kind = function if isinstance(function, type) else annotations_of(function)[0].get("return", Any)
    if (get_origin(kind) or kind) in (Awaitable, Coroutine):
        kind = (Any, *get_args(kind))[-1]
    return kind


def readable_type(kind: Any) -> Any:
    """The type that JSON is read as; `Any` if that cannot be, as with Counter, which can only be written.

    Exceptions, as in `int | Failed`, are no results.
    """
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if not _is_exception(one)]
        kind = reduce(or_, kinds) if kinds else Any
    try:
        msgspec.json.Decoder(kind)
        info = type_info(kind)
    except TypeError:
        return Any
    return Any if isinstance(info, CustomType) and not is_readable(info.cls) else kind


def _is_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


# How a function is called


class HandlingOptions(TypedDict, total=False):
    """Options of a task besides those of its jobs."""

    soft_timeout: Duration | None
    cancel: Literal["tell", "raise"]
    retry_on: type[BaseException] | tuple[type[BaseException], ...] | None
    fail_on: type[BaseException] | tuple[type[BaseException], ...] | None


class Handling(NamedTuple):
    """How a task's function is called."""

    # How many jobs one call takes; 0: one job, as arguments.
    batch: int = 0
    soft_ms: int = 0
    # A coroutine whose job is cancelled is cancelled too.
    raises: bool = False
    is_coroutine: bool = False
    # None: all exceptions are alike.
    fates: Fates | None = None


def read_handling(
    function: Callable[..., Any], name: str, said: dict[str, Any], options: JobOptions
) -> Handling:
    """How a function is called, from the arguments of its decorator."""
    batch, soft, cancel = (said.get(word) for word in ("batch", "soft_timeout", "cancel"))
    if batch is not None:
        check_whole("batch", batch, 1, CLAIM_JOBS)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        # Its call would return at once, and its body never run.
        raise BadInput("function", "a generator", needed=f"one that returns: task {name} has a yield")
    is_coroutine = inspect.iscoroutinefunction(function)
    if cancel not in (None, "tell", "raise"):
        raise BadInput("cancel", cancel, needed="tell or raise")
    if cancel == "raise" and not is_coroutine:
        raise BadInput("cancel", cancel, needed=f"tell: task {name} is no coroutine function")
    return Handling(
        batch=batch or 0,
        soft_ms=0 if soft is None else _soft_ms(soft, options),
        raises=cancel == "raise",
        is_coroutine=is_coroutine,
        fates=_read_fates(said),
    )


def _read_fates(said: dict[str, Any]) -> Fates | None:
    retry_on, fail_on = (_exceptions(word, said.get(word)) for word in ("retry_on", "fail_on"))
    backoff = said.get("backoff")
    if retry_on is None and fail_on is None and backoff is None:
        return None
    return Fates(retry_on=retry_on, fail_on=fail_on or (), backoff=backoff)


def _exceptions(word: str, value: Any) -> tuple[type[BaseException], ...] | None:
    kinds = value if value is None or isinstance(value, tuple) else (value,)
    if kinds is not None and not all(_is_exception(kind) for kind in kinds):
        raise BadInput(word, value, needed="a class of exceptions, or a tuple of them")
    return kinds


def _soft_ms(soft: Duration, options: JobOptions) -> int:
    soft_ms = duration_ms(soft, name="soft_timeout")
    hard = options.get("timeout")
    if not soft_ms or (hard is not None and soft_ms >= duration_ms(hard, name="timeout")):
        below = "" if hard is None else f" and below the timeout of {hard}"
        raise BadInput("soft_timeout", soft, needed=f"above 0{below}")
    return soft_ms


# What a decorator takes


class TaskOptions(JobOptions, HandlingOptions, total=False):
    """All options of a task."""

    name: str | None
    cron: str | None
    every: Duration | None
    tz: str | None


def take_name(
    function: Callable[..., Any] | str | None, options: dict[str, Any], *, known: Iterable[str]
) -> tuple[Callable[..., Any] | None, dict[str, Any]]:
    """A decorator's one positional argument, a function or a name, and its options with that name."""
    check_options(options, known=(*known, "batch"))
    if not isinstance(function, str):
        return function, options
    if options.get("name") is not None:
        raise BadInput("name", options["name"], needed=f"absent: the task is called {function!r} already")
    return None, {**options, "name": function}


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options of a decorator into those of jobs and those of the call."""
    handled = {
        word: options.pop(word) for word in ("batch", *HandlingOptions.__annotations__) if word in options
    }
    if callable(options.get("backoff")):
        handled["backoff"] = options.pop("backoff")
    return options, handled
