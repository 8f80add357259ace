"""Threads that do not hold up the end of their process, as those of `concurrent.futures` do."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Pool:
    """Up to so many threads, started when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        """Have a thread make a call; whatever it raises is the future's."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._loop, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def close(self) -> None:
        """Wait until all calls are made, and end the threads."""
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
            # Kept here while waiting, a job that is done would not be let go of.
            del item, future, call
            self._idle.release()
