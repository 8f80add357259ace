"""Wakes up a thread that sleeps in `wait_readable`, from any other thread, by a flag and a pipe.

A wake-up while no thread sleeps makes the next sleep return at once.
"""

import os
import select
import threading
from collections.abc import Sequence
from typing import Any


def wait_readable(sources: Sequence[Any], timeout_s: float) -> list[Any]:
    """Sleep until something can be read; return those of the sources, descriptors or objects with one."""
    # Not `select`, which refuses descriptors above 1023: a server with many clients has them.
    poll = select.poll()
    by_fd = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(timeout_s * 1000)]


class Waker:
    """Wakes one sleeping thread at a time."""

    def __init__(self) -> None:
        # Whether `wake` was called since the last `clear`.
        self.is_set = False
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def wake(self) -> None:
        """Wake up the sleeping thread, or the next one that would sleep."""
        self.is_set = True
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"!")
                except BlockingIOError:
                    pass

    def fileno(self) -> int:
        """The end of the pipe that `wait_readable` waits for."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                for fd in self._pipe:
                    os.set_blocking(fd, False)
            return self._pipe[0]

    def clear(self) -> None:
        """Reset the flag and empty the pipe."""
        self.is_set = False
        try:
            os.read(self.fileno(), 4096)
        except BlockingIOError:
            pass

    def forget(self) -> None:
        """Close the pipe in a forked child, where a thread of the parent may have left the lock locked."""
        self._lock = threading.Lock()
        self.close()

    def close(self) -> None:
        """Close the pipe; no thread may sleep any more."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            for fd in pipe or ():
                os.close(fd)
