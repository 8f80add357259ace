"""Jobs: adding, finding, replacing, removing, archiving; their bodies."""

import pytest

from ...core import rank
from ...core.errors import Unavailable
from ...core.job import Backoff, Body, Children, Code, Job, Outcome, Place, Progress, State
from ...store.contract import JobFilter, Store
from .making import NOW_MS, a_job, add, claim, ended, following, ids, live

EVERYTHING = Job(
    id=(1 << 63) - 1,
    task="résumé ✓",
    tenant="ten/ant",
    place=Place.HELD,
    rank=rank.ready(7, NOW_MS),
    version=1,
    priority=7,
    created_at=NOW_MS,
    run_at=NOW_MS + 1,
    scheduled_at=3,
    started_at=4,
    finished_at=5,
    expires_at=NOW_MS + 6,
    owner=2047,
    lease_until=8,
    claim=9,
    attempts=10,
    max_attempts=0,
    losses=11,
    max_losses=12,
    backoff=Backoff(first_ms=1, most_ms=2, jitter=0.5),
    timeout_ms=13,
    retry_after="+1 DAY",
    lapsed=True,
    repeat="every day",
    again_at=14,
    unique=b"\x00/\xff",
    unique_for_ms=15,
    domain=b"\x00/" + bytes(range(256)) * 4,
    schedule='quote " and \\',
    then='{"task":"next"}',
    parent_id=16,
    parent_claim=17,
    children=Children(pending=1, failed=2, kept=3),
    wait_for_failed=True,
    given=("attempts", "timeout"),
    mock=True,
    strict=True,
    cancel_requested=True,
    ended=State.FAILED,
    reason="reason\n\t'",
    progress=Progress(fraction=0.25, note="quarter"),
    outcome=Outcome(code=Code.ERROR, at=18, exit_code=-9, error="e", traceback="t"),
    errors=(Outcome(code=Code.RETRY, at=19),),
    size=20,
    has_result=True,
)


def test_a_job_comes_back_as_it_went_in(store: Store) -> None:
    """Every field, with its most awkward value, through insert, swap, archive and listing."""
    after, last = following(EVERYTHING, reason="swapped"), following(following(EVERYTHING))
    store.run(lambda txn: txn.insert([(EVERYTHING, "{}")]))
    assert live(store, EVERYTHING.id) == {EVERYTHING.id: EVERYTHING}

    store.run(lambda txn: txn.swap([after]))
    assert store.read(lambda txn: txn.jobs(JobFilter(), after=0, limit=9)) == [after]

    store.run(lambda txn: txn.archive([last], keep=True))
    assert store.read(lambda txn: txn.archived([last.id])) == {last.id: last}
    assert store.read(lambda txn: txn.jobs(JobFilter(archived=True), after=0, limit=9)) == [last]


def test_what_exists_is_not_added_again(store: Store) -> None:
    """Live, archived, or earlier in the same batch: left alone and told, and the others are added."""
    first, second = add(store, a_job(1), a_job(2), data='"old"')
    store.run(lambda txn: txn.archive([ended(second)], keep=True))
    again = [(a_job(n, reason="new"), '"new"') for n in (1, 2, 3, 3)]

    known = store.run(lambda txn: txn.insert(again))

    assert known == {1, 2, 3}
    assert live(store, 1, 2, 3) == {1: first, 3: a_job(3, reason="new")}
    assert store.read(lambda txn: txn.bodies([1, 2, 3])) == {1: '"old"', 2: '"old"', 3: '"new"'}


def test_ids_need_not_grow(store: Store) -> None:
    """A job whose id lies between or before others is added as any other."""
    add(store, a_job(50), a_job(100))

    assert store.run(lambda txn: txn.insert([(a_job(75), "{}"), (a_job(1), "{}")])) == set()
    assert live(store, 1, 50, 75, 100).keys() == {1, 50, 75, 100}


