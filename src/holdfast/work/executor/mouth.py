"""What an executor says to its supervisor, in as few sends as may be.

An answer may wait until its thread begins the next job, which has to be said before it runs: both go
together. Who has nothing to begin says all at once.
"""

import os
import socket
import threading
from typing import NoReturn

from ..messages import Message, encoded, frame_up


class Mouth:
    """The sending end of an executor's line; for any thread."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._unsaid: list[bytes] = []

    def note(self, message: Message) -> None:
        """Say something soon: with whatever is said next, or when `flush` is called."""
        data = encoded(message)
        # Not without the lock: whoever says all just now must not be left with a list that still grows.
        with self._lock:
            self._unsaid.append(data)

    def send(self, message: Message) -> None:
        """Say something now, after what is unsaid."""
        self.note(message)
        self.flush()

    def flush(self) -> None:
        """Say all that is unsaid."""
        with self._lock:
            if not self._unsaid:
                return
            unsaid, self._unsaid = self._unsaid, []
            try:
                self._wire.sendall(frame_up(unsaid))
            except ConnectionError:
                orphaned()


def orphaned() -> NoReturn:
    """End this process: the supervisor is gone, and with it the leases of whatever still runs here."""
    os._exit(1)
