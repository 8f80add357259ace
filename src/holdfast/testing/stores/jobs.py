"""Jobs: adding, finding, replacing, removing, archiving; their bodies."""

from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace

from ...core import rank
from ...core.job import Backoff, Body, Children, Code, Job, JobProgress, Outcome, Place, State, size_of
from ...store.contract import Changes, JobFilter, NewJobs, Store, Txn
from .making import (
    DATA,
    NOW_MS,
    a_job,
    add,
    bodies,
    claim,
    commit,
    ended,
    following,
    ids,
    live,
    new_jobs,
    refuse,
)

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
    progress=JobProgress(fraction=0.25, note="quarter"),
    outcome=Outcome(code=Code.ERROR, at=18, exit_code=-9, error="e", traceback="t"),
    errors=(Outcome(code=Code.RETRY, at=19),),
    size=20,
    has_result=True,
)


def test_a_job_comes_back_as_it_went_in(store: Store) -> None:
    """Every field, with its most awkward value, added, swapped, archived and listed."""
    after, last = following(EVERYTHING, reason="swapped"), following(following(EVERYTHING))
    add(store, EVERYTHING, data="x" * 20)
    assert live(store, EVERYTHING.id) == {EVERYTHING.id: EVERYTHING}

    commit(store, swapped=[after])
    assert store.read(lambda txn: txn.jobs(JobFilter(), after=0, limit=9)) == [after]

    commit(store, archived=[last])
    assert store.read(lambda txn: txn.archived([last.id])) == {last.id: last}
    assert store.read(lambda txn: txn.jobs(JobFilter(archived=True), after=0, limit=9)) == [last]


def test_jobs_alike_are_added_with_data_of_their_own(store: Store) -> None:
    """Several groups at once; all but id, data and size is that of the template. Ids need not grow."""
    first, second = a_job(0, task="a", version=7, attempts=3), a_job(0, place=Place.SCHEDULED, tenant="x")
    rows: dict[int, Body] = {50: "1", 7: b"\x00\xff", 9: '"é"'}
    groups = [NewJobs(first, list(rows.items())), NewJobs(second, [(8, "")]), NewJobs(second, [])]

    commit(store, added=groups)

    expected = {id: replace(first, id=id, size=size_of(data)) for id, data in rows.items()}
    assert live(store, 7, 8, 9, 50) == expected | {8: replace(second, id=8, size=0)}
    assert bodies(store, 7, 8, 9, 50) == (rows | {8: ""}, {})


@pytest.mark.parametrize("known", ["live", "archived"])
def test_an_id_that_exists_refuses_the_batch_whole(store: Store, known: str) -> None:
    """Alone, in the middle of a group of many, or in another group: nothing of the batch is written."""
    (job,) = add(store, a_job(700), data='"old"')
    if known == "archived":
        commit(store, archived=[ended(job)])
    many = new_jobs(a_job(n) for n in range(1, 1001))
    asked = [
        Changes(added=new_jobs([a_job(700, reason="new")])),
        Changes(added=many, rows={("k", "a"): b"1"}),
        Changes(added=new_jobs([a_job(1, task="u"), a_job(700), a_job(2)])),
    ]

    for changes in asked:
        refuse(store, changes)

    assert live(store, 1, 2, 699, 700, 1000) == ({700: job} if known == "live" else {})
    assert store.read(lambda txn: (txn.bodies([1, 700]), txn.rows("k"))) == ({700: '"old"'}, {})


def test_a_batch_that_meets_a_known_id_is_done_again_and_may_leave_it_out(store: Store) -> None:
    """As the engine does, which looks up the ids that callers give."""
    add(store, a_job(2), data='"old"')
    tries: list[Collection[int]] = []

    def fn(txn: Txn) -> tuple[Changes, int]:
        tries.append(txn.load([1, 2, 3]).keys() if tries else ())
        return Changes(added=new_jobs(a_job(n) for n in (1, 2, 3) if n not in tries[-1])), len(tries)

    assert store.run(fn) == 2
    assert bodies(store, 1, 2, 3) == ({1: DATA, 2: '"old"', 3: DATA}, {})