@pytest.mark.one_shard
def test_load_brings_the_parents(store: Store) -> None:
    """Of all that were asked for; what does not exist is left out."""
    add(store, a_job(1), a_job(2, parent_id=1), a_job(3, parent_id=1), a_job(4, parent_id=99))

    assert live(store, 2, 4, 77).keys() == {1, 2, 4}
    assert live(store) == {}


@pytest.mark.one_shard
def test_children_come_by_id(store: Store) -> None:
    """All of them or those in a place, from the first above a number, as many as wanted."""
    places = [Place.PAUSED, Place.DONE, Place.PAUSED, Place.READY, Place.PAUSED]
    add(store, a_job(9), *(a_job(n, parent_id=9, place=place) for n, place in enumerate(places, start=1)))

    def children(**asked: object) -> list[int]:
        return store.read(lambda txn: ids(txn.children(9, **({"limit": 9} | asked))))  # type: ignore[arg-type]

    assert children() == [1, 2, 3, 4, 5]
    assert children(limit=2) == [1, 2]
    assert children(after=2, limit=2) == [3, 4]
    assert children(place=Place.PAUSED) == [1, 3, 5]
    assert children(place=Place.PAUSED, after=1, limit=1) == [3]
    assert store.read(lambda txn: txn.children(0, limit=9)) == []


def test_bodies_are_kept_as_they_are(store: Store) -> None:
    """Text and bytes, of live and archived jobs, through everything that happens to the record."""
    odd: list[Body] = [
        '{"a": [1, 2.50, "é ✓ \\u0000 \\"" ] }',
        b"",
        b"\x00\xff'\"",
        "null",
        '"' + "x" * 100_000 + '"',
    ]
    jobs = [a_job(n) for n in range(1, 6)]
    store.run(lambda txn: txn.insert(list(zip(jobs, odd, strict=True))))
    store.run(lambda txn: txn.put_bodies({2: b"\x01", 3: '{"r": 1}', 4: ""}, result=True))

    claimed = claim(store)
    store.run(lambda txn: txn.archive([ended(job) for job in claimed], keep=True))

    assert store.read(lambda txn: txn.bodies(range(1, 9))) == dict(enumerate(odd, start=1))
    assert store.read(lambda txn: txn.bodies([2, 3, 4, 5], result=True)) == {2: b"\x01", 3: '{"r": 1}', 4: ""}
    assert store.read(lambda txn: txn.bodies([])) == {}


def test_bodies_are_replaced(store: Store) -> None:
    """Text by bytes and bytes by text, the result apart from the data."""
    add(store, a_job(1), data="1")

    store.run(lambda txn: txn.put_bodies({1: b"2"}))
    store.run(lambda txn: txn.put_bodies({1: b"3"}, result=True))
    store.run(lambda txn: txn.put_bodies({1: "4"}, result=True))

    assert store.read(lambda txn: (txn.bodies([1]), txn.bodies([1], result=True))) == ({1: b"2"}, {1: "4"})


@pytest.mark.one_shard
def test_a_swap_replaces_the_version_before(store: Store) -> None:
    """It moves the job in every order that it is part of."""
    job, other = add(store, a_job(1, task="a"), a_job(2, task="a"))
    moved = following(job, task="b", place=Place.SCHEDULED, rank=5, expires_at=9, domain=b"d", parent_id=2)

    store.run(lambda txn: txn.swap([moved]))

    with_all = store.read(
        lambda txn: [
            txn.first(Place.READY, rank.LAST, 9),
            txn.first(Place.SCHEDULED, rank.LAST, 9),
            txn.expiring(9, 9),
            txn.lineup(("", b"d"), "b", Place.SCHEDULED, last=False, limit=9),
            txn.children(2, limit=9),
        ]
    )
    assert with_all == [[other], [moved], [moved], [moved], [moved]]


