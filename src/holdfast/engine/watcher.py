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
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # `close` may come from another thread while `watch` starts ours, or lets it sleep.
        self._lock = threading.Lock()

    def watch(self, wanted: bool) -> None:
        """Watch from now on, or no longer."""
        with self._lock:
            if self._closed.is_set():
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
            self._closed.set()
            self._wanted.set()
        if self._thread is not None:
            self._store.interrupt()
            self._thread.join()

    def _loop(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            if not self._closed.is_set() and self._has_changed() and not self._closed.is_set():
                self._ring()

    def _has_changed(self) -> bool:
        try:
            return self._store.wait(WAIT_S)
        except Exception:
            # Whoever looks meets the same, and has somebody to tell. Here it must not be the end: what is
            # in the way now may be gone in a moment.
            self._closed.wait(WAIT_S)
            return True
