"""The desk: jobs that wait in an executor for a thread, in the order in which they were handed over."""

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...core import commands as c
from ...store.common.clock import monotonic_s

# How long a batch that is not full waits for jobs that are just coming in.
GATHERING_S = 0.005


class Item(NamedTuple):
    """A job, the queue that it came from, the number of its hand-over, and when it must have begun."""

    at: int
    claimed: c.Claimed
    number: int
    begin_by_s: float

    @property
    def key(self) -> tuple[int, int]:
        """How the supervisor calls the job."""
        return self.at, self.claimed.job.id


class Desk:
    """Hands jobs to threads: one each, or as many of one task as its batches take."""

    def __init__(self, batch_of: Callable[[int, str], int]) -> None:
        self._batch_of = batch_of
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, items: list[Item]) -> None:
        """Lay jobs down."""
        with self._changed:
            self._items.extend(items)
            self._changed.notify(len(items))

    def close(self) -> None:
        """No more will come: whoever asks gets what is left, and then nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> list[Item]:
        """Take back what no thread has taken."""
        with self._changed:
            items, self._items = list(self._items), deque()
            return items

    def take(self, *, wait: bool) -> list[Item]:
        """The next job, or a batch of them; nothing: there is none, or (having waited) the desk is closed."""
        with self._changed:
            while not self._items:
                if self._closed or not wait:
                    return []
                self._changed.wait()
            first = self._items.popleft()
            most = self._batch_of(first.at, first.claimed.job.task)
            return [first] if most <= 1 else self._gather(first, most)

    def _gather(self, first: Item, most: int) -> list[Item]:
        until_s = monotonic_s() + GATHERING_S
        kind, taken = (first.at, first.claimed.job.task), [first]
        while True:
            others: deque[Item] = deque()
            for item in self._items:
                fits = len(taken) < most and (item.at, item.claimed.job.task) == kind
                (taken if fits else others).append(item)
            self._items = others
            wait_s = until_s - monotonic_s()
            if len(taken) == most or wait_s <= 0 or self._closed:
                if self._items:
                    # A wake-up meant for another thread may have come here.
                    self._changed.notify()
                return taken
            self._changed.wait(wait_s)
