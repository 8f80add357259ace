"""Where callers put what they ask for, until the committer takes it, with what is about to come."""

import queue
from time import sleep
from typing import Any

from ..store.common.clock import monotonic_s

# How long a commit waits for those who were in the last one, as a part of what that took.
GATHERING = 0.3
MOST_GATHERING_S = 0.001
GATHERING_STEP_S = 0.000_03


class Inbox:
    """For any number of threads that put in, and one that takes."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Whether the one that takes sleeps; how many commands the last commit had, and how long it took.
        self._rests = False
        self._last_count, self._last_s = 0, 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether nobody has put anything in, nor is likely to before a single command is done."""
        return self._rests and self._last_count == 1 and self._items.empty()

    def put(self, item: Any) -> None:
        """Put something in."""
        self._items.put(item)

    def first(self, timeout_s: float | None) -> Any:
        """The first, when there is one and others have had time to arrive; or `queue.Empty`."""
        self._rests = True
        try:
            item = self._items.get(timeout=timeout_s)
        finally:
            self._rests = False
        self._let_arrive()
        return item

    def another(self) -> Any:
        """Another one that is there, or `queue.Empty`."""
        return self._items.get_nowait()

    def committed(self, count: int, took_s: float) -> None:
        """So many were answered by one commit."""
        self._last_count, self._last_s = count, took_s

    def _let_arrive(self) -> None:
        """Those who were just answered together come back one by one: wait a moment for the others.

        Otherwise the first of them would have a commit, and a sync, of its own, and the rest wait for it.
        """
        until_s = monotonic_s() + min(self._last_s * GATHERING, MOST_GATHERING_S)
        while self._items.qsize() < self._last_count - 1 and monotonic_s() < until_s:
            sleep(GATHERING_STEP_S)
