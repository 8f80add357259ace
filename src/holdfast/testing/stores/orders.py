"""The orders that a store keeps: by place, by expiry, by domain; listings, counts and moments."""

from typing import Any

import pytest
from msgspec.structs import replace

from ...core import rank
from ...core.history import NO_PLACE
from ...core.job import Job, Place, State
from ...core.kinds import DOMAIN
from ...store.contract import CountKey, JobFilter, Moments, Store, TallyKey
from .making import a_job, add, commit, ended, ids

READY_QUEUED = CountKey("", "t", Place.READY, State.QUEUED)


def test_first_goes_by_rank_then_id(store: Store) -> None:
    """In every place, up to a rank, as many as wanted."""
    for at, place in enumerate(Place):
        base = at * 10
        ranks = {base + 1: 30, base + 2: 10, base + 3: 20, base + 4: 10}
        add(store, *(a_job(n, place=place, rank=r) for n, r in ranks.items()))

        def first(up_to: int, limit: int, place: Place = place) -> list[int]:
            return store.read(lambda txn: ids(txn.first(place, up_to, limit)))

        assert first(100, 10) == [base + n for n in (2, 4, 3, 1)]
        assert first(20, 10) == [base + n for n in (2, 4, 3)]
        assert first(100, 2) == [base + n for n in (2, 4)]
        assert first(9, 10) == []


def test_only_what_waits_expires(store: Store) -> None:
    """Neither running nor ended jobs; the earliest first."""
    add(store, *(a_job(n, place=place, expires_at=100 - n) for n, place in enumerate(Place, start=1)))
    add(store, a_job(50), a_job(51, expires_at=200))

    assert store.read(lambda txn: ids(txn.expiring(100, 9))) == [5, 3, 2, 1]
    assert store.read(lambda txn: ids(txn.expiring(97, 1))) == [5]


LISTED = [
    a_job(1, place=Place.SCHEDULED, tenant="a"),
    a_job(2, task="u", domain=b"d"),
    a_job(3, place=Place.HELD, domain=b"d", tenant="a"),
    a_job(4, lapsed=True, schedule="s"),
    a_job(5, place=Place.RUNNING),
    a_job(6, place=Place.RUNNING, retry_after=9, parent_id=7),
    a_job(7, place=Place.PAUSED),
    a_job(8, place=Place.DONE, ended=State.FAILED, parent_id=7),
    a_job(9, place=Place.DONE, ended=State.FINISHED, parent_id=7, schedule="s"),
    a_job(10, place=Place.DONE, ended=State.CANCELLED, domain=b""),
    a_job(11, place=Place.RUNNING, retry_after="+1 DAY"),
]
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ({"tenant": "a"}, [1, 3]),
    ({"tenant": "", "task": "u"}, [2]),
    ({"task": "t", "place": Place.READY}, [4]),
    ({"state": State.QUEUED}, [1, 2, 3]),
    ({"state": State.RUNQUEUED}, [4, 6, 11]),
    ({"state": State.RUNNING}, [5]),
    ({"state": State.PAUSED}, [7]),
    ({"state": State.FAILED}, [8]),
    ({"state": State.FINISHED}, [9]),
    ({"state": State.CANCELLED}, [10]),
    ({"place": Place.SCHEDULED}, [1]),
    ({"place": Place.HELD}, [3]),
    ({"place": Place.RUNNING}, [5, 6, 11]),
    ({"place": Place.DONE}, [8, 9, 10]),
    ({"place": Place.DONE, "state": State.QUEUED}, []),
    ({"domain": b"d"}, [2, 3]),
    ({"domain": b"d", "tenant": "a"}, [3]),
    ({"domain": b""}, [10]),
    ({"parent_id": 7}, [6, 8, 9]),
    ({"parent_id": 7, "state": State.FAILED}, [8]),
    ({"parent_id": 0}, [1, 2, 3, 4, 5, 7, 10, 11]),
    ({"schedule": "s"}, [4, 9]),
    ({"schedule": "", "place": Place.DONE}, [8, 10]),
]


@pytest.mark.parametrize(("asked", "found"), FILTERS, ids=str)
def test_a_listing_has_what_matches(store: Store, asked: dict[str, Any], found: list[int]) -> None:
    """By id, and page by page the same."""
    add(store, *LISTED)

    def listed(after: int, limit: int) -> list[int]:
        return store.read(lambda txn: ids(txn.jobs(JobFilter(**asked), after=after, limit=limit)))

    pages, after = [], 0
    while page := listed(after, 2):
        pages += page
        after = page[-1]

    assert listed(0, 100) == found
    assert pages == found


