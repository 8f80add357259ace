"""An idle worker costs next to nothing: no write to its store, and less than a hundredth of a core."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.queries import ListWorkers
from tests.work.conftest import children_of

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """The processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def family(pid: int) -> list[int]:
    """A worker and its executors."""
    return [pid, *children_of(pid)]


@pytest.mark.parametrize(
    ("seconds", "share"), [(3, 0.1), pytest.param(60, 0.01, marks=pytest.mark.proof)], ids=["small", "full"]
)
def test_an_idle_worker_writes_nothing_and_hardly_runs(bench, seconds, share):
    """Supervisor and executor together; the file is watched by a connection of its own."""
    worker = bench.start()
    assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
    ask = bench.queue.connection.ask
    # It says once more what it has done, and from then on nothing.
    bench.wait_for(lambda: [one.done for one in ask(ListWorkers())] == [1])
    bench.queue.close()
    log = Path(f"{bench.store}-wal")
    with closing(sqlite3.connect(f"file:{bench.store}?mode=ro", uri=True)) as watcher:
        version = watcher.execute("PRAGMA data_version").fetchone()
        stamps = (log.stat().st_mtime_ns, log.stat().st_size, Path(bench.store).stat().st_mtime_ns)
        before_s = sum(map(cpu_s, family(worker.pid)))

        time.sleep(seconds)

        used_s = sum(map(cpu_s, family(worker.pid))) - before_s
        assert watcher.execute("PRAGMA data_version").fetchone() == version
    assert (log.stat().st_mtime_ns, log.stat().st_size, Path(bench.store).stat().st_mtime_ns) == stamps
    # On a busy machine the same work takes more of the processor's time.
    assert used_s / seconds < share
