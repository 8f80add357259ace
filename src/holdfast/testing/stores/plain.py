"""Plain commits and leases, which need no batch: what they write, and what they refuse."""

from functools import partial
from typing import Any

import pytest

from ...core.bounds import CLAIM_BYTES
from ...core.job import Body, Job, Place
from ...core.kinds import DOMAIN, PAUSE, STEPS, name_of
from ...store.contract import (
    JOBS,
    Changes,
    Leased,
    NewJobs,
    Store,
    counts_of_lease,
    leased_all,
)
from .making import NOW_MS, a_job, a_query, add, claim, commit, ended, following, ids, live, look, race, tally

RESULT = '"done"'


@pytest.fixture
def plain(store: Store) -> Store:
    """A store that has plain commits; a store may leave all of them to batches."""
    if not store.commit(Changes()):
        pytest.skip("this store runs everything in batches")
    return store


def fresh(*jobs: Job, data: Body = "{}") -> Changes:
    """What the engine writes to add these."""
    groups = [NewJobs(job, [(job.id, data)], is_fresh=True) for job in jobs]
    return Changes(added=groups, counts=tally(jobs), wake=JOBS)


def lease(store: Store, **fields: Any) -> list[Leased] | None:
    """Lease as owner 7 for a minute from NOW_MS, or as told; None if that was refused."""
    leased: list[Leased] = []
    return leased if store.lease(a_query(**fields), leased) else None


def counted(store: Store) -> dict[Any, int]:
    """All counts."""
    return store.read(lambda txn: txn.counts())


@pytest.mark.parametrize("data", ['{"n": 1}', b"\x00\xff", '"' + "x" * 9_000 + '"'])
def test_a_plain_commit_adds_a_job_with_data_and_count(plain: Store, data: Body) -> None:
    """As a batch would."""
    job = a_job(64, size=len(data))

    assert plain.commit(fresh(job, data=data))

    assert live(plain, 64) == {64: job}
    assert plain.read(lambda txn: txn.bodies([64])) == {64: data}
    assert counted(plain) == tally([job])
    assert ids(claim(plain)) == [64]


@pytest.mark.parametrize(
    "fields", [{"mock": True}, {"expires_at": NOW_MS + 5_000}, {"schedule": "nightly"}, {"priority": 9}]
)
def test_a_plain_commit_adds_a_job_with_every_field(plain: Store, fields: dict[str, Any]) -> None:
    """Also those that few jobs have."""
    job = a_job(64, **fields)

    assert plain.commit(fresh(job))

    assert live(plain, 64) == {64: job}
    assert counted(plain) == tally([job])


def test_a_plain_commit_adds_many_jobs(plain: Store) -> None:
    """Of several kinds; those that are alike are one group."""
    kinds = [a_job(1, task="a", size=3), a_job(50, task="b", place=Place.SCHEDULED, run_at=NOW_MS + 9)]
    groups = [NewJobs(kinds[0], [(n, f'"{n}"') for n in range(1, 9)], is_fresh=True)]
    groups.append(NewJobs(kinds[1], [(50, "{}")], is_fresh=True))
    jobs = [job for group in groups for job, _ in group.jobs()]

    assert plain.commit(Changes(added=groups, counts=tally(jobs), wake=JOBS))

    assert live(plain, *ids(jobs)) == {job.id: job for job in jobs}
    assert plain.read(lambda txn: txn.bodies([3, 50])) == {3: '"3"', 50: "{}"}
    assert counted(plain) == tally(jobs)


def test_a_plain_commit_with_an_id_that_exists_writes_nothing(plain: Store) -> None:
    """Neither the job nor its neighbour, nor a count."""
    (there,) = add(plain, a_job(1, reason="first"))

    assert not plain.commit(fresh(a_job(1, reason="second")))
    assert not plain.commit(fresh(a_job(2), a_job(1)))

    assert live(plain, 1, 2) == {1: there}
    assert counted(plain) == tally([there])


def test_a_reserved_id_of_an_archived_job_is_refused(plain: Store) -> None:
    """An add whose reply was lost is sent again, also after its job has ended."""
    (job,) = add(plain, a_job(1))
    commit(plain, archived=[ended(job)])
    again = Changes(added=[NewJobs(a_job(1), [(1, "{}")])], counts=tally([a_job(1)]), wake=JOBS)

    assert not plain.commit(again)
    assert plain.commit(Changes(added=[NewJobs(a_job(2), [(2, "{}")])], counts=tally([a_job(2)]), wake=JOBS))

    assert sorted(live(plain, 1, 2)) == [2]


