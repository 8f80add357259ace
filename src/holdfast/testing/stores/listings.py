"""What a store is copied by: the notice on its door, whole listings, and jobs that go in as they are."""

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from ...core.job import Place, State
from ...core.limits import Domain, Lane
from ...core.unique import Unique
from ...store.contract import LogRow, Store, Turn, WaitingQuery
from .making import NOW_MS, a_job, add, claim, live

RECORDS = [
    ("a", "one", b"1"),
    ("a", "two", b"\x00\xff"),
    ("b", "", b"{}"),
    ("b", "\u00e9", "\u00e9".encode()),
    ("c", '["x","y"]', b""),
]


def _put_records(store: Store) -> None:
    def fn(txn: Any) -> None:
        for kind, name, value in reversed(RECORDS):
            txn.put_records(kind, {name: value})

    store.run(fn)


def test_a_notice_is_read_by_all_until_it_is_taken_down(store: Store) -> None:
    """In a batch and beside it; the batch that puts it up sees it at once."""

    def put(txn: Any) -> bytes | None:
        txn.put_notice(b'{"state":"stopped"}')
        seen: bytes | None = txn.notice()
        return seen

    assert store.read(lambda txn: txn.notice()) is None
    assert store.run(put) == b'{"state":"stopped"}'
    assert store.run(lambda txn: txn.notice()) == b'{"state":"stopped"}'
    assert store.read(lambda txn: txn.notice()) == b'{"state":"stopped"}'
    store.run(lambda txn: txn.put_notice(None))
    assert store.run(lambda txn: txn.notice()) is None


