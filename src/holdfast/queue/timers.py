"""Timers: one thread of the process calls functions after a delay."""

import heapq
import threading
from collections.abc import Callable

from ..store.common.clock import monotonic_s

Callback = Callable[[], None]


class Timer:
    """A function that will be called once, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Do not call it. It may be running, or about to run, already."""
        self.callback = None


class TimerThread:
    """Calls functions, each once, in a thread that is started on first use.

    The functions must be quick, since they share the thread. Exceptions are ignored.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Timer]] = []
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def after(self, wait_s: float, callback: Callback) -> Timer:
        """Schedule a function to be called after `wait_s` seconds; returns its timer."""
        timer = Timer(callback)
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (monotonic_s() + wait_s, self._count, timer))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._loop, name="holdfast-timers", daemon=True)
                self._thread.start()
            elif self._due[0][2] is timer:
                # Only then: a needless wake-up takes the interpreter lock from this thread.
                self._changed.notify()
        return timer

    def close(self) -> None:
        """Cancel all timers and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while (timer := self._next()) is not None:
            callback = timer.callback
            if callback is not None:
                try:
                    callback()
                except Exception:
                    pass
            # If the reference were kept during the wait, the objects of the callback would stay alive.
            del timer, callback

    def _next(self) -> Timer | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due[0][0] - monotonic_s() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait_s)
        return None
