"""Helpers for tests of your tasks and of your own stores. See docs/testing.md.

    queue, in_memory       a queue in memory, new or that of your application, with a clock that tests move
    run_due                runs all due jobs in this thread, in order, and those due up to a given time
    run_due_async          the same for a queue of `connect_async`, in the running loop
    added, assert_added    the jobs that were added
    crash_points           kills a handler before and after each of its commands, and runs it again

Nothing here needs pytest, except the conformance suite of stores, in a separate module:
`testing.store_suite`.
"""

from .clock import Clock
from .crashes import Crash, CrashPoint, crash_points
from .due import Ran, run_due, run_due_async
from .places import Added, ClockedQueue, added, assert_added, in_memory, queue

__all__ = [
    "Added",
    "Clock",
    "ClockedQueue",
    "Crash",
    "CrashPoint",
    "Ran",
    "added",
    "assert_added",
    "crash_points",
    "in_memory",
    "queue",
    "run_due",
    "run_due_async",
]
