"""When one who listens for news looks by itself whether it has missed some: soon after news, then ever less.

    news ──5 s──▶ look ──5 s──▶ look ──10 s──▶ look ──20 s──▶ look ──30 s──▶ look ──30 s──▶ …

A word may be lost, and not all is told: that somebody has claimed, and until when, nobody hears. Whoever
speaks is at work, so one look follows soon; where nobody speaks there is little to see, and a look costs.
"""

from .clock import monotonic_s

# By how much longer each pause is than the one before.
SLOWER = 2


class Looks:
    """The times of one who waits; the first look is due at once."""

    def __init__(self, soon_s: float, seldom_s: float) -> None:
        self._soon_s, self._seldom_s = soon_s, seldom_s
        self._pause_s, self._at_s = soon_s, 0.0

    @property
    def left_s(self) -> float:
        """How long until the next is due."""
        return max(self._at_s - monotonic_s(), 0.0)

    def now(self) -> None:
        """The next is due at once: what was said before may have been missed."""
        self._pause_s, self._at_s = self._soon_s, 0.0

    def soon(self) -> None:
        """Somebody has spoken. One that is due before is not put off."""
        self._pause_s = self._soon_s
        self._at_s = min(self._at_s, monotonic_s() + self._soon_s)

    def looked(self) -> None:
        """It was done."""
        self._at_s = monotonic_s() + self._pause_s
        self._pause_s = min(self._pause_s * SLOWER, self._seldom_s)
