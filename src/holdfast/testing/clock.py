"""A clock that tests move, so that they never sleep."""

from datetime import UTC, datetime

from ..core.units import duration_ms, moment_ms
from ..queue.options import Duration, Moment


class MovedClock:
    """A clock in milliseconds since 1970 that changes only when the test moves it, forward or back."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the clock by some milliseconds; a negative number sets it back."""
        self._now_ms += ms


class Clock:
    """The same with durations as users write them, and only forward."""

    def __init__(self, start: Moment = "2026-01-01T12:00:00Z") -> None:
        self._now_ms = moment_ms(start, name="start")

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The current time."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: Duration) -> None:
        """Move the clock forward: by seconds, a timedelta, or text such as "1h"."""
        self._now_ms += duration_ms(by, name="by")

    def advance_to(self, moment: Moment) -> None:
        """Move the clock forward to a time; one in the past changes nothing."""
        self._now_ms = max(self._now_ms, moment_ms(moment, name="moment"))
