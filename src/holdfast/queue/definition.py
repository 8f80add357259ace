"""Where a task's function is defined, and whether another definition of the same name may replace it.

Two functions with one task name are a mistake: jobs of the first would be run by the second. One function
that is defined again is not. That happens when

- the same `def` is executed again: a function that registers tasks is called twice, a notebook cell is run
  again, a file is imported under two names (`__main__` and its own);
- the module is loaded again by `importlib.reload`;
- an interactive session or notebook defines a function of the same name in a later input.
"""

import inspect
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from ..core.errors import BadInput


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