@pytest.mark.parametrize("version", [1, 3])
def test_a_swap_of_another_version_is_refused_whole(store: Store, version: int) -> None:
    """The others of the batch are not written either; nor is a job that does not exist."""
    job, other = add(store, a_job(1), a_job(2))

    for wrong in (a_job(2, version=version), a_job(404, version=2)):
        with pytest.raises(Unavailable):
            store.run(lambda txn, wrong=wrong: txn.swap([following(job), wrong]))  # type: ignore[misc]

    assert live(store, 1, 2, 404) == {1: job, 2: other}


def test_a_removed_job_leaves_nothing(store: Store) -> None:
    """Neither data nor result; and its number is free again."""
    job, other = add(store, a_job(1), a_job(2))
    store.run(lambda txn: txn.put_bodies({1: "r", 2: "r"}, result=True))

    store.run(lambda txn: txn.remove([job]))

    assert live(store, 1, 2) == {2: other}
    assert store.read(lambda txn: (txn.bodies([1, 2]), txn.bodies([1, 2], result=True))) == (
        {2: "{}"},
        {2: "r"},
    )
    assert store.run(lambda txn: txn.insert([(job, "{}")])) == set()


def test_only_what_is_as_stored_is_removed_or_archived(store: Store) -> None:
    """Another version, or a job that does not exist, refuses the whole batch."""
    job, other = add(store, a_job(1), a_job(2))

    for wrong in (following(other), a_job(404)):
        with pytest.raises(Unavailable):
            store.run(lambda txn, wrong=wrong: txn.remove([job, wrong]))  # type: ignore[misc]
        with pytest.raises(Unavailable):
            store.run(lambda txn, wrong=wrong: txn.archive([ended(job), ended(wrong)], keep=True))  # type: ignore[misc]

    assert live(store, 1, 2) == {1: job, 2: other}
    assert store.read(lambda txn: txn.archived([1, 2, 404])) == {}


def test_the_archive_keeps_a_job_with_its_bodies(store: Store) -> None:
    """It is no longer live; without `keep` nothing of it remains."""
    kept, gone = add(store, a_job(1), a_job(2))
    store.run(lambda txn: txn.put_bodies({1: "r", 2: "r"}, result=True))

    store.run(lambda txn: txn.archive([ended(kept)], keep=True))
    store.run(lambda txn: txn.archive([ended(gone)], keep=False))

    assert live(store, 1, 2) == {}
    assert store.read(lambda txn: txn.archived([1, 2])) == {1: ended(kept)}
    assert store.read(lambda txn: (txn.bodies([1, 2]), txn.bodies([1, 2], result=True))) == (
        {1: "{}"},
        {1: "r"},
    )


def test_what_is_forgotten_is_gone(store: Store) -> None:
    """With its bodies; what is not there may be forgotten too."""
    jobs = add(store, a_job(1), a_job(2))
    store.run(lambda txn: txn.archive([ended(job) for job in jobs], keep=True))

    store.run(lambda txn: txn.forget([1, 404]))

    assert store.read(lambda txn: txn.archived([1, 2])).keys() == {2}
    assert store.read(lambda txn: txn.bodies([1, 2])).keys() == {2}


@pytest.mark.one_shard
def test_purge_takes_the_oldest_of_the_archive(store: Store) -> None:
    """Those that ended before a moment, of one tenant or all, first ones first, and returns them."""
    jobs = add(store, *(a_job(n, tenant="ab"[n % 2]) for n in range(1, 7)))
    done = [ended(job, at=NOW_MS - job.id // 2) for job in jobs]
    store.run(lambda txn: txn.archive(done, keep=True))

    def purge(**asked: object) -> list[int]:
        return store.run(lambda txn: ids(txn.purge(NOW_MS, **({"tenant": None, "limit": 9} | asked))))  # type: ignore[arg-type]

    assert purge(tenant="a", limit=2) == [6, 4]
    assert purge(limit=2) == [5, 2]
    assert purge() == [3]
    assert store.read(lambda txn: ids(txn.jobs(JobFilter(archived=True), after=0, limit=9))) == [1]
    assert store.read(lambda txn: txn.bodies(range(1, 7))).keys() == {1}
