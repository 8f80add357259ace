"""What takes other processes to measure: real workers, and whoever waits in another process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

from ...core.counting import counted
from ...core.errors import HoldfastError
from ...engine import upkeep
from ...queue.queue import Queue
from ...store.common.clock import monotonic_s
from ...work.supervisor import registry
from .app import STORE
from .measures import BY, DATA, RAW_DATA, Bench, Figure, rate, to_start

# How long anybody may take to come up, or a drain to end, before it is given up.
PATIENCE_S = 600.0
# How often the end of a drain is looked for: the looking must not cost what is measured.
LOOK_S, SELDOM_S = 0.005, 0.1
# How long a process that said it was ready may take to be waiting indeed.
SETTLING_S = 0.002


@contextmanager
def worker(queue: Queue, processes: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker of a queue's store, as people start it, that has shown that it works; ended afterwards."""
    command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.bench.app:queue", "--create"]
    command += ["--processes", str(processes)]
    with tempfile.TemporaryFile() as said:
        try:
            with _process(command, queue, stderr=said) as process:
                here = queue.add("hello")
                _wait(process, queue, "hello", 1)
                here.result()
                yield process
        except HoldfastError as error:
            said.seek(0)
            error.add_note(said.read().decode(errors="replace")[-1_000:])
            raise


@contextmanager
def _process(command: list[str], queue: Queue, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A process on a queue's store. It is ended with the block, also where that is interrupted."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with _signals_deferred():
            process = subprocess.Popen(command, env=os.environ | {STORE: queue.url}, **streams)
        yield process
    finally:
        if process is not None:
            process.terminate()
            process.communicate()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Hold signals back until the end of the block: a process that it starts must be known to be ended."""
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


def _wait(process: "subprocess.Popen[bytes]", queue: Queue, task: str, count: int) -> None:
    """Look until so many jobs of a task have finished."""
    start_s = monotonic_s()
    while (done := queue.counts().get(task, {}).get("FINISHED", 0)) < count:
        took_s = monotonic_s() - start_s
        if process.poll() is not None or took_s > PATIENCE_S:
            raise HoldfastError(
                f"the worker has not done {counted(count, 'job')}; it ended with {process.returncode}"
            )
        # A part of the time that is left by what was done until now: seldom at first, often near the end.
        sleep(min(max(LOOK_S, took_s * (count / done - 1) / 4 if done else 0.0), SELDOM_S))


def drain_by(bench: Bench, processes: int) -> Figure:
    """A no-op by a worker: claim, hand over, run, finish, archive; beside raw claim and delete by 1,000."""
    count = bench.jobs(50_000)

    def once() -> tuple[float, float]:
        with bench.side.raw() as raw:
            raw.insert(0, count, BY, RAW_DATA)
            bare = rate(count, lambda: raw.drain(BY))
        with bench.store() as queue:
            # Paused until the worker is up: its start is not what is measured.
            queue.pause("noop")
            for _ in range(count // BY):
                queue.add_many([("noop", DATA)] * BY)
            with worker(queue, processes) as process:
                start_s = monotonic_s()
                queue.resume("noop")
                _wait(process, queue, "noop", count)
                return count / (monotonic_s() - start_s), bare

    name = "1 executor" if processes == 1 else f"{processes} executors"
    return bench.compare(f"drain by {name} / raw claim + delete by 1,000", once)


def latency_other(bench: Bench) -> Figure:
    """From `add` to the start in another process that waits."""
    return to_start(bench, " in another process", _latencies_ms)


def _latencies_ms(queue: Queue, trials: int) -> list[float]:
    command = [sys.executable, "-m", "holdfast.cli.bench.app", str(trials)]
    added = []
    with _process(command, queue, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        for _ in range(trials):
            if other.stdout.readline() != b"ready\n":
                raise HoldfastError("the process that waits for jobs has ended")
            sleep(SETTLING_S)
            added.append(monotonic_s())
            queue.add("noop", DATA)
        came = json.loads(other.stdout.readline())
    return [(b - a) * 1_000 for a, b in zip(added, came, strict=True)]


def idle(bench: Bench) -> Figure | None:
    """How much of a core a worker with nothing to do takes; a write meanwhile is an error."""
    if not Path("/proc/self/stat").exists():
        return None
    name, seconds = "idle worker with 1 executor", max(60 * bench.scale, 2.0)
    bench.tick(name, 0)
    with bench.store() as queue, worker(queue, 1) as process:
        # What the start has left to do, upkeep, the last checkpoint and its entry among the workers, is
        # done by then; on a busy machine it may be late, so a second window is tried.
        sleep(registry.LOOK_S + 2.0)
        for _ in range(2):
            before, written = _cpu_s(process.pid), bench.side.written(queue.url)
            sleep(seconds)
            taken = _cpu_s(process.pid) - before
            if bench.side.written(queue.url) == written:
                return Figure(name, 100 * taken / seconds, None, None, "% of a core, no write", 1)
    raise HoldfastError("an idle worker has written to its store")


def asks(bench: Bench) -> Figure | None:
    """How often a worker with nothing to do speaks to its server; None where there is none."""
    questions: Callable[[str, float], int] | None = getattr(bench.side, "questions", None)
    if questions is None:
        return None
    name, seconds = "idle worker with 1 executor: statements", max(60 * bench.scale, 20.0)
    bench.tick(name, 0)
    with bench.store() as queue, worker(queue, 1):
        # What this process has to say is not the worker's, and the first upkeep after a job is not idleness.
        queue.close()
        sleep(upkeep.PERIOD_MS / 1000 + registry.LOOK_S)
        return Figure(name, questions(queue.url, seconds) * 60 / seconds, None, None, "a minute", 1)


def _cpu_s(pid: int) -> float:
    """The processor time of a process and its children, so far."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    ticks = 0
    for one in (pid, *children):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
