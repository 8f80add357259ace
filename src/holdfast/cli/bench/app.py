"""The application of `holdfast bench`: its tasks, whose jobs a worker runs."""

import os

from ...queue.connect import connect
from ...queue.queue import Queue
from ...queue.task import Task
from ...store.common.clock import monotonic_s

STORE = "HOLDFAST_BENCH_STORE"


def noop(path: str, width: int, filler: str) -> None:
    """Do nothing: only the overhead is measured."""


def started() -> float:
    """Return the start time, by a clock that all processes of the machine share."""
    return monotonic_s()


class BenchApp:
    """A queue with the two tasks."""

    def __init__(self, url: str) -> None:
        self.queue: Queue = connect(url)
        self.noop: Task[[str, int, str], None] = self.queue.task()(noop)
        self.started: Task[[], float] = self.queue.task()(started)


# What the worker of a measure loads.
queue = BenchApp(os.environ.get(STORE, "memory://")).queue
