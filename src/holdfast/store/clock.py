"""The one place that reads a clock. Everything else is told the time."""

import time
from collections.abc import Callable

# Milliseconds since 1970, UTC. Stores take one, so that tests can move it.
Clock = Callable[[], int]


def system_clock() -> int:
    """The wall clock of this machine in milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds that only go forward: for time-outs, never for what is stored."""
    return time.monotonic()
