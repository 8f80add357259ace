"""A buffer of jobs that wait in an executor for a thread, first in, first out."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ...core import commands as c
from ...queue.task import Task
from ...store.common.clock import monotonic_s
from .stored_handlers import StoredTask

# How long a batch that is not full waits for more jobs.
BATCH_WAIT_S = 0.005


class Delivery(Struct, frozen=True, gc=False):
    """The message that brought jobs: their queue, the delivery's number, and until when they may start."""

    queue_index: int
    number: int
    start_by_s: float


# A job, its delivery, and its task, if that is known here.
BufferedJob = tuple[c.Claimed, Delivery, Task[..., Any] | StoredTask | None]


def delivery_keys(jobs: Iterable[BufferedJob]) -> tuple[tuple[tuple[int, int], int], ...]:
    """The keys of jobs, as `JobsReturned` lists them."""
    return tuple(((delivery.queue_index, claimed.job.id), delivery.number) for claimed, delivery, _ in jobs)


class JobBuffer:
    """Gives jobs to threads: one at a time, or a batch of one task."""

    def __init__(self) -> None:
        self._jobs: deque[BufferedJob] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False

    def put(self, jobs: list[BufferedJob]) -> None:
        """Append jobs, and wake threads that wait for them."""
        with self._lock:
            self._jobs.extend(jobs)
            self._changed.notify(len(jobs))

    def close(self) -> None:
        """No more jobs will come: threads get those that are left, then nothing."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> list[BufferedJob]:
        """Remove and return the jobs that no thread has taken."""
        with self._lock:
            jobs, self._jobs = list(self._jobs), deque()
            return jobs

    def take(self, *, wait: bool) -> list[BufferedJob]:
        """Remove and return the next job, or batch of jobs.

        Empty if there is none; with `wait`, only after the buffer was closed.
        """
        with self._lock:
            while not self._jobs:
                if self._closed or not wait:
                    return []
                self._changed.wait()
            first = self._jobs.popleft()
            task = first[2]
            most = 0 if task is None else task.handling.batch
            return [first] if most <= 1 else self._take_batch(first, most)

    def _take_batch(self, first: BufferedJob, most: int) -> list[BufferedJob]:
        # Do not wait for a full batch of a stored handler: that costs more time than a larger batch saves.
        until_s = monotonic_s() + (0.0 if isinstance(first[2], StoredTask) else BATCH_WAIT_S)
        batch = [first]
        while True:
            others: deque[BufferedJob] = deque()
            for job in self._jobs:
                fits = len(batch) < most and job[2] is first[2]
                (batch if fits else others).append(job)
            self._jobs = others
            wait_s = until_s - monotonic_s()
            if len(batch) == most or wait_s <= 0 or self._closed:
                if self._jobs:
                    # This thread may have received a wake-up that was meant for another one.
                    self._changed.notify()
                return batch
            self._changed.wait(wait_s)
