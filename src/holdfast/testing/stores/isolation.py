"""Concurrent batches: what a batch has read does not change until it commits."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ...core.job import Place, State
from ...store.contract import (
    NOTHING,
    Changes,
    CountKey,
    Store,
    Txn,
)
from .making import (
    a_job,
    add,
    claim,
    commit,
    following,
    ids,
    look,
    meet,
    new_jobs,
    race,
)


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
