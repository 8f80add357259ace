"""Jobs to put into a store, and the few things that nearly every test of a store does with them."""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from ...core import rank
from ...core.job import Body, Job, Place, State, size_of
from ...store.contract import (
    NOTHING,
    Changes,
    ClaimQuery,
    CountKey,
    NewJobs,
    ReadTxn,
    Store,
    Txn,
    count_key,
    leased_all,
)

T = TypeVar("T")

NOW_MS = 1_760_000_000_000
DATA = "{}"
# How long a batch is kept open for another one to come. Where a store has one writer the other never comes,
# so this is waited for in full.
PATIENCE_S = 0.2
# After this many tries a batch counts as refused: stores try up to a hundred times.
REFUSALS = 3


def a_job(job_id: int, **fields: Any) -> Job:
    """A job, READY unless told otherwise, whose rank is what its place asks for."""
    usual: dict[str, Any] = {"task": "t", "place": Place.READY, "priority": 500, "run_at": NOW_MS}
    fields = usual | {"size": size_of(DATA)} | fields
    place, run_at = fields["place"], fields["run_at"]
    ranks = {
        Place.SCHEDULED: run_at,
        Place.RUNNING: rank.lease(fields.get("lease_until", 0)),
        Place.PAUSED: 0,
        Place.DONE: fields.get("finished_at", 0),
    }
    standing = ranks.get(place, rank.ready(fields["priority"], run_at))
    return Job(**{"id": job_id, "rank": standing} | fields)


def new_jobs(jobs: Iterable[Job], data: Body = DATA) -> list[NewJobs]:
    """What adds these jobs, those alike together."""
    groups: dict[Job, list[tuple[int, Body]]] = {}
    for job in jobs:
        groups.setdefault(replace(job, id=0, size=0), []).append((job.id, data))
    return [NewJobs(template, rows) for template, rows in groups.items()]


def commit(store: Store, **changes: Any) -> None:
    """A batch that writes these `Changes`, having read nothing."""
    store.run(lambda _txn: (Changes(**changes), None))


class GivenUp(Exception):
    """Raised by a batch that was refused as often as is enough."""


def refuse(store: Store, changes: Changes) -> None:
    """Commit changes that must be refused, as what they expect is never there: the batch is done again."""
    tries = count(1)

    def fn(_txn: Txn) -> tuple[Changes, None]:
        if next(tries) > REFUSALS:
            raise GivenUp
        return changes, None

    with pytest.raises(GivenUp):
        store.run(fn)


def look(store: Store, fn: Callable[[Txn], T]) -> T:
    """What a batch sees that writes nothing."""
    return store.run(lambda txn: (NOTHING, fn(txn)))


def add(store: Store, *jobs: Job, data: Body = DATA) -> list[Job]:
    """Add jobs and count them, as the engine does."""
    commit(store, added=new_jobs(jobs, data), counts=tally(jobs))
    return [replace(job, size=size_of(data)) for job in jobs]


def tally(jobs: Iterable[Job], by: int = 1) -> dict[CountKey, int]:
    """What these jobs add to the counts."""
    counts: dict[CountKey, int] = {}
    for job in jobs:
        key = count_key(job)
        counts[key] = counts.get(key, 0) + by
    return counts


def claim(store: Store, **fields: Any) -> list[Job]:
    """Claim as owner 7 for a minute from NOW_MS, or as told."""
    query = a_query(**fields)
    return leased_all(look(store, lambda txn: txn.claim(query)), query)


def a_query(**fields: Any) -> ClaimQuery:
    """A claim of owner 7 for a minute from NOW_MS, or as told."""
    return ClaimQuery(**{"owner": 7, "now_ms": NOW_MS, "limit": 10, "lease_until": NOW_MS + 60_000} | fields)


def following(job: Job, **changes: Any) -> Job:
    """The next version of a job."""
    return replace(job, version=job.version + 1, **changes)


def ended(job: Job, state: State = State.FINISHED, at: int = NOW_MS) -> Job:
    """The next version of a job, which has ended."""
    return following(job, place=Place.DONE, rank=at, finished_at=at, ended=state, owner=0, lease_until=0)


def ids(jobs: Iterable[Job]) -> list[int]:
    """Their ids, in order."""
    return [job.id for job in jobs]


def live(store: Store, *job_ids: int) -> dict[int, Job]:
    """The live jobs among these."""
    return store.read(lambda txn: txn.load(job_ids))


def bodies(store: Store, *job_ids: int) -> tuple[dict[int, Body], dict[int, Body]]:
    """The data and the results of these jobs."""
    return store.read(lambda txn: (txn.bodies(job_ids), txn.bodies(job_ids, result=True)))


def keys(store: Store, table: str, **asked: Any) -> list[str]:
    """The keys of a page of a table."""

    def fn(txn: ReadTxn) -> list[str]:
        return [key for key, _ in txn.scan(table, **({"limit": 100} | asked))]

    return store.read(fn)


def race(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Let all calls go at the same moment, each in a thread of its own; what they return."""
    start, results = threading.Barrier(len(calls)), dict[int, T]()

    def go(n: int, call: Callable[[], T]) -> None:
        start.wait()
        results[n] = call()

    threads = [threading.Thread(target=go, args=(n, call)) for n, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[n] for n in range(len(calls))]


def meet(barrier: threading.Barrier) -> None:
    """Wait for the other one, where it can come."""
    try:
        barrier.wait(PATIENCE_S)
    except threading.BrokenBarrierError:
        return
