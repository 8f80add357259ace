"""A moment that threads wait for and coroutines await; and the news of a store."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ..core.errors import Closed


class Signal:
    """Comes once, well or with an error. Any number may wait for it, before and after."""

    def __init__(self) -> None:
        self._future: Future[None] = Future()
        # As one that runs it cannot be cancelled by a coroutine that is tired of waiting.
        self._future.set_running_or_notify_cancel()
        self._lock = Lock()

    def set(self, error: BaseException | None = None) -> None:
        """Let it come; only the first time counts."""
        with self._lock:
            if self._future.done():
                return
            if error is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(error)

    def is_set(self) -> bool:
        """Whether it has come."""
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        """The error that it came with, if it has."""
        return self._future.exception() if self._future.done() else None

    def then(self, call: Callable[[], object]) -> None:
        """Have a function called when it comes, wherever that is; at once where it has."""
        self._future.add_done_callback(lambda _: call())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it in this thread; False when the time is up, and its error is raised."""
        try:
            self._future.result(timeout)
        except TimeoutError:
            if self._future.done():
                raise
            return False
        return True

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self._future).__await__()


class Milestones:
    """Signals that come when P reaches an index: one for each index, however many wait for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._processed = -1
        self._signals: dict[int, Signal] = {}
        self._is_closed = False
        self._error: BaseException | None = None

    def at(self, index: int) -> Signal:
        """The signal that comes when P is at an index or above; with an error if the consumer ends below."""
        with self._lock:
            signal = self._signals.get(index) or Signal()
            if index <= self._processed:
                signal.set()
            elif self._is_closed:
                signal.set(self._missed(index))
            else:
                self._signals[index] = signal
        return signal

    def passed(self, processed: int) -> None:
        """P is there."""
        with self._lock:
            self._processed = processed
            due = [self._signals.pop(index) for index in list(self._signals) if index <= processed]
        for signal in due:
            signal.set()

    def close(self, error: BaseException | None) -> None:
        """P does not move any more, for this error or because the consumer was stopped."""
        with self._lock:
            self._is_closed, self._error = True, error
            missed, self._signals = self._signals, {}
        for index, signal in missed.items():
            signal.set(self._missed(index))

    def _missed(self, index: int) -> BaseException:
        found = f"consumer {self._name} was stopped at {self._processed:,}, before it reached {index:,}"
        return self._error or Closed(found)


@contextmanager
def following(queue: Any, call: Callable[[], None]) -> Iterator[None]:
    """Have a function called whenever progress or a log of a queue's store may have moved.

    Inside a worker's handler there is no such news: who wants to know looks now and then.
    """
    connection = queue.connection
    if not hasattr(connection, "listen"):
        yield
        return
    connection.listen(call)
    try:
        yield
    finally:
        connection.unlisten(call)
