"""How much, how fast, how little: memory behind a slow job, and catching up after being offline.

`make proof ARGS="tests/indexed/test_figures.py"` prints the figures.
"""

import gc
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from holdfast.indexed import LATER, Consumer, ConsumerGroup, IndexedJob, Log, Progress
from tests.indexed.tools import Hands, Numbers, Until

PAGE_BYTES = 4096


class Forgetful(Numbers):
    """A source that does not note what it was asked: here only the consumer may grow."""

    def at(self, index):
        return IndexedJob(str(index), index, index)


def behind_a_slow_job(queue, counts):
    """Finish indexes behind the first one, which never ends; yields when so many are finished."""
    reached = {count: threading.Event() for count in counts}

    def run(job):
        if job.index - 1 in reached:
            reached[job.index - 1].set()
        return LATER if job.index == 1 else None

    group = ConsumerGroup(Forgetful(counts[-1] + 2), Progress(queue, "c"), run, max_processing=2)
    group.start()
    for count in counts:
        reached[count].wait()
        yield group, count
    group.stop()


@pytest.mark.parametrize("open_store", ["memory"], indirect=True)
def test_what_finished_early_is_kept_as_ranges(queue):
    """Thousands behind one slow job take no more memory than a few."""
    tracemalloc.start()
    sizes = []
    for group, count in behind_a_slow_job(queue, (500, 5_500)):
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
        assert group.processed == 0
        assert group.size >= count
    tracemalloc.stop()

    # Five bytes for each would be too much; a set of them has sixty. Whatever else goes on has some too.
    assert sizes[1] - sizes[0] < 100_000


@pytest.mark.proof
def test_memory_is_flat_behind_a_slow_job(queue, tell):
    """A million finished, one not, no window."""
    sizes = []
    for group, _ in behind_a_slow_job(queue, (50_000, 1_000_000)):
        gc.collect()
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES)
        assert group.processed == 0
    growth = sizes[1] - sizes[0]

    tell(f"{growth / 1024:,.0f} kB more with 1,000,000 finished behind one than with 50,000")
    assert growth < 4 * 1024 * 1024


COUNTS = [pytest.param(5_000, id="small"), pytest.param(1_000_000, id="full", marks=pytest.mark.proof)]


@pytest.mark.parametrize("count", COUNTS)
def test_catching_up(queue, count, tell):
    """All of a log with a worker that does nothing; progress is written far less often than once for each."""
    log = Log(queue, "log", int)
    began = time.perf_counter()
    log.append_many(range(1, count + 1))
    pushed_s = time.perf_counter() - began
    bare = Log(queue, "log", int)
    began = time.perf_counter()
    for index in range(1, count + 1):
        bare.at(index)
    bare_s = time.perf_counter() - began
    advances, until = [], Until()

    def advanced(old, new):
        advances.append(new)
        until.tell()

    group = ConsumerGroup(
        log, Progress(queue, "c"), lambda job: None, max_processing=4, on_advance=advanced, poll="1h"
    )
    began = time.perf_counter()
    with group:
        while group.processed < count:
            with until.changed:
                until.changed.wait(1)
    caught_up_s = time.perf_counter() - began

    if count > 100_000:
        tell(
            f"append_many {count / pushed_s:,.0f}/s; bare loop {count / bare_s:,.0f}/s, "
            f"consumer {count / caught_up_s:,.0f}/s ({caught_up_s / count * 1e3:.4f} ms each), "
            f"{len(advances):,} writes of progress"
        )
    assert advances[-1] == count
    assert len(advances) < count / 20


@pytest.mark.proof
def test_one_by_one(queue, tell):
    """To push one and to finish one, each synced before it returns; the document's took 0.16 and 0.22 ms."""
    log, hands = Log(queue, "log", int), Hands()
    began = time.perf_counter()
    for n in range(2_000):
        log.append(n, key=str(n))
    pushed_s = time.perf_counter() - began
    consumer = Consumer(log, Progress(queue, "c"), hands, max_processing=1)
    consumer.start()
    began = time.perf_counter()
    for n in range(2_000):
        while consumer.processed == n:
            consumer.done(str(n))
    finished_s = time.perf_counter() - began
    consumer.stop()

    tell(f"push {pushed_s / 2:.3f} ms, finish and begin the next {finished_s / 2:.3f} ms")