def test_a_listing_of_the_archive_has_what_matches(store: Store) -> None:
    """It is a listing of its own: nothing of it among the live ones, nothing live in it."""
    jobs = add(
        store, a_job(1, domain=b"\x00d", tenant="a"), a_job(2, parent_id=9), a_job(3, schedule="s"), a_job(4)
    )
    done = [ended(job, State.CANCELLED if job.id == 2 else State.FINISHED) for job in jobs[:3]]
    commit(store, archived=done)
    asked: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1, 2, 3]),
        ({"tenant": "a"}, [1]),
        ({"task": "u"}, []),
        ({"state": State.CANCELLED}, [2]),
        ({"state": State.QUEUED}, []),
        ({"place": Place.DONE}, [1, 2, 3]),
        ({"place": Place.READY}, []),
        ({"domain": b"\x00d"}, [1]),
        ({"parent_id": 9}, [2]),
        ({"parent_id": 0}, [1, 3]),
        ({"schedule": "s"}, [3]),
        ({"schedule": ""}, [1, 2]),
    ]

    for filters, found in asked:
        query = JobFilter(archived=True, **filters)
        assert store.read(lambda txn, query=query: ids(txn.jobs(query, after=0, limit=9))) == found, filters  # type: ignore[misc]

    assert store.read(lambda txn: ids(txn.jobs(JobFilter(), after=0, limit=9))) == [4]
    assert store.read(lambda txn: ids(txn.jobs(JobFilter(archived=True), after=1, limit=1))) == [2]


def test_the_queue_of_a_domain_is_one_task_of_one_domain_in_one_place(store: Store) -> None:
    """The first by (rank, id), or the last, backwards; names may hold any byte."""
    name = b"\x00/" + b"\xff" * 1022
    stand = {1: 30, 2: 10, 3: 20, 4: 10}
    add(store, *(a_job(n, place=Place.HELD, domain=name, rank=r) for n, r in stand.items()))
    add(store, a_job(5, domain=name), a_job(6, place=Place.HELD, domain=name, task="u"))
    add(
        store,
        a_job(7, place=Place.HELD, domain=name[:-1]),
        a_job(8, place=Place.HELD, domain=name, tenant="x"),
    )

    def queue(last: bool, limit: int) -> list[int]:
        return store.read(
            lambda txn: ids(txn.domain_queue(("", name), "t", Place.HELD, last=last, limit=limit))
        )

    assert queue(last=False, limit=9) == [2, 4, 3, 1]
    assert queue(last=False, limit=1) == [2]
    assert queue(last=True, limit=3) == [1, 3, 4]


def test_the_jobs_of_a_domain_are_counted_by_task_and_place(store: Store) -> None:
    """READY, HELD and RUNNING ones, of that tenant."""
    places = [Place.READY, Place.READY, Place.HELD, Place.RUNNING, Place.SCHEDULED, Place.PAUSED, Place.DONE]
    add(store, *(a_job(n, place=place, domain=b"d") for n, place in enumerate(places, start=1)))
    add(store, a_job(20, domain=b"d", task="u"), a_job(21, domain=b"d", tenant="x"), a_job(22))

    keys = [("", b"d"), ("x", b"d"), ("", b"e")]
    counts = store.read(lambda txn: txn.domain_counts(keys))

    assert counts[keys[0]] == {
        ("t", Place.READY): 2,
        ("t", Place.HELD): 1,
        ("t", Place.RUNNING): 1,
        ("u", Place.READY): 1,
    }
    assert counts[keys[1]] == {("t", Place.READY): 1}
    assert not counts.get(keys[2])


def test_counts_are_kept_as_told(store: Store) -> None:
    """Differences are added; what comes to zero vanishes; a tenant sees its own."""
    other = CountKey("x", "t", Place.DONE, State.FAILED)
    commit(store, counts={READY_QUEUED: 3, other: 1})
    commit(store, counts={READY_QUEUED: -1})

    assert store.read(lambda txn: txn.counts()) == {READY_QUEUED: 2, other: 1}
    assert store.read(lambda txn: txn.counts(tenant="x")) == {other: 1}

    commit(store, counts={READY_QUEUED: -2, other: 0})
    assert store.read(lambda txn: txn.counts()) == {other: 1}


def test_counts_are_read_in_pages_and_for_all_tenants_together(store: Store) -> None:
    """Pages are in order of tenant and task; the totals are those of all tenants, perhaps of one task."""
    keys = [
        CountKey(tenant, task, Place.READY, State.QUEUED) for tenant in ("", "a", "é") for task in ("t", "u")
    ]
    tally = TallyKey("a", "t", NO_PLACE, "finished")
    commit(store, counts={key: number for number, key in enumerate(reversed(keys), 1)}, tallies={tally: 9})

    def page(*after: str, **options: Any) -> list[CountKey]:
        return list(store.read(lambda txn: txn.counts(after=(after[0], after[1]), **options)))

    assert page("", "", limit=4) == keys[:4]
    assert page("a", "t", limit=2) == keys[3:5]
    assert page("a", "", limit=9) == keys[2:]
    assert page("a", "t", limit=9, tenant="a") == keys[3:4]
    assert page("é", "u", limit=9) == []
    totals = store.read(lambda txn: (txn.totals(), txn.totals(task="u")))
    assert totals == ({keys[0]: 6 + 4 + 2, keys[1]: 5 + 3 + 1}, {keys[1]: 5 + 3 + 1})


