"""A run's log until it is sent: some lines at a time, the last ones with the answer."""

import threading
from typing import Protocol

from ..core import commands as c
from ..core.notes import lines_of
from .alarm import Alarm, Bell
from .lease import Lease

# How long a line may wait for others.
SENDING_S = 0.5
# So many lines are sent at once, without waiting.
FULL_LINES = 500


class Teller(Protocol):
    """What a logbook needs of a line."""

    alarm: Alarm

    def tell(self, command: c.Command) -> None:
        """Have a command run, whatever comes of it."""


class Logbook:
    """The lines of one run. Writing never waits for the store."""

    def __init__(self, lease: Lease, line: Teller) -> None:
        self._lease, self._line = lease, line
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._bell: Bell | None = None

    def write(self, text: str) -> None:
        """Add what is said, line by line."""
        with self._lock:
            self._lines += lines_of(text)
            while len(self._lines) >= FULL_LINES:
                self._send(FULL_LINES)
            if self._lines and self._bell is None:
                self._bell = self._line.alarm.after(SENDING_S, self._ring)

    def last(self) -> tuple[str, ...]:
        """What has not been sent, and from now on is sent with the answer alone."""
        with self._lock:
            if self._bell is not None:
                self._bell.off()
            return tuple(self._lines)

    def close(self) -> None:
        """The answer, and the last lines with it, has been given."""
        with self._lock:
            self._lines.clear()

    def _ring(self) -> None:
        with self._lock:
            # Put off just now: the lines go with the answer.
            if self._bell is not None and self._bell.ring is not None:
                self._bell = None
                self._send(FULL_LINES)

    def _send(self, most: int) -> None:
        lines, self._lines = tuple(self._lines[:most]), self._lines[most:]
        if lines and self._lease.is_open:
            self._line.tell(c.Log(hold=self._lease.hold, lines=lines))
