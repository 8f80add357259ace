"""What wakes a thread that sleeps in `select`, from any other: an event, and a pipe to sleep at.

A nudge that comes while nobody sleeps counts for the next who would.
"""

import os
import threading


class Nudge:
    """For one sleeper at a time."""

    def __init__(self) -> None:
        self._given = threading.Event()
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def give(self) -> None:
        """Wake whoever sleeps, or will."""
        self._given.set()
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"!")
                except BlockingIOError:
                    pass

    @property
    def is_given(self) -> bool:
        """Whether one has come that nobody has taken."""
        return self._given.is_set()

    def fileno(self) -> int:
        """What `select` waits for."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                for fd in self._pipe:
                    os.set_blocking(fd, False)
            return self._pipe[0]

    def take(self) -> None:
        """It was heard."""
        self._given.clear()
        try:
            os.read(self.fileno(), 4096)
        except BlockingIOError:
            pass

    def forget(self) -> None:
        """In a forked child: what is open is its parent's."""
        self._lock, self._pipe = threading.Lock(), None

    def close(self) -> None:
        """Let go; nobody sleeps any more."""
        with self._lock:
            for fd in self._pipe or ():
                os.close(fd)
            self._pipe = None