def test_tallies_are_kept_beside_the_counts(store: Store) -> None:
    """Differences are added, also those of a count in the same batch; what comes to zero vanishes."""
    done, ran = (TallyKey("", "t", NO_PLACE, kind) for kind in ("finished", "run_ms"))
    commit(store, counts={READY_QUEUED: 1}, tallies={done: 2, ran: 5_000_000_000})
    commit(store, tallies={done: 1})

    assert store.read(lambda txn: txn.tallies()) == {done: 3, ran: 5_000_000_000}
    assert store.read(lambda txn: txn.counts()) == {READY_QUEUED: 1}
    assert store.read(lambda txn: txn.named("", "t", mock=False)) is None

    commit(store, tallies={done: -3, ran: -5_000_000_000})
    assert store.read(lambda txn: txn.tallies()) == {}


def test_a_listing_goes_backwards_between_two_ids(store: Store) -> None:
    """Live jobs and archived ones, those of a place that is found by an index too."""
    add(store, *(a_job(n, place=Place.DONE if n % 2 else Place.READY) for n in range(1, 9)))
    old = [a_job(n, place=Place.DONE) for n in range(21, 25)]
    add(store, *old)
    commit(store, archived=[replace(job, version=2) for job in old])

    def ids(before: int, after: int = 0, limit: int = 9, **asked: Any) -> list[int]:
        query = JobFilter(**asked)
        found = store.read(lambda txn: txn.jobs(query, after=after, before=before, limit=limit))
        return [job.id for job in found]

    assert ids(8) == [7, 6, 5, 4, 3, 2, 1]
    assert ids(100, limit=3) == [8, 7, 6]
    assert ids(8, after=2, place=Place.READY) == [6, 4]
    assert ids(100, place=Place.DONE) == [7, 5, 3, 1]
    assert ids(6, after=1, place=Place.DONE) == [5, 3]
    assert ids(24, archived=True) == [23, 22, 21]
    assert ids(24, after=21, archived=True, limit=1) == [23]


def test_the_head_of_a_task_is_its_first_ready_job(store: Store) -> None:
    """By rank and id, of each tenant's task; none where no job is READY, and no mocked one."""
    jobs = [a_job(1, rank=9), a_job(2, rank=3), a_job(3, rank=3), a_job(4, tenant="x", rank=1)]
    jobs += [a_job(5, task="u", place=Place.SCHEDULED), a_job(6, task="v", mock=True)]
    add(store, *jobs)
    commit(store, counts={READY_QUEUED: 3})

    found = store.read(lambda txn: txn.heads([("", "t"), ("x", "t"), ("", "u"), ("", "v"), ("", "w")]))

    assert {pair: job.id for pair, job in found.items()} == {("", "t"): 2, ("x", "t"): 4}
    assert store.read(lambda txn: txn.heads([])) == {}


def test_moments_are_the_first_of_their_kind(store: Store) -> None:
    """A running job without a lease, or a job that is never due, has none."""
    assert store.read(lambda txn: txn.moments()) == Moments(None, None, None, None)
    add(store, a_job(1, place=Place.RUNNING), a_job(2, place=Place.RUNNING, expires_at=3))
    assert store.read(lambda txn: txn.moments()) == Moments(None, None, None, None)

    scheduled = [a_job(n, place=Place.SCHEDULED, run_at=20 - n, expires_at=40 - n) for n in (11, 12)]
    add(store, *scheduled, a_job(13, place=Place.RUNNING, lease_until=7))
    rows = {(DOMAIN, "d"): b"1", (DOMAIN, "e"): b"1", ("k", "d"): b"1"}
    commit(store, rows=rows, dues={(DOMAIN, "d"): 5, ("k", "d"): 2})

    assert store.read(lambda txn: txn.moments()) == Moments(scheduled=8, running=7, expiring=28, domains=5)
    assert store.read(lambda txn: txn.moments().first) == 5

    commit(store, rows={(DOMAIN, "d"): b"2"}, dues={(DOMAIN, "d"): 6})
    assert store.read(lambda txn: txn.moments().domains) == 6
    commit(store, rows={(DOMAIN, "d"): b"2"})
    assert store.read(lambda txn: txn.moments().domains) is None


def test_ranks_and_times_may_be_as_large_as_they_get(store: Store) -> None:
    """2**53 − 1, exactly."""
    add(store, a_job(1, rank=rank.LAST), a_job(2, rank=rank.LAST - 1))

    found: list[Job] = store.read(lambda txn: txn.first(Place.READY, rank.LAST, 9))

    assert [(job.id, job.rank) for job in found] == [(2, rank.LAST - 1), (1, rank.LAST)]
