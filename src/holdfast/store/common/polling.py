"""When a process that listens for notifications also polls the store: soon after one, then less and less.

    notification ──5 s──▶ poll ──5 s──▶ poll ──10 s──▶ poll ──20 s──▶ poll ──30 s──▶ poll ──30 s──▶ …

A notification may be lost, and some changes send none, such as a claim and the end of its lease. Where there
are notifications other processes are active, so a poll follows soon. Without any there is little to find, and
every poll costs a round trip.
"""

from .clock import monotonic_s

# The factor by which each interval is longer than the one before.
SLOWER = 2


class PollTimes:
    """When one waiting process polls; the first poll is due at once."""

    def __init__(self, soon_s: float, seldom_s: float) -> None:
        self._soon_s, self._seldom_s = soon_s, seldom_s
        self._pause_s, self._at_s = soon_s, 0.0

    @property
    def left_s(self) -> float:
        """The time until the next poll is due."""
        return max(self._at_s - monotonic_s(), 0.0)

    def poll_now(self) -> None:
        """Make the next poll due at once: notifications may have been missed."""
        self._pause_s, self._at_s = self._soon_s, 0.0

    def poll_soon(self) -> None:
        """Make a poll due soon after a notification; one that is due earlier is not postponed."""
        self._pause_s = self._soon_s
        self._at_s = min(self._at_s, monotonic_s() + self._soon_s)

    def polled(self) -> None:
        """Set the time of the next poll, after one was made."""
        self._at_s = monotonic_s() + self._pause_s
        self._pause_s = min(self._pause_s * SLOWER, self._seldom_s)
