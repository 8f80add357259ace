"""The only module that reads a clock. All others get the time as an argument."""

import sys
import time
from collections.abc import Callable

from ...core.jump import Jump

# Milliseconds since 1970, UTC. Stores take one, so that tests can move it.
Clock = Callable[[], int]


# A larger gain of the wall clock on the monotonic clock between two readings means that it was set, not
# slewed.
SLEWED_MS = 2_000


# For time-outs; never stored.
monotonic_s = time.monotonic


def elapsed_s() -> float:
    """A clock that is never set, and goes on while the machine sleeps where the system has such a one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class SystemClock:
    """The wall clock of this machine in milliseconds; it detects that the clock was set ahead.

    It also detects that the machine slept, as the monotonic clock does not advance meanwhile.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._ahead_ns = wall_ns() - monotonic_ns()
        # The last jump that was detected.
        self.jump: Jump | None = None

    def __call__(self) -> int:
        wall_ns = self._wall_ns()
        ahead_ns = wall_ns - self._monotonic_ns()
        by_ms, self._ahead_ns = (ahead_ns - self._ahead_ns) // 1_000_000, ahead_ns
        if by_ms > SLEWED_MS:
            self.jump = Jump(at_ms=wall_ns // 1_000_000, by_ms=by_ms)
        return wall_ns // 1_000_000


# The clock of this process.
system_clock = SystemClock()


def jump_of(clock: Clock) -> Jump | None:
    """The last jump of a clock, if it detects jumps."""
    return clock.jump if isinstance(clock, SystemClock) else None