def test_a_plain_commit_ends_a_job(plain: Store) -> None:
    """It is in the archive with data and result; one of another version changes nothing."""
    (job,) = add(plain, a_job(1, place=Place.RUNNING, owner=7, lease_until=NOW_MS + 9, version=3), data="[1]")
    after = ended(job)
    counts = tally([job], by=-1) | tally([after])
    late = Changes(archived=[following(after)], results={1: RESULT}, counts=counts)

    assert not plain.commit(late)
    assert live(plain, 1) == {1: job}
    assert plain.commit(Changes(archived=[after], results={1: RESULT}, counts=counts))
    assert not plain.commit(Changes(archived=[after], results={1: RESULT}, counts=counts))

    assert plain.read(lambda txn: (txn.load([1]), txn.archived([1]))) == ({}, {1: after})
    assert plain.read(lambda txn: txn.bodies([1])) == {1: "[1]"}
    assert plain.read(lambda txn: txn.bodies([1], result=True)) == {1: RESULT}
    assert counted(plain) == tally([after])


def test_a_plain_commit_replaces_jobs(plain: Store) -> None:
    """All of them or none."""
    first, second = add(plain, a_job(1), a_job(2))
    after = [following(first, reason="x"), following(second, reason="y")]

    assert not plain.commit(Changes(swapped=[after[0], following(after[1])], results={1: RESULT}))
    assert live(plain, 1, 2) == {1: first, 2: second}
    assert plain.commit(Changes(swapped=after, results={1: RESULT}, data={2: '"new"'}))

    assert live(plain, 1, 2) == {1: after[0], 2: after[1]}
    assert plain.read(lambda txn: txn.bodies([1], result=True)) == {1: RESULT}
    assert plain.read(lambda txn: txn.bodies([1, 2])) == {1: "{}", 2: '"new"'}


def test_a_plain_commit_keeps_a_step(plain: Store) -> None:
    """With the job that has it, or neither."""
    (job,) = add(plain, a_job(1, place=Place.RUNNING, owner=7, lease_until=NOW_MS + 9))
    after, key = following(job, steps=1), name_of("1", "1")

    assert not plain.commit(Changes(swapped=[following(after)], rows={(STEPS, key): b"{}"}))
    assert plain.read(lambda txn: txn.rows(STEPS)) == {}
    assert plain.commit(Changes(swapped=[after], rows={(STEPS, key): b'{"name":"a"}'}))

    assert live(plain, 1) == {1: after}
    assert plain.read(lambda txn: txn.rows(STEPS)) == {key: b'{"name":"a"}'}


def test_a_plain_commit_may_add_a_job_beside_other_changes(plain: Store) -> None:
    """One message may have an add and the answer of another job, whatever becomes of that."""
    first, second, third = add(plain, *(a_job(n, place=Place.RUNNING, owner=7) for n in (1, 2, 3)))
    again = following(first, place=Place.READY, owner=0)
    counts = tally([first, second, third], by=-1) | tally([again, ended(second)])

    for n, more in enumerate(({"swapped": [again]}, {"archived": [ended(second)]}, {"removed": [third]})):
        new = a_job(10 + n)
        group = NewJobs(new, [(new.id, "{}")], is_fresh=True)
        assert plain.commit(Changes(added=[group], counts=tally([new]) if n else counts, wake=JOBS, **more))  # type: ignore[arg-type]

    assert sorted(live(plain, 1, 2, 3, 10, 11, 12)) == [1, 10, 11, 12]
    assert live(plain, 1) == {1: again}
    assert plain.read(lambda txn: txn.archived([2])) == {2: ended(second)}


def test_plain_commits_are_refused_while_there_is_a_notice(plain: Store, another: Store) -> None:
    """Also in a process that has made some before, and until it is deleted."""
    assert plain.commit(fresh(a_job(1)))
    commit(another, notice=b"moving")

    assert not plain.commit(fresh(a_job(2)))
    assert not plain.commit(Changes(swapped=[following(a_job(1))]))
    assert lease(plain) is None
    commit(another, notice=None)

    assert plain.commit(fresh(a_job(3)))
    assert sorted(live(plain, 1, 2, 3)) == [1, 3]
    leased = lease(plain)
    assert leased is not None
    assert [job.id for job, _ in leased] == [1, 3]


