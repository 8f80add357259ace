"""Batches: all or nothing, repeated after a `Conflict`, and what was read does not change."""

from typing import Any

import pytest
from msgspec.structs import replace

from ...core.errors import Conflict, Unavailable
from ...core.job import Place, State
from ...core.kinds import DOMAIN
from ...store.contract import (
    Changes,
    CountKey,
    JobFilter,
    ReadTxn,
    Store,
    Txn,
    WaitingQuery,
)
from ..clock import MovedClock
from .making import (
    a_job,
    a_query,
    add,
    commit,
    ended,
    following,
    ids,
    live,
    look,
    new_jobs,
)


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
        {table: txn.scan(table, limit=1000) for table in txn.tables()},
        txn.scan(DOMAIN, due_before=1 << 52, limit=1000),
        txn.moments(),
        txn.notice(),
    ]


@pytest.mark.parametrize("middle", [True, False])
def test_a_batch_that_raises_leaves_no_trace(store: Store, middle: bool) -> None:
    """Whatever it did before: every part of `Changes`, on what was there and on what was new."""
    gone, kept, archived, removed = add(store, a_job(1), a_job(2, priority=100), a_job(3), a_job(4))
    commit(store, archived=[ended(archived)], rows={(DOMAIN, "d"): b"1"}, dues={(DOMAIN, "d"): 5})
    before = store.read(everything)
    changes = Changes(
        added=new_jobs([a_job(9)]),
        swapped=[following(kept, place=Place.PAUSED, rank=0)],
        archived=[ended(gone)],
        removed=[removed],
        forgotten=[archived.id],
        data={2: '"new"'},
        results={2: b"new"},
        counts={CountKey("", "t", Place.READY, State.QUEUED): -2},
        rows={(DOMAIN, "d"): b"2", (DOMAIN, "e"): b"1", ("k", "a"): b"1"},
        dues={(DOMAIN, "e"): 3},
        notice=b"x",
    )

    def fn(txn: Txn) -> tuple[Changes, None]:
        if middle:
            txn.write(changes)
            txn.claim(a_query(limit=1))
            raise Oops
        # The last part cannot be: none of the others is either.
        return replace(changes, swapped=[*changes.swapped, a_job(404, version=2)]), None

    with pytest.raises(Oops if middle else Unavailable):
        store.run(fn)

    assert store.read(everything) == before


def test_a_batch_is_done_again_after_a_conflict(store: Store) -> None:
    """From the beginning: nothing of the first time is left."""
    tries = []

    def fn(txn: Txn) -> tuple[Changes, str]:
        tries.append(txn.load([1]))
        txn.write(Changes(added=new_jobs([a_job(1)])))
        if len(tries) == 1:
            raise Conflict("another batch was faster")
        return Changes(rows={("k", "a"): b"1"}), "done"

    assert store.run(fn) == "done"
    assert tries == [{}, {}]
    assert store.read(lambda txn: (ids(txn.load([1]).values()), txn.rows("k"))) == ([1], {"a": b"1"})


def test_a_batch_is_not_done_again_for_ever(store: Store) -> None:
    """One whose expectation never comes true ends in an error."""
    with pytest.raises(Unavailable):
        commit(store, swapped=[a_job(404, version=2)])


def test_a_batch_that_writes_nothing_may_look(store: Store) -> None:
    """And one that writes need not."""
    add(store, a_job(1))

    assert look(store, lambda txn: ids(txn.load([1]).values())) == [1]
    store.run(lambda _txn: (Changes(added=new_jobs([a_job(2)])), None))
    never = Changes(added=new_jobs([a_job(3)]), swapped=[a_job(404, version=2)])
    with pytest.raises(Unavailable):
        store.run(lambda _txn: (never, None))
    assert store.read(lambda txn: ids(txn.first(Place.READY, 1 << 53, 9)), hint=True) == [1, 2]


def test_a_batch_and_a_view_are_told_the_time_of_the_store(store: Store, clock: MovedClock) -> None:
    """The clock that it was given, whichever way that goes."""
    for step_ms in (0, 1_000, -5_000):
        clock.advance(step_ms)

        assert look(store, lambda txn: txn.now_ms) == clock()
        assert store.read(lambda txn: txn.now_ms) == clock()
        assert store.now_ms() == clock()


def test_a_batch_sees_what_it_has_written(store: Store) -> None:
    """Its own reads and claims see them, before other processes do; what `fn` returns is written last."""
    old, gone = add(store, a_job(1, place=Place.PAUSED), a_job(2, place=Place.PAUSED))
    child = a_job(3, parent_id=1, priority=900)
    written = Changes(
        added=new_jobs([child, a_job(4)], '"new"'),
        swapped=[following(old, place=Place.READY, rank=child.rank - 1)],
        archived=[ended(gone)],
        data={1: '"newer"'},
        results={2: "2"},
        counts={CountKey("x", "t", Place.HELD, State.QUEUED): 5},
    )

    def fn(txn: Txn) -> tuple[Changes, list[Any]]:
        txn.write(written)
        seen: list[Any] = [
            sorted(txn.load([1, 2, 3])),
            list(txn.archived([1, 2])),
            txn.bodies([1, 2, 3]),
            txn.bodies([1, 2, 3], result=True),
            ids(txn.children(1, limit=9)),
            ids(txn.first(Place.READY, 1 << 53, 9)),
            txn.counts(tenant="x"),
        ]
        (first, second) = txn.claim(a_query(limit=2))
        seen += [ids([first, second]), ids(txn.first(Place.RUNNING, 1 << 60, 9))]
        return Changes(swapped=[following(following(first), place=Place.PAUSED, rank=0)]), seen

    assert store.run(fn) == [
        [1, 3],
        [2],
        {1: '"newer"', 2: "{}", 3: '"new"'},
        {2: "2"},
        [3],
        [1, 3, 4],
        {CountKey("x", "t", Place.HELD, State.QUEUED): 5},
        [1, 3],
        [1, 3],
    ]
    places = {1: Place.PAUSED, 3: Place.RUNNING, 4: Place.READY}
    assert {id: job.place for id, job in live(store, 1, 2, 3, 4).items()} == places


def test_a_view_stands_still(store: Store, another: Store) -> None:
    """What is read twice is the same twice, and what was committed before, here or elsewhere, is in it."""
    add(store, a_job(1))
    add(another, a_job(2))

    first, second = store.read(lambda txn: (everything(txn), everything(txn)))

    assert first == second
    assert ids(first[0]) == [1, 2]
