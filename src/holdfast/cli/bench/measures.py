"""The measures of `holdfast bench`: ordinary use of the public API, with default options.

add        task.add, one by one, in the main thread
add_many   task.add_many of 1,000
next       queue.next() and done(), one by one, in the main thread
drain      a worker runs no-ops
latency    from task.add to the start in an idle worker

A worker is `holdfast worker` with default options, in separate processes.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import IO, NamedTuple

from ...core.errors import HoldfastError
from ...core.units import counted
from ...store.common.clock import monotonic_s
from .app import STORE, BenchApp
from .places import BenchPlace

# How long a worker may take to start, or a drain to end.
PATIENCE_S = 600.0
# How often the end of a drain is polled: often near the end, rarely before, because each poll costs time.
LOOK_S, SELDOM_S = 0.005, 0.1
SHOWN_BYTES = 1_000


class BenchWorker:
    """A worker that runs the jobs of an application."""

    def __init__(self, app: BenchApp, process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
        self._app, self._process, self._stderr = app, process, stderr

    def said(self) -> str:
        """The last part of its log."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-SHOWN_BYTES:]

    def wait_until_finished(self, task: str, count: int) -> None:
        """Wait until `count` jobs of a task have finished."""
        start_s = monotonic_s()
        while (done := self._app.queue.counts().get(task, {}).get("FINISHED", 0)) < count:
            took_s = monotonic_s() - start_s
            if self._process.poll() is not None or took_s > PATIENCE_S:
                error = HoldfastError(f"the worker finished {done} of {counted(count, 'job')} and ended")
                error.add_note(self.said())
                raise error
            # A quarter of the expected remaining time.
            sleep(min(max(LOOK_S, took_s * (count / done - 1) / 4 if done else 0.0), SELDOM_S))


@contextmanager
def worker(app: BenchApp) -> Iterator[BenchWorker]:
    """A worker that has run its first job; it is stopped at the end of the block, also after an interrupt."""
    command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.bench.app:queue"]
    process: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryFile() as stderr:
        try:
            with _signals_deferred():
                process = subprocess.Popen(command, env=os.environ | {STORE: app.queue.url}, stderr=stderr)
            running = BenchWorker(app, process, stderr)
            app.started.add()
            running.wait_until_finished("started", 1)
            yield running
        finally:
            if process is not None:
                process.terminate()
                process.wait()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the block, so that a process started in it is known and can be stopped."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda it, _frame: came.append(it)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)


BULK = 1_000
# About 100 bytes of JSON.
DATA = ("a.png", 200, "x" * 62)
# The pause before each job of the latency measure: the worker is idle then.
IDLE_S = 0.02
RESULT_S = 60.0


class Figure(NamedTuple):
    """One line of the table: the median of the rounds."""

    measure: str
    what: str
    value: float
    unit: str
    rounds: int


class Bench:
    """Where to create stores, and how many jobs to use."""

    def __init__(self, place: BenchPlace, *, scale: float) -> None:
        self.place, self.scale = place, scale

    def jobs(self, full: int, *, of: int = 1) -> int:
        """How many jobs a measure uses, a multiple of `of`."""
        return max(round(full * self.scale / of), 1) * of

    @contextmanager
    def app(self) -> Iterator[BenchApp]:
        """The tasks on a new store, with everything imported."""
        with self.place.store() as url:
            app = BenchApp(url)
            with app.queue as queue:
                app.noop.add(*DATA)
                job = queue.next(["noop"])
                assert job is not None
                job.done()
                yield app


def add(bench: Bench) -> float:
    """Jobs a second."""
    count = bench.jobs(5_000)
    with bench.app() as app:

        def work() -> None:
            for _ in range(count):
                app.noop.add(*DATA)

        return _rate(count, work)


def add_many(bench: Bench) -> float:
    """Jobs a second."""
    count = bench.jobs(50_000, of=BULK)
    with bench.app() as app:
        return _rate(count, lambda: _fill(app, count))


def next_and_done(bench: Bench) -> float:
    """Jobs a second."""
    count = bench.jobs(2_000)
    with bench.app() as app:
        _fill(app, count)

        def work() -> None:
            while job := app.queue.next(["noop"]):
                job.done()

        return _rate(count, work)


def drain(bench: Bench) -> float:
    """Jobs a second, from the first start to the last commit."""
    count = bench.jobs(20_000)
    with bench.app() as app:
        # Paused until the worker has started, which is not measured.
        app.queue.pause("noop")
        _fill(app, count)
        with worker(app) as running:

            def work() -> None:
                app.queue.resume("noop")
                running.wait_until_finished("noop", count + 1)

            return _rate(count, work)


def latency(bench: Bench) -> float:
    """Milliseconds, the median of the trials."""
    trials = bench.jobs(100)
    with bench.app() as app, worker(app) as running:
        return statistics.median(_latency_ms(app, running) for _ in range(trials))


def _latency_ms(app: BenchApp, running: BenchWorker) -> float:
    sleep(IDLE_S)
    added_s = monotonic_s()
    job = app.started.add()
    try:
        return (job.result(wait=RESULT_S) - added_s) * 1_000
    except HoldfastError as error:
        error.add_note(running.said())
        raise


def _fill(app: BenchApp, count: int) -> None:
    for start in range(0, count, BULK):
        app.noop.add_many([DATA] * min(BULK, count - start))


def _rate(count: int, work: Callable[[], None]) -> float:
    """How many a second."""
    start_s = monotonic_s()
    work()
    return count / (monotonic_s() - start_s)


class Measure(NamedTuple):
    """One measure: its description, its unit, and the function for one round."""

    what: str
    unit: str
    once: Callable[[Bench], float]


MEASURES = {
    "add": Measure("task.add, one by one", "jobs/s", add),
    "add_many": Measure("task.add_many of 1,000", "jobs/s", add_many),
    "next": Measure("queue.next() and done(), one by one", "jobs/s", next_and_done),
    "drain": Measure("a worker runs no-ops", "jobs/s", drain),
    "latency": Measure("task.add to the start in an idle worker, p50", "ms", latency),
}
