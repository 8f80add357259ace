"""A clock that moves when told: tests never sleep."""

from datetime import UTC, datetime

from ..core.durations import duration_ms, moment_ms
from ..queue.options import Duration, Moment


class MovedClock:
    """Milliseconds since 1970 that stand still until somebody moves them, forward or back."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let so many milliseconds pass; a negative number sets the clock back."""
        self._now_ms += ms


class Clock:
    """The same for people: it is moved by lengths of time as they write them, and only forward."""

    def __init__(self, start: Moment = "2026-01-01T12:00:00Z") -> None:
        self._now_ms = moment_ms(start, name="start")

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The moment it shows."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def advance(self, by: Duration) -> None:
        """Let time pass: seconds, a timedelta, or text such as "1h"."""
        self._now_ms += duration_ms(by, name="by")

    def advance_to(self, moment: Moment) -> None:
        """Let time pass until a moment; one that has passed changes nothing."""
        self._now_ms = max(self._now_ms, moment_ms(moment, name="moment"))
