"""Processes that wait: woken at once by another process, and costing nothing while there is nothing.

waiter   next(wait=30) ······ zZz ······▶ job        add to start, the median of many
adder                       add ┘
"""

import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast

from . import lives
from .crew import Crew


class Size(NamedTuple):
    """How much of it."""

    trials: int
    idle_s: float
    # From add to start: the aim is 5 ms, on a machine that does nothing else. A process that is not woken
    # finds the job by its next look, after `lives.LOOK_S`.
    median_ms: float
    # Of a core. A busy machine makes the same few calls dearer; one that waits in a loop uses all it can get.
    idle_share: float


SMALL = Size(trials=50, idle_s=2, median_ms=lives.LOOK_S * 500, idle_share=0.1)
FULL = Size(trials=1_000, idle_s=90, median_ms=50, idle_share=0.02)
SIZES = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]


@pytest.mark.parametrize("size", SIZES)
def test_a_waiting_process_is_woken_by_another(tmp_path, size, tell):
    """From before the `add` in one process to after the `next` in the other."""
    path = tmp_path / "jobs.db"
    rng = random.Random()
    took_ms = []

    with Crew() as crew, holdfast.connect(str(path)) as queue:
        waiter = crew.start(lives.wait_for_jobs, path=str(path), trials=size.trials)
        for _ in range(size.trials):
            assert waiter.hear() == "waiting"
            # It has said that it will wait; nothing tells from outside that it does, so give it a moment.
            time.sleep(rng.uniform(0.005, 0.02))
            added_ns = time.monotonic_ns()
            queue.add("ring")
            took_ms.append((int(waiter.hear()) - added_ns) / 1e6)
        crew.finish()

    took_ms.sort()
    median, p90, worst = (took_ms[int(len(took_ms) * part)] for part in (0.5, 0.9, 0.999))
    tell(f"add to start in another process: p50 {median:.1f} ms, p90 {p90:.1f} ms, worst {worst:.1f} ms")
    assert median < size.median_ms


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("around", ["nothing", "jobs that may not run"])
def test_a_waiting_process_is_idle(tmp_path, size, around, tell):
    """It uses next to no processor and does not write, whatever stands in the queue that it may not have."""
    path = tmp_path / "jobs.db"
    if around != "nothing":
        _fill_with_what_may_not_run(path)

    with Crew() as crew:
        waiter = crew.start(lives.wait_for_nothing, path=str(path))
        assert waiter.hear() == "waiting"
        before, used = _written(path), _cpu_s(waiter.pid)
        # What is measured is the passing of time.
        time.sleep(size.idle_s)
        share = (_cpu_s(waiter.pid) - used) / size.idle_s
        after = _written(path)

    tell(f"{share:.2%} of a core over {size.idle_s:g} s")
    assert after == before
    assert share < size.idle_share


def _fill_with_what_may_not_run(path: Path) -> None:
    with holdfast.connect(str(path)) as queue:
        queue.limit("slow", rate="1/h")
        queue.limit("one", concurrency=1)
        queue.add_many([("visit", {})] * 3, domain="slow")
        queue.add_many([("visit", {})] * 3, domain="one")
        for _ in range(2):
            assert queue.next(["visit"], lease="1h", renew=False) is not None
        queue.add("visit", delay="1h")
        queue.add("unknown")
        queue.add("stopped")
        queue.pause("stopped")


def _written(path: Path) -> dict[str, tuple[int, int]]:
    """When the file and its log were last written, and how large they are."""
    files = [path, path.with_name(path.name + "-wal")]
    return {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in files}


def _cpu_s(pid: int) -> float:
    """User and system time of a process, all of its threads."""
    fields: list[Any] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