def test_a_notice_that_was_not_committed_was_never_there(store: Store) -> None:
    """It is undone with the rest."""

    def fn(txn: Any) -> None:
        txn.put_notice(b"x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.run(fn)

    assert store.read(lambda txn: txn.notice()) is None


def test_a_notice_waits_for_whoever_has_read_that_there_is_none(store: Store) -> None:
    """What was written under the old one is committed before the new one, or else done again under that."""
    has_read, put_up = threading.Event(), threading.Event()
    order: list[str] = []

    def write(txn: Any) -> None:
        if txn.notice() is not None:
            order.append("refused")
            return
        has_read.set()
        put_up.wait(0.3)
        txn.put_records("a", {"one": b"1"})
        order.append("written")

    def put(txn: Any) -> dict[str, bytes]:
        txn.put_notice(b"x")
        put_up.set()
        found: dict[str, bytes] = txn.records("a")
        # Done again, where the other was faster: what counts is the last time.
        order[:] = [*(what for what in order if what != "put"), "put"]
        return found

    writer = threading.Thread(target=store.run, args=(write,))
    writer.start()
    has_read.wait()
    found = store.run(put)
    writer.join()

    assert found == store.read(lambda txn: txn.records("a"))
    assert found == ({} if "refused" in order else {"one": b"1"})
    assert "refused" in order or order == ["written", "put"]


def test_all_small_records_are_listed_by_kind_and_name(store: Store) -> None:
    """A page at a time, whatever their values; the notice is none of them."""
    _put_records(store)
    store.run(lambda txn: txn.put_notice(b"x"))

    def page(after: tuple[str, str]) -> list[tuple[str, str, bytes]]:
        return store.read(lambda txn: txn.list_records(after=after, limit=2))

    pages = [page(after) for after in (("", ""), RECORDS[1][:2], RECORDS[3][:2], RECORDS[4][:2])]

    assert pages == [RECORDS[:2], RECORDS[2:4], RECORDS[4:], []]


def test_all_unique_keys_are_listed(store: Store) -> None:
    """By tenant, task and key, also those whose time has passed."""
    holders = [
        Unique(tenant="", task="t", key=b"\x00", job_id=1),
        Unique(tenant="", task="t", key=b"\xff", job_id=2, until_ms=NOW_MS),
        Unique(tenant="b", task="a", key=b"k", job_id=3, until_ms=1),
    ]
    store.run(lambda txn: txn.put_unique(holders[::-1]))

    first = store.read(lambda txn: txn.list_unique(after=("", "", b""), limit=2))
    rest = store.read(lambda txn: txn.list_unique(after=first[-1].id, limit=9))

    assert first + rest == holders
    assert store.read(lambda txn: txn.list_unique(after=holders[-1].id, limit=9)) == []


def test_all_domains_are_listed(store: Store) -> None:
    """Of all tenants, by tenant and name."""
    domains = [
        Domain(tenant="", name=b"\x00", tat_us=1),
        Domain(tenant="", name=b"z", running=2, due_ms=5),
        Domain(tenant="b", name=b"a", lanes={"t": Lane(held=3)}),
    ]
    store.run(lambda txn: txn.swap_domains(domains[::-1]))

    first = store.read(lambda txn: txn.list_all_domains(after=("", b""), limit=2))
    rest = store.read(lambda txn: txn.list_all_domains(after=first[-1].key, limit=9))

    assert first + rest == domains
    assert store.read(lambda txn: txn.list_all_domains(after=("b", b"a"), limit=9)) == []


def test_keys_of_a_log_are_listed_by_their_place(store: Store) -> None:
    """Those of trimmed items too, until they are forgotten; of one log only."""
    rows = [LogRow(n, None if n == 3 else bytes([n]), "1") for n in range(1, 7)]
    store.run(lambda txn: txn.append_log("a", rows))
    store.run(lambda txn: txn.append_log("b", rows[:1]))
    store.run(lambda txn: txn.trim_log("a", after=0, up_to=4, keys_up_to=1))

    first = store.read(lambda txn: txn.list_log_keys("a", after=0, limit=2))
    rest = store.read(lambda txn: txn.list_log_keys("a", after=4, limit=9))

    assert first == [(2, b"\x02"), (4, b"\x04")]
    assert rest == [(5, b"\x05"), (6, b"\x06")]


def test_turns_that_are_put_are_the_order_of_service(store: Store) -> None:
    """As if they had been served in another store: listed alike, and who was served last comes last."""
    jobs = [a_job(n, tenant=tenant, task="t") for n, tenant in enumerate(("", "a", "b"), start=1)]
    turns = [Turn("", "", 7), Turn("", "t", 7), Turn("a", "", 3), Turn("a", "t", 3), Turn("rest", "t", 5)]
    store.run(lambda txn: txn.put_turns(turns))
    add(store, *jobs)

    waiting = store.read(lambda txn: txn.waiting(WaitingQuery(limit=9)))
    listed = store.read(lambda txn: txn.list_turns())

    assert [lane.tenant for lane in waiting] == ["b", "a", ""]
    assert listed == turns
    claim(store, limit=1, tenant="b")
    assert Turn("b", "", 8) in store.read(lambda txn: txn.list_turns())


def test_turns_can_be_put_over_others(store: Store) -> None:
    """The later ones hold, and what is READY stays so."""
    add(store, a_job(1))
    claim(store, limit=1)
    add(store, a_job(2))
    store.run(lambda txn: txn.put_turns([Turn("", "", 9), Turn("", "t", 9)]))

    assert store.read(lambda txn: txn.list_turns()) == [Turn("", "", 9), Turn("", "t", 9)]
    assert [lane.task for lane in store.read(lambda txn: txn.waiting(WaitingQuery(limit=9)))] == ["t"]


def test_a_turn_of_a_tenant_alone_can_be_put(store: Store) -> None:
    """In a batch of which it is all."""
    store.run(lambda txn: txn.put_turns([Turn("a", "", 4)]))

    assert store.read(lambda txn: txn.list_turns()) == [Turn("a", "", 4)]


def test_a_job_goes_in_as_it_is(store: Store) -> None:
    """In any place, of any version, with its claim and its lease; a claim goes on from there."""
    running = a_job(
        1, place=Place.RUNNING, version=41, owner=9, claim=5, lease_until=NOW_MS + 1, started_at=NOW_MS
    )
    failed = a_job(2, place=Place.DONE, version=7, ended=State.FAILED, finished_at=NOW_MS, claim=2)
    ready = a_job(3, version=12, claim=3)
    add(store, running, failed, ready)

    assert live(store, 1, 2, 3) == {1: running, 2: failed, 3: ready}
    (claimed,) = claim(store)
    assert (claimed.version, claimed.claim) == (13, 4)


def test_an_archived_job_goes_in_as_it_is(store: Store) -> None:
    """Put in one version earlier and archived in the same batch, with both bodies."""
    old = a_job(1, place=Place.DONE, version=9, ended=State.FINISHED, finished_at=NOW_MS, has_result=True)

    def fn(txn: Any) -> None:
        txn.insert([(replace(old, version=8), b"\x00")])
        txn.archive([old], keep=True)
        txn.put_bodies({1: "3"}, result=True)

    store.run(fn)

    assert store.read(lambda txn: txn.archived([1])) == {1: old}
    assert live(store, 1) == {}
    assert store.read(lambda txn: (txn.bodies([1]), txn.bodies([1], result=True))) == ({1: b"\x00"}, {1: "3"})


def test_a_job_is_removed_and_put_in_anew_in_one_batch(store: Store) -> None:
    """So a copy of it is brought up to date, whatever became of it meanwhile."""
    before, after = a_job(1, version=3), a_job(1, place=Place.PAUSED, version=90)
    add(store, before)

    def fn(txn: Any) -> None:
        txn.remove([before])
        assert txn.insert([(after, "2")]) == set()

    store.run(fn)

    assert live(store, 1) == {1: after}
    assert store.read(lambda txn: txn.bodies([1])) == {1: "2"}
