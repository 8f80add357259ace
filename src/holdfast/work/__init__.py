"""Workers: a supervisor that claims, renews and answers, and executors that run what users wrote.

`holdfast.work(queue)` is this room, called: see `worker.work`.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that can be called. A function of this name would hide the modules in here."""

    def __call__(self, queue: Any, **options: Any) -> int:
        # The processes of `holdfast worker` do without it.
        from . import worker

        return worker.work(queue, **options)


sys.modules[__name__].__class__ = _Room