def test_a_lease_is_a_claim_with_data_and_counts(plain: Store) -> None:
    """The first by rank, as a batch would claim them."""
    jobs = add(plain, *(a_job(n, priority=500 + n) for n in range(1, 5)), data='{"n": 1}')
    query = a_query(limit=3)

    leased: list[Leased] = []
    assert plain.lease(query, leased)

    first = jobs[:0:-1]
    assert leased == [(job, '{"n": 1}') for job in first]
    assert live(plain, 2, 3, 4) == {job.id: job for job in leased_all(first, query)}
    sums = tally(jobs)
    for key, difference in counts_of_lease(first).items():
        sums[key] = sums.get(key, 0) + difference
    assert counted(plain) == sums
    assert [job.id for job, _ in lease(plain) or []] == [1]
    assert lease(plain) == []


def test_a_lease_takes_what_the_query_wants(plain: Store) -> None:
    """By task, tenant and priority; a store may leave a query to a batch, but not answer another one."""
    add(plain, a_job(1, task="a"), a_job(2, task="b"), a_job(3, tenant="x", task="a", priority=9))

    for fields, wanted in (
        ({"tenant": "", "tasks": ("b",)}, [2]),
        ({"tenant": "x"}, [3]),
        ({"tasks": ("a", "c"), "priority": 500}, [1]),
        ({"picks": (("", "a", 5), ("x", "a", 1))}, []),
    ):
        assert [job.id for job, _ in lease(plain, **fields) or []] in (wanted, [])


def test_no_two_leases_get_the_same_job(plain: Store, another: Store) -> None:
    """Leases and claims of several threads and processes."""
    add(plain, *(a_job(n) for n in range(1, 41)))

    def take(store: Store, owner: int) -> list[int]:
        taken: list[int] = []
        while batch := lease(store, limit=3, owner=owner) or claim(store, limit=3, owner=owner):
            taken += [one.id if isinstance(one, Job) else one[0].id for one in batch]
        return taken

    taken = race([partial(take, store, n) for n, store in enumerate([plain, another] * 3, start=2)])
    assert sorted(job_id for some in taken for job_id in some) == list(range(1, 41))


@pytest.mark.parametrize(
    "odd",
    [
        a_job(2, expires_at=NOW_MS + 99_000),
        a_job(2, timeout_ms=59_999),
        a_job(2, retry_after=1_000),
        a_job(2, domain=b"d"),
        a_job(2, max_losses=1),
        a_job(2, lapsed=True),
    ],
    ids=["expires_at", "timeout_ms", "retry_after", "domain", "max_losses", "lapsed"],
)
def test_a_lease_with_a_job_that_the_rules_decide_about_is_refused(plain: Store, odd: Job) -> None:
    """The jobs before it are for a batch too, or leased alone."""
    jobs = add(plain, odd, a_job(3))

    leased = lease(plain)

    assert leased is None or odd.id not in [job.id for job, _ in leased]
    assert live(plain, 2) == {2: jobs[0]}


def test_a_job_with_a_longer_time_limit_is_leased(plain: Store) -> None:
    """The lease ends before."""
    add(plain, a_job(1, timeout_ms=60_000))

    assert [job.id for job, _ in lease(plain) or []] == [1]


@pytest.mark.parametrize("due", ["scheduled", "lease", "expired", "domain", "pause"])
def test_a_lease_is_refused_while_something_is_due(plain: Store, due: str) -> None:
    """Upkeep comes first; and a pause says which jobs may start."""
    add(plain, a_job(1))
    if due == "domain":
        commit(plain, rows={(DOMAIN, "d"): b"{}"}, dues={(DOMAIN, "d"): NOW_MS})
    elif due == "pause":
        commit(plain, rows={(PAUSE, "p"): b"{}"})
    else:
        jobs = {
            "scheduled": a_job(9, place=Place.SCHEDULED, run_at=NOW_MS),
            "lease": a_job(9, place=Place.RUNNING, owner=4, lease_until=NOW_MS),
            "expired": a_job(9, place=Place.PAUSED, expires_at=NOW_MS),
        }
        add(plain, jobs[due])

    assert lease(plain) is None
    assert live(plain, 1)[1].place is Place.READY


def test_a_lease_takes_at_most_so_many_bytes(plain: Store) -> None:
    """By the sizes in the records; but always one job."""
    half = CLAIM_BYTES // 2
    sizes = [half, half, 1, 2 * CLAIM_BYTES]
    jobs = [a_job(n, size=size) for n, size in enumerate(sizes, start=1)]
    look(plain, lambda txn: txn.write(Changes(added=[NewJobs(job, [(job.id, "{}")]) for job in jobs])))
    commit(plain, counts=tally(jobs))

    found = [lease(plain) for _ in jobs]

    assert [[job.id for job, _ in some or []] for some in found] == [[1, 2], [3], [4], []]
