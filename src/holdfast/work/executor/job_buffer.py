"""A buffer of jobs that wait in an executor for a thread, first in, first out."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core import commands as c
from ...queue.definition import Handling
from ...queue.task import Task
from ...store.common.clock import monotonic_s
from ..messages import JobsReturned

# How long a batch that is not full waits for more jobs.
BATCH_WAIT_S = 0.005


class StoredTask:
    """A tenant's task with a handler in the store: its jobs run in batches."""

    def __init__(self, batch: int) -> None:
        self.handling = Handling(batch=batch)
        # How many jobs one request takes, 0: each has its own; and what the supervisor knows of that.
        self.request_size = self.reported_size = 0


class BufferedJob(NamedTuple):
    """A job that waits to start: its queue, its number (`RunJobs`), and its task, if that is known."""

    claimed: c.Claimed
    queue_index: int
    number: int
    task: Task[..., Any] | StoredTask | None

    @property
    def key(self) -> tuple[int, int]:
        """The index of its queue, and its id."""
        return self.queue_index, self.claimed.job.id


def make_returned(items: Iterable[BufferedJob]) -> JobsReturned:
    """The message that these jobs will not start here."""
    return JobsReturned(jobs=tuple((item.key, item.number) for item in items))


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
            task = first.task
            most = 0 if task is None else task.handling.batch
            return [first] if most <= 1 else self._take_batch(first, most)

    def _take_batch(self, first: BufferedJob, most: int) -> list[BufferedJob]:
        # Do not wait for a full batch of a stored handler: that costs more time than a larger batch saves.
        until_s = monotonic_s() + (0.0 if isinstance(first.task, StoredTask) else BATCH_WAIT_S)
        batch = [first]
        while True:
            others: deque[BufferedJob] = deque()
            for job in self._jobs:
                fits = len(batch) < most and job.task is first.task
                (batch if fits else others).append(job)
            self._jobs = others
            wait_s = until_s - monotonic_s()
            if len(batch) == most or wait_s <= 0 or self._closed:
                if self._jobs:
                    # This thread may have received a wake-up that was meant for another one.
                    self._changed.notify()
                return batch
            self._changed.wait(wait_s)
