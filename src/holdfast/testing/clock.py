"""A clock that moves when told: tests never sleep."""


class MovedClock:
    """Milliseconds since 1970 that stand still until somebody moves them, forward or back."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let so many milliseconds pass; a negative number sets the clock back."""
        self._now_ms += ms
