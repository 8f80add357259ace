"""Holdfast: a durable job queue that starts as one file, and does not let go."""

from .core.errors import (
    BadInput,
    Closed,
    HoldfastError,
    JobFailed,
    LeaseLost,
    NotFound,
    Refused,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    Timeout,
    TooLarge,
    Unavailable,
    WouldBlock,
)
from .core.job import Backoff, Job, Outcome, State
from .core.limits import Limit
from .core.schedule import Schedule
from .queue.aio import AsyncClaimedJob, AsyncHandle, AsyncQueue
from .queue.answers import Failed, Retry, SoftTimeout
from .queue.connect import connect, connect_async
from .queue.context import AsyncContext, Context
from .queue.handle import Handle
from .queue.queue import ClaimedJob, Queue
from .queue.task import Task

__version__ = "0.1.0"

__all__ = [
    "AsyncClaimedJob",
    "AsyncContext",
    "AsyncHandle",
    "AsyncQueue",
    "Backoff",
    "BadInput",
    "ClaimedJob",
    "Closed",
    "Context",
    "Failed",
    "Handle",
    "HoldfastError",
    "Job",
    "JobFailed",
    "LeaseLost",
    "Limit",
    "NotFound",
    "Outcome",
    "Queue",
    "Refused",
    "Retry",
    "Schedule",
    "SchemaMismatch",
    "SoftTimeout",
    "State",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "Task",
    "Timeout",
    "TooLarge",
    "Unavailable",
    "WouldBlock",
    "connect",
    "connect_async",
]
