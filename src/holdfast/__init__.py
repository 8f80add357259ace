"""Holdfast: a durable job queue that starts as one file, and does not let go."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.commands import Suspension
    from .core.errors import (
        Backwards,
        BadInput,
        ChildFailed,
        Closed,
        Contended,
        Forbidden,
        HoldfastError,
        JobFailed,
        LeaseLost,
        Moved,
        NotFound,
        RateLimited,
        Refused,
        SchemaMismatch,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreMissing,
        Timeout,
        TooLarge,
        Trimmed,
        Unauthenticated,
        Unavailable,
        Unsettled,
        WouldBlock,
    )
    from .core.job import Backoff, Job, Outcome, State
    from .core.limits import Limit
    from .core.schedule import Schedule
    from .queue.aio import AsyncClaimedJob, AsyncQueue
    from .queue.aio_task import AsyncHandle
    from .queue.answers import Failed, FailedJob, Retry, SoftTimeout, Suspended
    from .queue.connect import connect, connect_async
    from .queue.context import AsyncContext, Context
    from .queue.hooks import INJECTED
    from .queue.queue import ClaimedJob, Queue
    from .queue.replay import StepFailed
    from .queue.running import JobLogFilter, current_job_id
    from .queue.task import Handle, Task
    from .work.worker import work, work_async

__version__ = "0.1.0"

__all__ = [
    "INJECTED",
    "AsyncClaimedJob",
    "AsyncContext",
    "AsyncHandle",
    "AsyncQueue",
    "Backoff",
    "Backwards",
    "BadInput",
    "ChildFailed",
    "ClaimedJob",
    "Closed",
    "Contended",
    "Context",
    "Failed",
    "FailedJob",
    "Forbidden",
    "Handle",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobLogFilter",
    "LeaseLost",
    "Limit",
    "Moved",
    "NotFound",
    "Outcome",
    "Queue",
    "RateLimited",
    "Refused",
    "Retry",
    "Schedule",
    "SchemaMismatch",
    "SoftTimeout",
    "State",
    "StepFailed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMissing",
    "Suspended",
    "Suspension",
    "Task",
    "Timeout",
    "TooLarge",
    "Trimmed",
    "Unauthenticated",
    "Unavailable",
    "Unsettled",
    "WouldBlock",
    "connect",
    "connect_async",
    "current_job_id",
    "work",
    "work_async",
]

# Where each name is. They are fetched when they are asked for: `holdfast --help` needs no engine.
_PLACES = {
    "INJECTED": "queue.hooks",
    "AsyncClaimedJob": "queue.aio",
    "AsyncContext": "queue.context",
    "AsyncHandle": "queue.aio_task",
    "AsyncQueue": "queue.aio",
    "Backoff": "core.job",
    "ClaimedJob": "queue.queue",
    "Context": "queue.context",
    "Failed": "queue.answers",
    "FailedJob": "queue.answers",
    "Handle": "queue.task",
    "Job": "core.job",
    "JobLogFilter": "queue.running",
    "Limit": "core.limits",
    "Outcome": "core.job",
    "Queue": "queue.queue",
    "Retry": "queue.answers",
    "Schedule": "core.schedule",
    "SoftTimeout": "queue.answers",
    "State": "core.job",
    "StepFailed": "queue.replay",
    "Suspended": "queue.answers",
    "Suspension": "core.commands",
    "Task": "queue.task",
    "connect": "queue.connect",
    "connect_async": "queue.connect",
    "current_job_id": "queue.running",
    "work_async": "work.worker",
}

# Hidden from type checkers, who would take it to mean that every name is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "work":
            # The room itself, which can be called; importing it has made it an attribute of this module.
            return import_module(".work", __name__)
        value = getattr(import_module(f".{_PLACES.get(name, 'core.errors')}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
