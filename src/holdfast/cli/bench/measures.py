"""What `holdfast bench` measures: each of ours beside the raw limit of the same engine, in turns.

Machines are noisy, so what counts are ratios: both sides run in the same rounds, one after the other,
and the median of the rounds' ratios is what is shown.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...core import commands as c
from ...engine.ticket import Ticket
from ...queue.connect import connect
from ...queue.queue import Queue
from .raw import Side

BY = 1_000
DATA = {"path": "a.png", "width": 200, "filler": "x" * 62}
RAW_DATA = '{"path":"a.png","width":200,"filler":"' + "x" * 62 + '"}'


class Figure(NamedTuple):
    """One line of the table. Where there is nothing raw to compare with, `raw` and `ratio` are None."""

    name: str
    ours: float
    raw: float | None
    ratio: float | None
    unit: str
    rounds: int


class Bench:
    """Where to make stores, and how much to do."""

    def __init__(
        self, side: Side, *, scale: float, rounds: int, tick: Callable[[str, int], None] = lambda *_: None
    ) -> None:
        self.side, self.scale, self.rounds = side, scale, rounds
        # Tells what is being done, and how many rounds of it have been done since.
        self.tick = tick

    def jobs(self, full: int) -> int:
        """How many jobs a measure uses: whole batches."""
        return max(round(full * self.scale / BY), 1) * BY

    @contextmanager
    def store(self, **options: Any) -> Iterator[Queue]:
        """A fresh store, with everything loaded and nothing in it."""
        with self.side.store() as url, connect(url, **options) as queue:
            queue.add("warm-up", DATA)
            drain(queue)
            yield queue

    def compare(self, name: str, once: Callable[[], tuple[float, float]], unit: str = "jobs/s") -> Figure:
        """Run both sides in turns; each `once` gives (ours, raw)."""
        pairs = []
        for _ in range(self.rounds):
            self.tick(name, 0)
            pairs.append(once())
            self.tick(name, 1)
        ours, raw = (statistics.median(side) for side in zip(*pairs, strict=True))
        return Figure(name, ours, raw, statistics.median(a / b for a, b in pairs), unit, self.rounds)


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def drain(
    queue: Queue, limit: int = BY, most: int | None = None, tasks: tuple[str, ...] | None = None
) -> int:
    """Claim and finish jobs in batches, every finish a command of its own; how many."""
    line, total = queue.line.committer, 0
    while most is None or total < most:
        claimed = line.ask(c.Claim(tenant="", tasks=tasks, limit=limit, lease_ms=60_000))
        if not claimed:
            break
        tickets = []
        for one in claimed:
            hold = c.hold_of(one.job)
            tickets.append(Ticket(c.Answer(hold=hold, held=one.job)))
            line.submit(tickets[-1])
        for ticket in tickets:
            ticket.take()
        total += len(claimed)
    return total


def add_many(bench: Bench) -> Figure:
    """`add_many` by 1,000 beside raw inserts by 1,000."""
    count = bench.jobs(50_000)

    def once() -> tuple[float, float]:
        with bench.store() as queue, bench.side.raw() as raw:
            ours = rate(count, lambda: [queue.add_many([("noop", DATA)] * BY) for _ in range(count // BY)])
            return ours, rate(count, lambda: raw.insert(0, count, BY, RAW_DATA))

    return bench.compare("add_many / raw insert by 1,000", once)


def claim_and_finish(bench: Bench) -> Figure:
    """Claim and finish with archive, beside raw claim and delete by 1,000."""
    count = bench.jobs(50_000)

    def once() -> tuple[float, float]:
        with bench.store() as queue, bench.side.raw() as raw:
            for _ in range(count // BY):
                queue.add_many([("noop", DATA)] * BY)
            raw.insert(0, count, BY, RAW_DATA)
            return rate(count, lambda: drain(queue)), rate(count, lambda: raw.drain(BY))

    return bench.compare("claim + finish / raw claim + delete by 1,000", once)


def add_by(bench: Bench, threads: int) -> Figure:
    """`add` from one or many threads beside raw one-row commits."""
    count = bench.jobs(5_000)

    def once() -> tuple[float, float]:
        with bench.store() as queue, bench.side.raw() as raw:
            bare = rate(count, lambda: raw.insert(0, count, 1, RAW_DATA))
            return _rate_in(threads, count, lambda: queue.add("noop", DATA)), bare

    name = "one thread" if threads == 1 else f"{threads} threads"
    return bench.compare(f"{name} add() / raw one-row commits", once)


def add_slow(bench: Bench) -> Figure | None:
    """`add` from 64 threads beside one thread, where a sync takes 2 ms."""
    if bench.side.slow() is None:
        return None
    count = max(int(1_280 * bench.scale) // 64, 2) * 64

    def once() -> tuple[float, float]:
        disk = bench.side.slow()
        assert disk is not None
        with disk, bench.store() as queue:
            many = _rate_in(64, count, lambda: queue.add("noop", DATA))
            return many, _rate_in(1, count // 8, lambda: queue.add("noop", DATA))

    return bench.compare("64 threads / one, a sync takes 2 ms", once)


def _rate_in(threads: int, count: int, work: Callable[[], object]) -> float:
    """How many a second in so many threads, from when all of them are there until the last is done."""
    all_there = threading.Barrier(threads + 1)

    def loop() -> None:
        all_there.wait()
        for _ in range(count // threads):
            work()

    running = [threading.Thread(target=loop) for _ in range(threads)]
    for thread in running:
        thread.start()
    all_there.wait()

    def join() -> None:
        for thread in running:
            thread.join()

    return rate(count // threads * threads, join)


def backlog(bench: Bench) -> Figure:
    """The claim rate with 1,000,000 waiting beside that with 1,000 waiting."""
    most = bench.jobs(1_000_000)
    with bench.store() as many, bench.store() as few:
        for _ in range(most // BY):
            bench.tick("filling a backlog", 0)
            many.add_many([("noop", DATA)] * BY)

        def once() -> tuple[float, float]:
            few.add_many([("noop", DATA)] * BY)
            ours = rate(BY, lambda: drain(many, limit=100, most=BY))
            return ours, rate(BY, lambda: drain(few, limit=100, most=BY))

        return bench.compare(f"claim with {most:,} waiting / with 1,000", once)


def to_start(bench: Bench, where: str, latencies_ms: Callable[[Queue, int], list[float]]) -> Figure:
    """From `add` to the start, p50, somewhere that somebody waits, beside one raw commit."""
    trials = max(int(200 * bench.scale), 50)

    def once() -> tuple[float, float]:
        with bench.store() as queue, bench.side.raw() as raw:
            raw_ms = 1_000 / rate(trials, lambda: raw.insert(0, trials, 1, RAW_DATA))
            return statistics.median(latencies_ms(queue, trials)), raw_ms

    return bench.compare(f"idle, add to start{where} p50 / one raw commit", once, "ms")


def latency(bench: Bench) -> Figure:
    """In a thread that waits."""
    return to_start(bench, "", _latencies_ms)


def _latencies_ms(queue: Queue, trials: int) -> list[float]:
    started: list[float] = []
    ready = threading.Semaphore(0)

    def take() -> None:
        for _ in range(trials):
            ready.release()
            job = queue.next(["noop"], wait=10)
            started.append(time.perf_counter())
            assert job is not None
            job.done()

    thread = threading.Thread(target=take)
    thread.start()
    added = []
    for _ in range(trials):
        ready.acquire()
        time.sleep(0.002)
        added.append(time.perf_counter())
        queue.add("noop", DATA)
    thread.join()
    return [(b - a) * 1_000 for a, b in zip(added, started, strict=True)]


def domains(bench: Bench) -> Figure:
    """Claim p99 with 100,000 limited domains, beside one raw commit."""
    count = bench.jobs(100_000)
    with bench.store() as queue, bench.side.raw() as raw:
        queue.limit("host-*", rate=1, concurrency=1)
        for start in range(0, count, BY):
            bench.tick("filling limited domains", 0)
            queue.add_many([queue.call("noop", DATA, domain=f"host-{n}") for n in range(start, start + BY)])
        trials = 200
        raw_ms = 1_000 / rate(trials, lambda: raw.insert(0, trials, 1, RAW_DATA))
        times = [1_000 / rate(1, lambda: queue.claim(limit=1, renew=False)) for _ in range(trials)]
        p99 = statistics.quantiles(times, n=100)[98]
        return Figure(f"claim p99 among {count:,} limited domains", p99, raw_ms, p99 / raw_ms, "ms", 1)
