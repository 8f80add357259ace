"""Workers: a supervisor that claims, renews and answers, and executors that run what users wrote.

`holdfast.work(queue)` is this room, called: see `worker.work`.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that can be called. A function of this name would hide the modules in here."""

    def __call__(self, *args: Any, **options: Any) -> int:
        return _work()(*args, **options)

    # What `help` and editors show: of the function.
    __signature__ = property(lambda _: inspect.signature(_work()))
    __doc__ = property(lambda _: _work().__doc__)


def _work() -> Callable[..., int]:
    # The processes of `holdfast worker` do without it.
    from . import worker

    return worker.work


sys.modules[__name__].__class__ = _Room
