"""What `@queue.task(…)` takes and makes, for type checkers.

A context that comes first is dropped from the arguments of `add`; elsewhere it is dropped too, but a type
checker cannot see it. Of a batch task `add` takes one item.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from ..core.errors import BadInput
from .context import AsyncContext, Context
from .handling import HandlingOptions
from .options import Duration, JobOptions, check_options
from .task import Task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:

    class AnyContext(Context, AsyncContext):  # type: ignore[misc]
        """Whatever a function wants that has a context: one of them fits."""


class TaskOptions(JobOptions, HandlingOptions, total=False):
    """Everything that can be said of a task."""

    name: str | None
    cron: str | None
    every: Duration | None
    tz: str | None


class Decorator(Protocol):
    """Makes a function a task."""

    @overload
    def __call__(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class BatchDecorator(Protocol):
    """Makes a function that takes a list a task whose jobs are the items."""

    def __call__(self, function: Callable[[list[T]], Any], /) -> Task[[T], Any]:
        """The task."""


class AsyncTaskOptions(JobOptions, HandlingOptions, total=False):
    """Everything that can be said of a task of an `AsyncQueue`."""

    name: str | None


def named(
    function: Callable[..., Any] | str | None, options: dict[str, Any], *, known: Iterable[str]
) -> tuple[Callable[..., Any] | None, dict[str, Any]]:
    """A decorator's one positional argument, a function or a name, and its options with that name."""
    check_options(options, known=(*known, "batch"))
    if not isinstance(function, str):
        return function, options
    if options.get("name") is not None:
        raise BadInput("name", options["name"], needed=f"absent: the task is called {function!r} already")
    return None, {**options, "name": function}


def split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a decorator was told: of the jobs, and of how the function is called."""
    handled = {
        word: options.pop(word) for word in ("batch", *HandlingOptions.__annotations__) if word in options
    }
    return options, handled
