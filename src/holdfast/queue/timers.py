"""The background threads of a queue, and timers: one thread calls functions after a delay."""

import heapq
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ..store.common.clock import monotonic_s
from ..store.common.interrupts import ServiceThread

Callback = Callable[[], None]
T = TypeVar("T")
# With fewer entries, those that are no longer needed are not looked for.
FEW_ENTRIES = 1_000


class DueHeap(Generic[T]):
    """Items, each with the time at which it is due.

    Most are no longer needed long before that time. These are removed whenever the heap has doubled: it stays
    as small as what is needed.
    """

    def __init__(self, is_needed: Callable[[T], bool]) -> None:
        self._is_needed = is_needed
        self._entries: list[tuple[float, int, T]] = []
        self._count, self._most = 0, FEW_ENTRIES

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, due_s: float, item: T) -> bool:
        """Add an item; True if it is the next one."""
        if len(self._entries) >= self._most:
            self._entries = [entry for entry in self._entries if self._is_needed(entry[2])]
            heapq.heapify(self._entries)
            self._most = max(2 * len(self._entries), FEW_ENTRIES)
        self._count += 1
        heapq.heappush(self._entries, (due_s, self._count, item))
        return self._entries[0][2] is item

    def wait_s(self) -> float | None:
        """How long until the next item is due, 0 or less if it is; None if there is none."""
        return self._entries[0][0] - monotonic_s() if self._entries else None

    def pop(self) -> T:
        """Remove the next item."""
        return heapq.heappop(self._entries)[2]


class Timer:
    """A function that will be called once, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Do not call it. It may be running, or about to run, already."""
        self.callback = None


class BackgroundThread:
    """A daemon thread that is started on first use and ends with `close`. Subclasses define `_loop`.

    `_lock` guards the state; `_loop` waits for `_changed`, and returns once `_closed` is set.
    """

    _name: str

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._thread = ServiceThread(self._loop, self._name)

    def close(self) -> None:
        """End the thread, and wait for that."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_started:
            self._thread.join()

    def _wake(self, *, needed: bool = True) -> None:
        """Start the thread, or wake it up if that is needed. The caller holds `_lock`.

        A needless wake-up takes the interpreter lock from the calling thread.
        """
        if not self._thread.is_started and not self._closed:
            self._thread.start()
        elif needed:
            # Not `notify`: an interrupt inside it may leave a waiter behind, which would be woken instead.
            self._changed.notify_all()

    def _loop(self) -> None:
        raise NotImplementedError


class TimerThread(BackgroundThread):
    """Calls functions, each once.

    The functions must be quick, since they share the thread. Exceptions are ignored.
    """

    _name = "holdfast-timers"

    def __init__(self) -> None:
        super().__init__()
        self._due: DueHeap[Timer] = DueHeap(lambda timer: timer.callback is not None)

    def after(self, wait_s: float, callback: Callback) -> Timer:
        """Schedule a function to be called after `wait_s` seconds; returns its timer."""
        timer = Timer(callback)
        with self._lock:
            self._wake(needed=self._due.push(monotonic_s() + wait_s, timer))
        return timer

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
        with self._lock:
            while not self._closed:
                wait_s = self._due.wait_s()
                if wait_s is not None and wait_s <= 0:
                    return self._due.pop()
                self._changed.wait(wait_s)
        return None
