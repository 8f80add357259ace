"""The clock of a server, which all machines share: read now and then, and estimated in between."""

from collections.abc import Callable

from ...core.errors import Unavailable
from .clock import Clock, elapsed_s

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