def test_a_job_is_added_and_archived_in_one_batch(store: Store) -> None:
    """One version earlier: so it goes in as it is, with both bodies, and was never claimable."""
    old = a_job(1, version=9, ended=State.FINISHED, finished_at=NOW_MS, has_result=True, place=Place.DONE)
    others = [a_job(n, reason="alike") for n in range(2, 30)]
    added = [*new_jobs([replace(old, version=8)], b"\x00"), *new_jobs(others)]

    commit(store, added=added, archived=[replace(old, size=1), *map(ended, others[:-1])], results={1: "3"})

    assert live(store, *range(1, 30)) == {29: others[-1]}
    found = store.read(lambda txn: txn.archived(range(1, 30)))
    assert found == {1: replace(old, size=1)} | {job.id: ended(job) for job in others[:-1]}
    assert bodies(store, 1, 2, 29) == ({1: b"\x00", 2: DATA, 29: DATA}, {1: "3"})
    assert ids(claim(store)) == [29]


def test_a_job_is_added_and_removed_in_one_batch(store: Store) -> None:
    """Nothing of it remains; the others of its group do."""
    jobs = [a_job(n) for n in (1, 2, 3)]

    commit(store, added=new_jobs(jobs), removed=[jobs[1]], rows={("k", "a"): b"1"})

    assert live(store, 1, 2, 3).keys() == {1, 3}
    assert bodies(store, 1, 2, 3)[0].keys() == {1, 3}
    assert ids(claim(store)) == [1, 3]


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


def test_a_job_is_removed_and_put_in_anew_in_one_batch(store: Store) -> None:
    """So a copy of it is brought up to date, whatever became of it meanwhile."""
    before, after = a_job(1, version=3), a_job(1, place=Place.PAUSED, version=90)
    add(store, before)

    def fn(txn: Txn) -> tuple[Changes, None]:
        txn.write(Changes(removed=[before]))
        return Changes(added=new_jobs([after], '"2"')), None

    store.run(fn)

    assert live(store, 1) == {1: replace(after, size=3)}
    assert bodies(store, 1) == ({1: '"2"'}, {})


def test_load_brings_the_parents(store: Store) -> None:
    """Of all that were asked for; what does not exist is left out."""
    add(store, a_job(1), a_job(2, parent_id=1), a_job(3, parent_id=1), a_job(4, parent_id=99))

    assert live(store, 2, 4, 77).keys() == {1, 2, 4}
    assert live(store) == {}


def test_children_come_by_id(store: Store) -> None:
    """All of them or those in a place, from the first above a number, as many as wanted."""
    places = [Place.PAUSED, Place.DONE, Place.PAUSED, Place.READY, Place.PAUSED]
    add(store, a_job(9), *(a_job(n, parent_id=9, place=place) for n, place in enumerate(places, start=1)))

    def children(**asked: Any) -> list[int]:
        return store.read(lambda txn: ids(txn.children(9, **({"limit": 9} | asked))))

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
    commit(store, added=[NewJobs(a_job(0), list(enumerate(odd, start=1)))])
    commit(store, results={2: b"\x01", 3: '{"r": 1}', 4: ""})

    claimed = claim(store)
    commit(store, archived=[ended(job) for job in claimed])

    data, results = bodies(store, *range(1, 9))
    assert data == dict(enumerate(odd, start=1))
    assert results == {2: b"\x01", 3: '{"r": 1}', 4: ""}
    assert bodies(store) == ({}, {})


def test_bodies_are_replaced(store: Store) -> None:
    """Text by bytes and bytes by text, the result apart from the data; of a swapped job too."""
    (job,) = add(store, a_job(1), data="1")

    commit(store, data={1: b"2"}, results={1: b"3"})
    commit(store, swapped=[following(job, size=5)], results={1: "4"})

    assert bodies(store, 1) == ({1: b"2"}, {1: "4"})


def test_a_swap_replaces_the_version_before(store: Store) -> None:
    """It moves the job in every order that it is part of."""
    job, other = add(store, a_job(1, task="a"), a_job(2, task="a"))
    moved = following(job, task="b", place=Place.SCHEDULED, rank=5, expires_at=9, domain=b"d", parent_id=2)

    commit(store, swapped=[moved])

    with_all = store.read(
        lambda txn: [
            txn.first(Place.READY, rank.LAST, 9),
            txn.first(Place.SCHEDULED, rank.LAST, 9),
            txn.expiring(9, 9),
            txn.domain_queue(("", b"d"), "b", Place.SCHEDULED, last=False, limit=9),
            txn.children(2, limit=9),
        ]
    )
    assert with_all == [[other], [moved], [moved], [moved], [moved]]


