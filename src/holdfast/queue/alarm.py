"""The alarm: one thread that calls functions at their moments, for all runs of a process."""

import heapq
import threading
from collections.abc import Callable

from ..store.common.clock import monotonic_s

Ring = Callable[[], None]


class Bell:
    """A function that is to be called, unless it is put off."""

    __slots__ = ("ring",)

    def __init__(self, ring: Ring) -> None:
        self.ring: Ring | None = ring

    def off(self) -> None:
        """Do not call it any more. It may be about to be called."""
        self.ring = None


class Alarm:
    """Calls functions, each once, from a thread that is started when first needed.

    They should be quick: others wait. What they raise is theirs to deal with, and ends here.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Bell]] = []
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def after(self, wait_s: float, ring: Ring) -> Bell:
        """Have a function called when so many seconds have passed."""
        bell = Bell(ring)
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (monotonic_s() + wait_s, self._count, bell))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._loop, name="holdfast-alarm", daemon=True)
                self._thread.start()
            self._changed.notify()
        return bell

    def close(self) -> None:
        """Call nothing any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while (bell := self._next()) is not None:
            ring = bell.ring
            if ring is not None:
                try:
                    ring()
                except Exception:
                    pass
            # Kept here while waiting, what it is about would live on.
            del bell, ring

    def _next(self) -> Bell | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due[0][0] - monotonic_s() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait_s)
        return None
