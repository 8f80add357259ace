"""Jobs that wait in an executor for a thread, in the order in which they were handed over."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ...core import commands as c
from ...queue.task import Task
from ...store.common.clock import monotonic_s

# How long a batch that is not full waits for jobs that are just coming in.
GATHERING_S = 0.005


class HandOver(Struct, frozen=True, gc=False):
    """How jobs came here: the number of their queue and of the hand-over, and until when they may begin."""

    at: int
    number: int
    begin_by_s: float


# A job that waits, how it came, and its task, if that is known.
Item = tuple[c.Claimed, HandOver, Task[..., Any] | None]


def returned(items: Iterable[Item]) -> tuple[tuple[tuple[int, int], int], ...]:
    """How the supervisor calls jobs that it gets back."""
    return tuple(((given.at, claimed.job.id), given.number) for claimed, given, _ in items)


class Desk:
    """Hands jobs to threads: one each, or as many of one task as its batches take."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False

    def put(self, items: list[Item]) -> None:
        """Lay jobs down."""
        with self._lock:
            self._items.extend(items)
            self._changed.notify(len(items))

    def close(self) -> None:
        """No more will come: whoever asks gets what is left, and then nothing."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> list[Item]:
        """Take back what no thread has taken."""
        with self._lock:
            items, self._items = list(self._items), deque()
            return items

    def take(self, *, wait: bool) -> list[Item]:
        """The next job, or a batch of them; nothing: there is none, or (having waited) the desk is closed."""
        with self._lock:
            while not self._items:
                if self._closed or not wait:
                    return []
                self._changed.wait()
            first = self._items.popleft()
            task = first[2]
            most = 0 if task is None else task.handling.batch
            return [first] if most <= 1 else self._gather(first, most)

    def _gather(self, first: Item, most: int) -> list[Item]:
        until_s = monotonic_s() + GATHERING_S
        taken = [first]
        while True:
            others: deque[Item] = deque()
            for item in self._items:
                fits = len(taken) < most and item[2] is first[2]
                (taken if fits else others).append(item)
            self._items = others
            wait_s = until_s - monotonic_s()
            if len(taken) == most or wait_s <= 0 or self._closed:
                if self._items:
                    # A wake-up meant for another thread may have come here.
                    self._changed.notify()
                return taken
            self._changed.wait(wait_s)