def test_another_version_than_the_stored_one_refuses_the_batch_whole(store: Store) -> None:
    """To be swapped, archived or removed; nor may it be a job that does not exist, or that is archived."""
    job, other, gone = add(store, a_job(1), a_job(2), a_job(3))
    commit(store, archived=[ended(gone)])
    rows = {("k", "a"): b"1"}
    refused = [
        *(Changes(swapped=[following(job), a_job(2, version=v)], rows=rows) for v in (1, 3)),
        Changes(swapped=[following(job), a_job(404, version=2)], rows=rows),
        Changes(archived=[ended(job), ended(following(other))], rows=rows),
        Changes(archived=[ended(job), a_job(404, version=2)], rows=rows),
        Changes(archived=[ended(job), following(ended(gone))], rows=rows),
        Changes(removed=[job, following(other)], rows=rows),
        Changes(removed=[job, a_job(404)], rows=rows),
        Changes(removed=[job, ended(gone)], rows=rows),
        Changes(swapped=[following(job)], archived=[ended(following(other))], rows=rows),
    ]

    for changes in refused:
        refuse(store, changes)

    assert live(store, 1, 2, 3, 404) == {1: job, 2: other}
    found = store.read(lambda txn: (txn.archived([1, 2, 3, 404]), txn.rows("k")))
    assert found == ({3: ended(gone)}, {})


def test_the_archive_keeps_a_job_with_its_bodies_and_removed_jobs_leave_nothing(store: Store) -> None:
    """Neither is live any more; the number of the removed one is free again."""
    kept, gone, other = add(store, a_job(1), a_job(2), a_job(3))
    commit(store, results={1: "r", 2: "r", 3: "r"})

    commit(store, archived=[ended(kept)], removed=[gone])

    assert live(store, 1, 2, 3) == {3: other}
    assert store.read(lambda txn: txn.archived([1, 2])) == {1: ended(kept)}
    assert bodies(store, 1, 2, 3) == ({1: DATA, 3: DATA}, {1: "r", 3: "r"})
    add(store, gone)


def test_what_is_forgotten_is_gone(store: Store) -> None:
    """With its bodies; what is not in the archive refuses the batch whole."""
    *jobs, other = add(store, a_job(1), a_job(2), a_job(3))
    commit(store, archived=[ended(job) for job in jobs], results={1: "r"})

    for wrong in (404, other.id):
        refuse(store, Changes(forgotten=[1, wrong], rows={("k", "a"): b"1"}))
    assert bodies(store, 1, 2, 3) == (dict.fromkeys((1, 2, 3), DATA), {1: "r"})

    commit(store, forgotten=[1])

    assert store.read(lambda txn: (set(txn.archived([1, 2])), txn.rows("k"))) == ({2}, {})
    assert bodies(store, 1, 2, 3) == (dict.fromkeys((2, 3), DATA), {})


def test_the_oldest_of_the_archive_are_found(store: Store) -> None:
    """Those that ended before a moment, of one tenant or all, by (finished_at, id)."""
    jobs = add(store, *(a_job(n, tenant="ab"[n % 2]) for n in range(1, 7)))
    commit(store, archived=[ended(job, at=NOW_MS - job.id // 2) for job in jobs])

    def found(before_ms: int = NOW_MS, tenant: str | None = None, limit: int = 9) -> list[int]:
        return store.read(lambda txn: ids(txn.ended(before_ms, tenant=tenant, limit=limit)))

    assert found() == [6, 4, 5, 2, 3]
    assert found(tenant="a", limit=2) == [6, 4]
    assert found(limit=2) == [6, 4]
    assert found(NOW_MS - 2) == [6]

    commit(store, forgotten=found(limit=4))

    assert found(NOW_MS + 1) == [3, 1]
    assert bodies(store, *range(1, 7))[0].keys() == {1, 3}
