"""What a batch as a whole promises: all or nothing, again after a `Conflict`, one view, one clock."""

from collections.abc import Callable
from typing import Any

import pytest

from ...core.errors import Conflict, Unavailable
from ...core.job import Place, State
from ...core.limits import Domain
from ...core.unique import Unique
from ...store.contract import ClaimQuery, CountKey, JobFilter, ReadTxn, Store, Txn, WaitingQuery
from ..clock import MovedClock
from .making import NOW_MS, a_job, add, claim, ended, following, ids, live, race


class Oops(Exception):
    """What a test raises itself."""


def everything(txn: ReadTxn) -> list[Any]:
    """All that can be seen of a small store."""
    kept = txn.jobs(JobFilter(), after=0, limit=1000), txn.jobs(JobFilter(archived=True), after=0, limit=1000)
    job_ids = [job.id for jobs in kept for job in jobs]
    return [
        *kept,
        txn.bodies(job_ids),
        txn.bodies(job_ids, result=True),
        txn.counts(),
        txn.waiting(WaitingQuery(limit=100)),
        txn.list_domains("", after=b"", limit=100),
        txn.records("k"),
        txn.moments(),
        txn.find_unique([("", "t", b"u")]),
    ]


def test_a_batch_that_raises_leaves_no_trace(store: Store) -> None:
    """Whatever it did before: every verb that writes, on what was there and on what was new."""
    gone, kept, archived = add(store, a_job(1), a_job(2, priority=100), a_job(3))
    store.run(lambda txn: txn.archive([ended(archived)], keep=True))
    store.run(lambda txn: txn.swap_domains([Domain(tenant="", name=b"d", due_ms=5)]))
    before = store.read(everything)

    def fn(txn: Txn) -> None:
        txn.insert([(a_job(9), "{}")])
        txn.claim(ClaimQuery(owner=1, now_ms=NOW_MS, limit=1))
        txn.swap([following(kept, place=Place.PAUSED, rank=0)])
        txn.archive([ended(following(gone))], keep=True)
        txn.forget([archived.id])
        txn.put_bodies({2: b"new"}, result=True)
        txn.put_unique([Unique(tenant="", task="t", key=b"u", job_id=2)])
        txn.swap_domains([Domain(tenant="", name=b"d", version=2), Domain(tenant="", name=b"e")])
        txn.count({CountKey("", "t", Place.READY, State.QUEUED): -2})
        txn.put_records("k", {"a": b"1"})
        raise Oops

    with pytest.raises(Oops):
        store.run(fn)

    assert store.read(everything) == before


def test_a_batch_is_done_again_after_a_conflict(store: Store) -> None:
    """From the beginning: nothing of the first time is left."""
    tries = []

    def fn(txn: Txn) -> str:
        tries.append(txn.insert([(a_job(1), "{}")]))
        if len(tries) == 1:
            raise Conflict("somebody else was faster")
        return "done"

    assert store.run(fn) == "done"
    assert tries == [set(), set()]


def test_a_batch_is_not_done_again_for_ever(store: Store) -> None:
    """One whose expectation never comes true ends in an error."""
    with pytest.raises(Unavailable):
        store.run(lambda txn: txn.swap([a_job(404, version=2)]))


def test_a_batch_and_a_view_are_told_the_time_of_the_store(store: Store, clock: MovedClock) -> None:
    """The clock that it was given, whichever way that goes."""
    for step_ms in (0, 1_000, -5_000):
        clock.advance(step_ms)

        assert store.run(lambda txn: txn.now_ms) == clock()
        assert store.read(lambda txn: txn.now_ms) == clock()
        assert store.now_ms() == clock()


def test_a_batch_sees_what_it_has_written(store: Store) -> None:
    """Before anybody else does."""

    def fn(txn: Txn) -> list[int]:
        txn.insert([(a_job(1), "{}")])
        txn.claim(ClaimQuery(owner=1, now_ms=NOW_MS, limit=5))
        return ids(txn.first(Place.RUNNING, 1 << 60, 10))

    assert store.run(fn) == [1]


def test_a_view_stands_still(store: Store) -> None:
    """What is read twice is the same twice, and what was committed before is in it."""
    add(store, a_job(1))

    first, second = store.read(lambda txn: (everything(txn), everything(txn)))

    assert first == second
    assert ids(first[0]) == [1]


def test_a_job_is_never_claimed_twice(store: Store) -> None:
    """Ten callers race for a hundred jobs; together they get each exactly once."""
    added = add(store, *(a_job(n) for n in range(1, 101)))

    batches = race([lambda n=n: claim(store, owner=n, limit=12) for n in range(1, 11)])  # type: ignore[misc]

    assert sorted(job.id for batch in batches for job in batch) == ids(added)


def test_of_two_who_replace_the_same_version_one_is_refused(store: Store) -> None:
    """And what the other wrote stands."""
    (job,) = add(store, a_job(1))
    store.run(lambda txn: txn.swap([following(job, reason="first")]))

    with pytest.raises(Unavailable):
        store.run(lambda txn: txn.swap([following(job, reason="second")]))

    assert live(store, 1)[1].reason == "first"


def test_an_interrupted_wait_ends(store: Store) -> None:
    """Also when the interruption came first; and one that nobody ends goes on until its time is over."""
    store.interrupt()
    assert store.wait(60)

    calls: list[Callable[[], object]] = [lambda: store.wait(60), store.interrupt]
    assert race(calls) == [True, None]

    assert not store.wait(0.01)
    store.notify()


def test_there_is_something_to_say_about_a_store(store: Store) -> None:
    """A store that was just made has nothing wrong with it."""
    add(store, a_job(1))

    assert store.check() == []
    assert store.facts()["store"]
    assert all(isinstance(text, str) for text in store.facts().values())


def test_a_store_may_be_closed_twice(store: Store) -> None:
    """The second time nothing happens."""
    add(store, a_job(1))

    store.close()
    store.close()
