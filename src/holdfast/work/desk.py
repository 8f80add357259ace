"""The desk: jobs that wait in an executor for a thread, in the order in which they were handed over."""

import threading
from collections import deque
from collections.abc import Callable

from ..core import commands as c
from ..store.clock import monotonic_s

# How long a batch that is not full waits for jobs that are just coming in.
GATHERING_S = 0.005


class Desk:
    """Hands jobs to threads: one each, or as many of one task as its batches take."""

    def __init__(self, batch_of: Callable[[str], int]) -> None:
        self._batch_of = batch_of
        self._jobs: deque[c.Claimed] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, claimed: c.Claimed) -> None:
        """Lay a job down."""
        with self._changed:
            self._jobs.append(claimed)
            self._changed.notify()

    def close(self) -> None:
        """No more will come: whoever asks gets what is left, and then nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> list[c.Claimed]:
        """The next job, or a batch of them, when there is one; nothing: the desk is closed."""
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return []
                self._changed.wait()
            first = self._jobs.popleft()
            most = self._batch_of(first.job.task)
            return [first] if most <= 1 else self._gather(first, most)

    def _gather(self, first: c.Claimed, most: int) -> list[c.Claimed]:
        until_s = monotonic_s() + GATHERING_S
        taken = [first]
        while True:
            others: deque[c.Claimed] = deque()
            for claimed in self._jobs:
                fits = len(taken) < most and claimed.job.task == first.job.task
                (taken if fits else others).append(claimed)
            self._jobs = others
            wait_s = until_s - monotonic_s()
            if len(taken) == most or wait_s <= 0 or self._closed:
                if self._jobs:
                    # A wake-up meant for another thread may have come here.
                    self._changed.notify()
                return taken
            self._changed.wait(wait_s)
