"""The worker of a measure: `holdfast worker` with default options, in separate processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import IO

from ...core.errors import HoldfastError
from ...core.units import counted
from ...store.common.clock import monotonic_s
from .app import STORE, BenchApp

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
