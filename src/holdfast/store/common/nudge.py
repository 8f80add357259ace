"""What wakes a thread that sleeps in `select`, from any other thread: a flag, and a pipe to sleep at.

A nudge that comes while no thread sleeps counts for the next that would.
"""

import os
import threading


class Nudge:
    """For one sleeper at a time."""

    def __init__(self) -> None:
        # Whether one has come that nobody has taken.
        self.is_given = False
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def give(self) -> None:
        """Wake the thread that sleeps, or will."""
        self.is_given = True
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"!")
                except BlockingIOError:
                    pass

    def fileno(self) -> int:
        """What `select` waits for."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                for fd in self._pipe:
                    os.set_blocking(fd, False)
            return self._pipe[0]

    def take(self) -> None:
        """It was noticed."""
        self.is_given = False
        try:
            os.read(self.fileno(), 4096)
        except BlockingIOError:
            pass

    def forget(self) -> None:
        """In a forked child: what is open is its parent's."""
        self._lock, self._pipe = threading.Lock(), None

    def close(self) -> None:
        """Let go; no thread sleeps any more."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            for fd in pipe or ():
                os.close(fd)
