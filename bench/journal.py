#!/usr/bin/env python3
"""The journal beside bare files, and its ingester beside `add_many`.

    python journal.py                                       journals and a SQLite file in a temporary folder
    python journal.py --folder /var/tmp                     on another disk
    python journal.py --store postgresql://host/db          ingest into a server
    python journal.py --scale 0.01                          to see that it works, not to measure

1  jobs of 100 bytes added by 1, 100 and 1,000, each synced, in one thread; and singly in 64 threads
2  the same bytes written and synced to a bare file, each write in turn with one of 1; medians
3  jobs that are in the journal brought to the store, and the same jobs by `add_many` of 1,000
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

import holdfast
from holdfast.core import commands as c
from holdfast.journal.connection import JournalMaker
from holdfast.queue.connect import store_maker

BATCHES = {1: 2_000, 100: 500, 1_000: 100}
ROUNDS = 3
INGESTED = 100_000
THREADS = 64
DATA = '{"text":"' + "x" * 89 + '"}'


class Bench:
    """A journal on a store, in a folder of its own."""

    def __init__(self, folder, url):
        self.folder, self.url = Path(folder), url
        self.names = iter(range(1_000_000))

    def open(self, name):
        """A connection by way of a new journal, or of one that is there."""
        maker = JournalMaker(store_maker(self.url), self.folder / name)
        return maker.connect(retention_ms=None, rng=random.random)


def add_of(count):
    """A command that adds so many jobs."""
    return c.Add(jobs=(c.NewJob(task="work", data=DATA),), more=(DATA,) * (count - 1))


def rate(count, run):
    """How many a second."""
    began = time.perf_counter()
    run()
    return count / (time.perf_counter() - began)


def timed(run):
    """How many seconds it takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


class BareFile:
    """A file that is appended to and synced."""

    def __init__(self, path):
        self._fd, self._end = os.open(path, os.O_RDWR | os.O_CREAT), 0

    def append(self, raw):
        """Append bytes, durably."""
        os.pwrite(self._fd, raw, self._end)
        os.fdatasync(self._fd)
        self._end += len(raw)

    def close(self):
        """Close it."""
        os.close(self._fd)


def measure_writing(bench, scale):
    """1 and 2: jobs a second in the journal, and of the same bytes in a bare file, by medians of writes."""
    for count, most in BATCHES.items():
        # Without the ingester, which would write to the same disk.
        journal, file = closed_store_journal(bench, f"w{count}"), BareFile(bench.folder / f"bare{count}")
        command, before = add_of(count), journal.end
        journal.add(command)
        raw = b"x" * (journal.end[1] - before[1])
        journaled, bare, cpu = [], [], []
        for _ in range(max(int(most * scale), 2)):
            used = time.process_time()
            journaled.append(timed(lambda: journal.add(command)))  # noqa: B023
            cpu.append((time.process_time() - used) / count * 1e6)
            bare.append(timed(lambda: file.append(raw)))  # noqa: B023
        journal.close()
        file.close()
        mine, theirs = (count / statistics.median(some) for some in (journaled, bare))
        print(
            f"batch {count:>5,}: journal {mine:>9,.0f}/s  bare {theirs:>9,.0f}/s  {mine / theirs:.2f}"
            f"  {statistics.median(cpu):.1f} µs of processor time a job"
        )


def closed_store_journal(bench, name):
    """A journal with a number from the store, and no ingester."""
    from holdfast.journal.journal import Journal

    connection = bench.open(name)
    connection.ask(add_of(1))
    connection.close()
    return Journal(bench.folder / name)


def measure_threads(bench, scale):
    """1: single jobs from many threads, which share syncs."""
    each = max(int(200 * scale), 1)
    journal, command = closed_store_journal(bench, "threads"), add_of(1)

    def run():
        threads = [
            threading.Thread(target=lambda: [journal.add(command) for _ in range(each)])
            for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    print(f"{THREADS} threads by 1: journal {rate(each * THREADS, run):>9,.0f}/s")
    journal.close()


def measure_ingesting(bench, scale):
    """3: from the journal to the store, and without a journal."""
    count = max(int(INGESTED * scale), 1_000)
    ingested, added = [], []
    for turn in range(ROUNDS):
        journal = closed_store_journal(bench, f"i{turn}")
        for _ in range(count // 1_000):
            journal.add(add_of(1_000))
        journal.close()
        connection = bench.open(f"i{turn}")
        ingested.append(rate(count, connection.ingest))
        connection.close()
        with holdfast.connect(bench.url) as queue:
            queue.counts()
            jobs = [("work", {"text": "x" * 89})] * 1_000
            added.append(rate(count, lambda: [queue.add_many(jobs) for _ in range(count // 1_000)]))  # noqa: B023
    mine, theirs = statistics.median(ingested), statistics.median(added)
    print(f"ingest: {mine:>9,.0f}/s  add_many {theirs:>9,.0f}/s  {mine / theirs:.2f}")


def main():
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder")
    parser.add_argument("--store")
    parser.add_argument("--scale", type=float, default=1.0)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=said.folder) as folder:
        bench = Bench(folder, said.store or f"{folder}/jobs.db")
        measure_writing(bench, said.scale)
        measure_threads(bench, said.scale)
        measure_ingesting(bench, said.scale)


if __name__ == "__main__":
    main()
