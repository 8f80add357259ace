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
    from .core.notes import LogLine, StepResult
    from .core.schedule import Schedule
    from .core.worker import Worker
    from .queue.aio import AsyncClaimedJob, AsyncQueue
    from .queue.aio_task import AsyncHandle, AsyncTask, AsyncTaskWithOptions
    from .queue.answers import Failed, FailedJob, Retry, SoftTimeout, Suspended
    from .queue.connect import connect, connect_async
    from .queue.context import AsyncContext, Context
    from .queue.group import AsyncJobGroup, GroupProgress, JobGroup
    from .queue.handlers import AsyncHandlers, Handlers
    from .queue.hooks import INJECTED
    from .queue.options import Duration, JobOptions, JobRef, Key, Moment, PreparedCall, TaskRef
    from .queue.queue import ClaimedJob, Queue
    from .queue.replay import StepFailed
    from .queue.running import JobLogFilter, current_job_id
    from .queue.task import Handle, Task, TaskWithOptions
    from .queue.transactions import StepTransaction
    from .work.worker import work, work_async

__version__ = "0.1.0"

__all__ = [
    "INJECTED",
    "AsyncClaimedJob",
    "AsyncContext",
    "AsyncHandle",
    "AsyncHandlers",
    "AsyncJobGroup",
    "AsyncQueue",
    "AsyncTask",
    "AsyncTaskWithOptions",
    "Backoff",
    "Backwards",
    "BadInput",
    "ChildFailed",
    "ClaimedJob",
    "Closed",
    "Contended",
    "Context",
    "Duration",
    "Failed",
    "FailedJob",
    "Forbidden",
    "GroupProgress",
    "Handle",
    "Handlers",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobGroup",
    "JobLogFilter",
    "JobOptions",
    "JobRef",
    "Key",
    "LeaseLost",
    "Limit",
    "LogLine",
    "Moment",
    "Moved",
    "NotFound",
    "Outcome",
    "PreparedCall",
    "Queue",
    "RateLimited",
    "Refused",
    "Retry",
    "Schedule",
    "SchemaMismatch",
    "SoftTimeout",
    "State",
    "StepFailed",
    "StepResult",
    "StepTransaction",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMissing",
    "Suspended",
    "Suspension",
    "Task",
    "TaskRef",
    "TaskWithOptions",
    "Timeout",
    "TooLarge",
    "Trimmed",
    "Unauthenticated",
    "Unavailable",
    "Unsettled",
    "Worker",
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
    "AsyncHandlers": "queue.handlers",
    "AsyncJobGroup": "queue.group",
    "AsyncQueue": "queue.aio",
    "AsyncTask": "queue.aio_task",
    "AsyncTaskWithOptions": "queue.aio_task",
    "Backoff": "core.job",
    "ClaimedJob": "queue.queue",
    "Context": "queue.context",
    "Duration": "queue.options",
    "Failed": "queue.answers",
    "FailedJob": "queue.answers",
    "GroupProgress": "queue.group",
    "Handle": "queue.task",
    "Handlers": "queue.handlers",
    "Job": "core.job",
    "JobGroup": "queue.group",
    "JobLogFilter": "queue.running",
    "JobOptions": "queue.options",
    "JobRef": "queue.options",
    "Key": "queue.options",
    "Limit": "core.limits",
    "LogLine": "core.notes",
    "Moment": "queue.options",
    "Outcome": "core.job",
    "PreparedCall": "queue.options",
    "Queue": "queue.queue",
    "Retry": "queue.answers",
    "Schedule": "core.schedule",
    "SoftTimeout": "queue.answers",
    "State": "core.job",
    "StepFailed": "queue.replay",
    "StepResult": "core.notes",
    "StepTransaction": "queue.transactions",
    "Suspended": "queue.answers",
    "Suspension": "core.commands",
    "Task": "queue.task",
    "TaskRef": "queue.options",
    "TaskWithOptions": "queue.task",
    "Worker": "core.worker",
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
