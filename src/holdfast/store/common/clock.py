"""The only module that reads a clock: this machine's, and that of a server, which all machines share.

All others get the time as an argument. A server's clock is read now and then, and estimated in between.
"""

import sys
import time
from collections.abc import Callable

from ...core.errors import Unavailable
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


# How long the time is estimated from the last reading.
TRUSTED_S = 30.0
# A time ahead of ours by at most this is explained by the inaccuracy of readings.
CLOCK_SLACK_MS = 1_000
Ask = Callable[[], int]


class Time:
    """The clock of a store: `clock`, or that of its server, which the argument `ask` reads."""

    def __init__(self, clock: Clock | None, trusted_s: float = TRUSTED_S) -> None:
        self._clock, self._trusted_s = clock, trusted_s
        # The last reading of the server's clock, and our elapsed time of it.
        self._reading: tuple[int, float] | None = None

    def note(self, now_ms: int) -> None:
        """Remember a reading of the server's clock that was made just now."""
        self._reading = (now_ms, elapsed_s())

    def now_ms(self, ask: Ask) -> int:
        """The time; while the server is unavailable, an estimate from the last reading."""
        if (estimated := self.estimated()) is not None:
            return estimated
        reading = self._reading
        try:
            now_ms = ask()
            if self._reading is reading:
                # Otherwise `ask` has noted the reading itself, with a more exact time.
                self.note(now_ms)
            reading = self._reading
        except Unavailable:
            if reading is None:
                raise
        assert reading is not None
        return reading[0] + int((elapsed_s() - reading[1]) * 1000)

    def estimated(self) -> int | None:
        """The time estimated from the last reading, or None if that is too old."""
        if self._clock is not None:
            return self._clock()
        if (reading := self._reading) is None:
            return None
        passed_s = elapsed_s() - reading[1]
        return reading[0] + int(passed_s * 1000) if passed_s <= self._trusted_s else None

    def caught_up(self, at_ms: int, ask: Ask) -> bool:
        """Read the clock again; return whether it has nearly reached `at_ms`, the time of another process."""
        self.note(ask())
        ahead_ms = at_ms - self.now_ms(ask)
        if 0 < ahead_ms <= CLOCK_SLACK_MS:
            self.note(at_ms)
        # Otherwise the server's clock was set back, and the caller must not wait for a time far ahead.
        return ahead_ms <= CLOCK_SLACK_MS


MEGABYTE = 1024 * 1024
# A larger clock skew is reported.
SKEW_MS = 1_000


def clock_complaints(server_ms: int) -> list[str]:
    """Whether the clock of this machine differs from the server's."""
    skew_ms = system_clock() - server_ms
    if abs(skew_ms) <= SKEW_MS:
        return []
    return [f"this machine's clock differs from the server's by {skew_ms:+,} ms; set one of them"]
