"""The watcher: a thread that sleeps until another process may have changed something."""

import threading
from collections.abc import Callable

from ..store.contract import Store

# How long one `store.wait` sleeps, and so how late the watcher notices that nobody waits any more.
WAIT_S = 1.0


class Watcher:
    """Rings a bell when the store says that something may have changed, while it is asked to watch."""

    def __init__(self, store: Store, ring: Callable[[], None]) -> None:
        self._store, self._ring = store, ring
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        # `close` may come from another thread while `watch` starts ours, or lets it sleep.
        self._lock = threading.Lock()

    def watch(self, wanted: bool) -> None:
        """Watch from now on, or no longer."""
        with self._lock:
            if self._closed:
                return
            if not wanted:
                self._wanted.clear()
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="holdfast-watcher", daemon=True)
                self._thread.start()
            self._wanted.set()

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._wanted.set()
        if self._thread is not None:
            self._store.interrupt()
            self._thread.join()

    def _loop(self) -> None:
        while not self._closed:
            self._wanted.wait()
            if not self._closed and self._store.wait(WAIT_S) and not self._closed:
                self._ring()
