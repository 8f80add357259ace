"""For tests: of your tasks, and of your own stores. See docs/testing.md.

    queue, in_memory       a queue in memory, or your application's own put there, and a clock that moves
    run_due                everything that is due, in this thread, in order; up to a bound, moment by moment
    added, assert_added    what was added
    crash_points           a handler killed at every point where it speaks to the queue, and run again

Nothing here needs pytest; the suite for whoever writes a store does, and is a module of its own:
`testing.store_suite`.
"""

from .adding import Added, added, assert_added
from .clock import Clock
from .crashes import Crash, CrashPoint, crash_points
from .due import Ran, run_due
from .places import ClockedQueue, in_memory, queue

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
]
