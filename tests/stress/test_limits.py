"""Limits hold across processes on one file, by the store's own times, also after all were restarted.

rate          ●──interval──●──interval──●        no two starts inside one interval, whoever starts
concurrency   ━━━━ ━━━━ ━━━━ and a fourth        no four at once, a killed holder's until its lease ends
many domains  all jobs run, and a domain that has nothing left to remember vanishes
"""

import time
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.engine.batch.limiting import list_domains
from holdfast.store.sqlite.store import SqliteStore

from . import checks, ledger, limited
from .crew import Crew


class Size(NamedTuple):
    """How much of it."""

    jobs: int
    restarts: int
    domains: int
    patience_s: float
    # How many intervals pass from start to start, typically; a busy machine wastes any number of them.
    typical: float


SMALL = Size(jobs=12, restarts=1, domains=1_000, patience_s=250, typical=inf)
FULL = Size(jobs=300, restarts=5, domains=100_000, patience_s=3_600, typical=3)
SIZES = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rate", [10, pytest.param(50, marks=pytest.mark.proof)])
def test_a_rate_holds_across_processes_and_restarts(tmp_path, address, size, rate, tell):
    """No two jobs of the domain ever start inside one interval; in the full size few intervals are wasted."""
    path, book = address, tmp_path / "ledger"
    jobs = size.jobs * rate // 10

    with holdfast.connect(str(path)) as queue:
        queue.limit("site", rate=rate)
        for _ in range(1 + size.restarts):
            queue.add_many([("visit", {"tag": "x", "n": n}) for n in range(jobs)], domain="site")
            _work(2, path, book, hold_s=0.0, patience_s=size.patience_s)

    starts = sorted(event["at"] for event in checks.of(ledger.read(book), "start"))
    apart = [then - first for first, then in pairwise(starts)]
    assert len(starts) == jobs * (1 + size.restarts)
    assert min(apart) >= 1000 / rate
    typical = sorted(apart)[len(apart) // 2]
    assert typical < size.typical * 1000 / rate
    tell(f"{len(starts)} starts at {rate}/s: at least {min(apart)} ms apart, typically {typical} ms")


@pytest.mark.parametrize("size", SIZES)
def test_concurrency_holds_across_processes_restarts_and_kills(tmp_path, address, size, tell):
    """Of four processes only three ever have a job; that of a killed one counts until its lease ends."""
    path, book = address, tmp_path / "ledger"

    with holdfast.connect(str(path)) as queue:
        queue.limit("site", concurrency=3)
        for _ in range(1 + size.restarts):
            queue.add_many([("visit", {"tag": "x", "n": n}) for n in range(size.jobs * 4)], domain="site")
            _killed_at_work(4, path, book, hold_s=0.02, starts=size.jobs * 2)
        _work(4, path, book, hold_s=0.02, patience_s=size.patience_s)
        assert set(queue.counts()["visit"]) == {"FINISHED"}

    spans = _spans(ledger.read(book))
    # On a busy machine perhaps only two of them ever work at the same time.
    assert 1 < _most_at_once(spans) <= 3
    tell(f"{len(spans)} runs, {_most_at_once(spans)} at once at most")


def _work(processes: int, path: Any, book: Any, *, hold_s: float, patience_s: float) -> None:
    """Let some processes do all that there is."""
    args = {"path": str(path), "ledger": str(book), "hold_s": hold_s, "lease_s": 1.0}
    with Crew() as crew:
        for number in range(processes):
            crew.start(limited.worker, **args, tag=f"w{number}")
        for _ in crew.listen(patience_s=patience_s):
            pass


def _killed_at_work(processes: int, path: Any, book: Any, *, hold_s: float, starts: int) -> None:
    """Let some processes work, and kill them all when so many jobs have started."""
    args = {"path": str(path), "ledger": str(book), "hold_s": hold_s, "lease_s": 1.0}
    with Crew() as crew:
        for number in range(processes):
            crew.start(limited.worker, **args, tag=f"k{number}")
        for _, line in crew.listen():
            starts -= line == "start"
            if not starts:
                return


def _spans(events: list[checks.Event]) -> list[tuple[int, int]]:
    """From when to when each claim held its job: until it was answered, or its lease ended."""
    ends = {(event["id"], event["claim"]): event["at"] for event in checks.of(events, "said")}
    starts = checks.of(events, "start")
    doubtful = checks.unheard(events)
    known = [event for event in starts if (event["id"], event["claim"]) not in doubtful]
    return [(e["at"], ends.get((e["id"], e["claim"])) or e["until"]) for e in known]


def _most_at_once(spans: list[tuple[int, int]]) -> int:
    # At one moment ends come first: who starts in the same millisecond has seen the other end.
    steps = sorted(
        [(start, 1) for start, end in spans if end > start]
        + [(end, -1) for start, end in spans if end > start]
    )
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("size", SIZES)
def test_very_many_domains_all_run_and_then_vanish(tmp_path, size, tell):
    """Two jobs in each of a hundred thousand domains, limited by rate or by number, by name or by pattern."""
    path = tmp_path / "jobs.db"
    with holdfast.connect(str(path)) as queue:
        queue.limit("rate-*", rate=50)
        queue.limit("one-*", concurrency=1)
        for n in range(0, size.domains, 100):
            queue.limit(f"one-{n}", concurrency=2)
        started = time.monotonic()
        names = [f"{('rate', 'one')[n % 2]}-{n}" for n in range(size.domains)]
        queue.add_many(queue.call("visit", {"n": n}, domain=name) for name in names for n in range(2))
        added_s = time.monotonic() - started

    started = time.monotonic()
    with Crew() as crew:
        for _ in range(2):
            crew.start(limited.bulk, path=str(path))
        done = sum(int(line) for _, line in crew.listen(patience_s=size.patience_s) if line.isdigit())
    worked_s = time.monotonic() - started

    assert done == 2 * size.domains
    _see_them_vanish(path, patience_s=size.patience_s)
    adds, runs = 2 * size.domains / added_s, done / worked_s
    tell(f"{size.domains:,} domains: {adds:,.0f} adds/s, {runs:,.0f} jobs/s worked")


def _see_them_vanish(path: Any, *, patience_s: float) -> None:
    """Claims do the upkeep: with nothing left to run, all domains go within moments."""
    until = time.monotonic() + patience_s
    with holdfast.connect(str(path)) as queue:
        store = queue.connection.engine.store
        while left := store.read(lambda txn: list_domains(txn, "", after=b"", limit=10)):
            assert queue.next(wait=0.05) is None
            assert time.monotonic() < until, f"still there: {left}"
        assert set(queue.counts()["visit"]) == {"FINISHED"}
    store = SqliteStore(path)
    assert checks.sound(store) == []
    store.close()
