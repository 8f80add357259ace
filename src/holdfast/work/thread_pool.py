"""A thread pool that does not block process exit, as that of `concurrent.futures` does."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class DaemonThreadPool:
    """Up to `most` daemon threads, started on demand."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        """Run a call in a thread; returns the future of its result."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._loop, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def close(self) -> None:
        """Wait for all calls, then end the threads."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _loop(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            # Kept during the wait, these references would keep a finished job alive.
            del item, future, call
            self._idle.release()
