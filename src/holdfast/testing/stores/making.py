"""Jobs to put into a store, and the few things that nearly every test of a store does with them."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ...core import rank
from ...core.job import Body, Job, Place, State
from ...store.contract import ClaimQuery, CountKey, Store, leased

T = TypeVar("T")

NOW_MS = 1_760_000_000_000


def a_job(job_id: int, **fields: Any) -> Job:
    """A job, READY unless told otherwise, whose rank is what its place asks for."""
    usual: dict[str, Any] = {"task": "t", "place": Place.READY, "priority": 500, "run_at": NOW_MS}
    fields = usual | fields
    place, run_at = fields["place"], fields["run_at"]
    ranks = {
        Place.SCHEDULED: run_at,
        Place.RUNNING: rank.lease(fields.get("lease_until", 0)),
        Place.PAUSED: 0,
        Place.DONE: fields.get("finished_at", 0),
    }
    standing = ranks.get(place, rank.ready(fields["priority"], run_at))
    return Job(**{"id": job_id, "rank": standing} | fields)


def add(store: Store, *jobs: Job, data: Body = "{}") -> list[Job]:
    """Insert jobs and count them, as the engine does."""

    def fn(txn: Any) -> None:
        assert txn.insert([(job, data) for job in jobs]) == set()
        txn.count(tally(jobs))

    store.run(fn)
    return list(jobs)


def tally(jobs: Iterable[Job], by: int = 1) -> dict[CountKey, int]:
    """What these jobs add to the counts."""
    counts: dict[CountKey, int] = {}
    for job in jobs:
        key = CountKey(job.tenant, job.task, job.place, job.state)
        counts[key] = counts.get(key, 0) + by
    return counts


def claim(store: Store, **fields: Any) -> list[Job]:
    """Claim as owner 7 for a minute from NOW_MS, or as told."""
    query = ClaimQuery(**{"owner": 7, "now_ms": NOW_MS, "limit": 10, "lease_until": NOW_MS + 60_000} | fields)
    return [leased(job, query) for job in store.run(lambda txn: txn.claim(query))]


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
