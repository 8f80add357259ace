"""Batches: all or nothing, repeated after a `Conflict`, also beside others, and cut off at any step.

What a batch has read does not change until it commits; after one that was cut off the next one works.
"""

import sys
import threading
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from ...core.errors import Conflict, Unavailable
from ...core.job import Place, State
from ...core.kinds import DOMAIN
from ...store import contract
from ...store.contract import NOTHING, Changes, CountKey, JobFilter, ReadTxn, Store, Txn, WaitingQuery
from ..clock import MovedClock
from .making import (
    a_job,
    a_query,
    add,
    claim,
    commit,
    ended,
    following,
    ids,
    live,
    look,
    meet,
    new_jobs,
    race,
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


# Longer than anything takes that works, on a busy machine.
PATIENT_S = 60.0


class Struck(BaseException):
    """An interrupt, as of the keyboard."""


class Strike:
    """Raises `Struck` where an interrupt could strike: at a call of the store's code, or as one returns."""

    def __init__(self, store: Store, at: int) -> None:
        self.left = at
        # Where its code is, and what it may share with others.
        self._modules = (
            type(store).__module__.rpartition(".")[0] + ".",
            contract.__name__.rpartition(".")[0],
        )

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        # A generator is also called to be thrown away, where whatever is raised is lost.
        is_step = event == "c_return" or (event == "call" and not frame.f_code.co_flags & CO_GENERATOR)
        if not is_step or not str(frame.f_globals.get("__name__")).startswith(self._modules):
            return
        self.left -= 1
        if self.left == 0:
            raise Struck


def strike(store: Store, fn: Callable[[Txn], tuple[Changes, None]], at: int) -> bool:
    """Run a batch that is interrupted at a step; False where it has fewer."""
    struck = Strike(store, at)
    before = sys.getprofile()
    sys.setprofile(struck)
    try:
        store.run(fn)
    except Struck:
        return True
    finally:
        sys.setprofile(before)
    assert struck.left > 0, "the interrupt was lost"
    return False


def in_time(call: Callable[[], None]) -> None:
    """Make a call in a thread of its own, which must not hang; what it raises is raised."""
    failed: list[BaseException] = []

    def go() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(PATIENT_S)
    assert not thread.is_alive(), "something is still locked"
    if failed:
        raise failed[0]


def test_an_interrupt_strikes_at_any_step_of_a_batch_and_the_next_one_works(
    store: Store, another: Store
) -> None:
    """An interrupted batch is committed completely or not at all, and blocks no other."""
    add(store, a_job(1))
    commit(store, rows={("k", "n"): b"0"})

    def fn(txn: Txn, n: int) -> tuple[Changes, None]:
        txn.rows("k", ["n"])
        job = txn.load([1])[1]
        txn.write(Changes(added=new_jobs([a_job(n, priority=900)])))
        (claimed,) = txn.claim(a_query(limit=1))
        swapped = [following(job), following(following(claimed), place=Place.PAUSED, rank=0)]
        return Changes(swapped=swapped, rows={("k", "n"): b"%d" % n}), None

    def look_after(n: int) -> None:
        kept = look(another, lambda txn: int(txn.rows("k", ["n"])["n"]))
        assert (kept == n) == (n in live(store, n))
        commit(store, swapped=[following(live(store, 1)[1])], rows={("k", "m"): b"%d" % n})
        commit(another, swapped=[following(live(another, 1)[1])], rows={("k", "m"): b"%d" % n})

    at = 1
    while strike(store, lambda txn, n=1000 + at: fn(txn, n), at):  # type: ignore[misc]
        in_time(lambda n=1000 + at: look_after(n))  # type: ignore[misc]
        at += 1 + at // 20
    assert at > 20
    assert live(store, 1000 + at)


def test_an_interrupt_in_what_a_batch_decides_undoes_it(store: Store, another: Store) -> None:
    """As any other error does."""
    add(store, a_job(1))

    def fn(txn: Txn) -> tuple[Changes, None]:
        txn.rows("k")
        txn.write(Changes(swapped=[following(txn.load([1])[1])], rows={("k", "a"): b"1"}))
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            store.run(fn)
    add(another, a_job(2))
    commit(another, swapped=[following(live(another, 1)[1])], rows={("k", "b"): b"1"})

    assert live(store, 1)[1].version == 2
    assert look(store, lambda txn: txn.rows("k")) == {"b": b"1"}


def test_a_job_is_never_claimed_twice(store: Store, another: Store) -> None:
    """Ten callers race for a hundred jobs; together they get each exactly once."""
    added = add(store, *(a_job(n) for n in range(1, 101)))

    batches = race(
        [lambda n=n: claim((store, another)[n % 2], owner=n, limit=12) for n in range(1, 11)]  # type: ignore[misc]
    )

    assert sorted(job.id for batch in batches for job in batch) == ids(added)


def _rows(txn: Txn) -> list[bytes]:
    return [value for value in txn.rows("k", ["1", "2"]).values() if value]


def _table(txn: Txn) -> list[bytes]:
    return [value for value in txn.rows("k").values() if value]


def _jobs(txn: Txn) -> list[str]:
    return [job.reason for job in txn.load([1, 2]).values() if job.reason]


def _family(txn: Txn) -> list[str]:
    return [job.reason for job in txn.load([2]).values() if job.reason]


READS: dict[str, tuple[Callable[[Txn], list[Any]], dict[str, Any]]] = {
    "rows": (_rows, {"rows": {("k", "1"): b"", ("k", "2"): b""}}),
    "rows that are not there": (_rows, {}),
    "a table": (_table, {"rows": {("k", "1"): b"", ("k", "2"): b"", ("k", "3"): b""}}),
    "an empty table": (_table, {}),
    "jobs": (_jobs, {"added": new_jobs([a_job(1), a_job(2)])}),
    "a job and its parent": (_family, {"added": new_jobs([a_job(1), a_job(2, parent_id=1)])}),
}


@pytest.mark.parametrize("kind", READS, ids=lambda kind: kind.replace(" ", "-"))
def test_what_a_batch_read_stands_still_until_it_commits(store: Store, another: Store, kind: str) -> None:
    """Two read the same, and each writes another part of it if nothing of it was written: so one does."""
    read, there = READS[kind]
    commit(store, **there)
    barrier = threading.Barrier(2)

    def write(n: int) -> Changes:
        if "added" not in there:
            return Changes(rows={("k", str(n)): b"written"})
        job = a_job(n, parent_id=1) if n == 2 and kind != "jobs" else a_job(n)
        return Changes(swapped=[following(job, reason="written")])

    def fn(txn: Txn, n: int) -> tuple[Changes, int]:
        found = read(txn)
        meet(barrier)
        return (NOTHING if found else write(n)), len(found)

    results = race([lambda: store.run(lambda txn: fn(txn, 1)), lambda: another.run(lambda txn: fn(txn, 2))])

    assert sorted(results) == [0, 1]
    assert len(store.run(lambda txn: (NOTHING, read(txn)))) == 1


def test_numbers_that_many_count_up_miss_none(store: Store, another: Store) -> None:
    """A row and a count, by six callers at once."""
    key = CountKey("", "t", Place.DONE, State.FAILED)

    def count(txn: Txn) -> tuple[Changes, None]:
        n = int(txn.rows("k", ["n"]).get("n", b"0"))
        return Changes(rows={("k", "n"): b"%d" % (n + 1)}, counts={key: 1}), None

    def many(n: int) -> None:
        for _ in range(5):
            (store, another)[n % 2].run(count)

    race([lambda n=n: many(n) for n in range(6)])  # type: ignore[misc]

    assert store.read(lambda txn: (txn.rows("k"), txn.counts())) == ({"n": b"30"}, {key: 30})


def test_a_notice_is_read_by_all_until_it_is_taken_down(store: Store, another: Store) -> None:
    """In a batch and beside it; the batch that puts it up sees it at once."""

    def put(txn: Txn) -> tuple[Changes, bytes | None]:
        txn.write(Changes(notice=b'{"state":"stopped"}'))
        return NOTHING, txn.notice()

    assert store.read(lambda txn: txn.notice()) is None
    assert store.run(put) == b'{"state":"stopped"}'
    commit(store, rows={("k", "a"): b"1"})
    for one in (store, another):
        assert look(one, lambda txn: txn.notice()) == b'{"state":"stopped"}'
        assert one.read(lambda txn: txn.notice()) == b'{"state":"stopped"}'
    commit(store, notice=None)
    assert look(another, lambda txn: txn.notice()) is None


def test_a_notice_waits_for_every_batch_that_has_read_that_there_is_none(
    store: Store, another: Store
) -> None:
    """What was written under the old one is committed before the new one, or else done again under that."""
    has_read, put_up = threading.Event(), threading.Event()

    def write(txn: Txn) -> tuple[Changes, bool]:
        if txn.notice() is not None:
            return NOTHING, False
        has_read.set()
        put_up.wait(0.3)
        return Changes(rows={("k", "a"): b"1"}), True

    def announce(_txn: Txn) -> tuple[Changes, None]:
        put_up.set()
        return Changes(notice=b"x"), None

    def put() -> dict[str, bytes]:
        has_read.wait()
        another.run(announce)
        return another.read(lambda txn: txn.rows("k"))

    results: list[Any] = race([lambda: store.run(write), put])

    assert results in ([True, {"a": b"1"}], [False, {}])
    assert store.read(lambda txn: txn.rows("k")) == results[1]
