"""Claims: who gets which jobs, and what of them changes."""

from typing import Any

import pytest
from msgspec.structs import replace

from ...core import rank
from ...core.job import Place
from ...store.contract import Store
from .making import NOW_MS, a_job, add, claim, commit, following, ids, live


def test_a_claim_takes_the_first_by_rank_then_id(store: Store) -> None:
    """Higher priority, then older; as many as asked for, and only what is READY."""
    add(store, a_job(1), a_job(2, priority=900), a_job(3, run_at=NOW_MS - 1), a_job(4))
    others = [place for place in Place if place != Place.READY]
    add(store, *(a_job(n, place=place) for n, place in enumerate(others, start=10)))

    assert ids(claim(store, limit=2)) == [2, 3]
    assert ids(claim(store, limit=0)) == []
    assert ids(claim(store, limit=9)) == [1, 4]
    assert claim(store) == []


@pytest.mark.parametrize("until", [0, NOW_MS + 60_000])
def test_a_claim_changes_just_what_it_must(store: Store, until: int) -> None:
    """Place, rank, owner, lease, start, claim and version: returned so and stored so."""
    (job,) = add(store, a_job(1, attempts=3, claim=4, version=5, owner=6, domain=b"d", lapsed=True))

    (claimed,) = claim(store, owner=9, lease_until=until)

    assert claimed == replace(
        job,
        place=Place.RUNNING,
        rank=until or rank.LAST,
        owner=9,
        lease_until=until,
        started_at=NOW_MS,
        claim=5,
        version=6,
    )
    assert live(store, 1) == {1: claimed}


def test_what_was_claimed_can_be_replaced_as_returned(store: Store) -> None:
    """Its next version is one above that of the claim, and what the claim wrote stays in it."""
    add(store, a_job(1))
    (claimed,) = claim(store)

    commit(store, swapped=[following(claimed, reason="x")])

    assert live(store, 1) == {1: following(claimed, reason="x")}


JOBS = [
    a_job(1, tenant="a", task="x"),
    a_job(2, tenant="a", task="y"),
    a_job(3, tenant="b", task="x", priority=900),
    a_job(4, tenant="b", task="y"),
    a_job(5, tenant="", task="x", mock=True),
    a_job(6, tenant="", task="x", priority=0),
    a_job(7, tenant="", task="z"),
    a_job(8, tenant="a", task="x", priority=900),
]
QUERIES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [3, 8, 1, 2, 4, 7, 6]),
    ({"mock": True}, [3, 8, 1, 2, 4, 5, 7, 6]),
    ({"tenant": "a"}, [8, 1, 2]),
    ({"tenant": ""}, [7, 6]),
    ({"tenant": "", "mock": True}, [5, 7, 6]),
    ({"tenant": "nobody"}, []),
    ({"tasks": ("x",)}, [3, 8, 1, 6]),
    ({"tasks": ("y", "z", "y", "unknown")}, [2, 4, 7]),
    ({"tasks": ()}, []),
    ({"tenant": "a", "tasks": ("x",)}, [8, 1]),
    ({"tenant": "b", "tasks": ("z",)}, []),
    ({"priority": 900}, [3, 8]),
    ({"priority": 0}, [6]),
    ({"priority": 500, "tenant": "a", "tasks": ("x", "y")}, [1, 2]),
    ({"priority": 500, "tasks": ("x",), "mock": True}, [1, 5]),
    ({"skipped": (("a", "x"),)}, [3, 2, 4, 7, 6]),
    ({"skipped": (("a", None),)}, [3, 4, 7, 6]),
    ({"skipped": ((None, "x"),)}, [2, 4, 7]),
    ({"skipped": ((None, None),)}, []),
    ({"skipped": (("a", None), (None, "x"))}, [4, 7]),
    ({"skipped": (("a", "x"),), "mock": True}, [3, 2, 4, 5, 7, 6]),
    ({"skipped": (("a", "x"),), "tenant": "a"}, [2]),
    ({"skipped": (("a", "x"),), "tasks": ("x",)}, [3, 6]),
    ({"skipped": (("a", "x"),), "tenant": "a", "tasks": ("x",), "priority": 900}, []),
    ({"glob": "*"}, [3, 8, 1, 2, 4, 7, 6]),
    ({"glob": "[xz]"}, [3, 8, 1, 7, 6]),
    ({"glob": "?", "tenant": "a"}, [8, 1, 2]),
    ({"glob": "x", "tenant": "a"}, [8, 1]),
    ({"glob": "X*"}, []),
    ({"glob": "[^y]", "tenant": "", "mock": True}, [5, 7, 6]),
    ({"glob": "*", "tenant": "", "priority": 0}, [6]),
    ({"glob": "*", "tenant": "a", "skipped": ((None, "x"),)}, [2]),
    ({"glob": "*", "skipped": (("a", None), (None, "x"))}, [4, 7]),
    ({"glob": "[xy]", "tasks": ("y", "z")}, [2, 4]),
]


@pytest.mark.parametrize(("asked", "found"), QUERIES, ids=str)
def test_a_claim_takes_only_what_matches(store: Store, asked: dict[str, Any], found: list[int]) -> None:
    """By tenant, tasks, priority, mocked or not, without what is paused; in order, cut where asked."""
    add(store, *JOBS)

    assert ids(claim(store, limit=2, **asked)) == found[:2]
    assert ids(claim(store, limit=99, **asked)) == found[2:]
    assert claim(store, limit=99, **asked) == []


@pytest.mark.parametrize("tenants", [1, 300])
def test_a_claim_of_many_tasks_is_in_order(store: Store, tenants: int) -> None:
    """However many tenants and tasks there are, and however many are paused."""
    many = [a_job(n, tenant=str(n % tenants), task=str(n % 700)) for n in range(1, 1401)]
    add(store, *many)
    tasks = tuple(str(n) for n in range(0, 700, 2))
    skipped = tuple((None, str(n)) for n in range(0, 700, 3))

    assert (
        ids(claim(store, tasks=tasks, skipped=skipped, limit=50))
        == [n for n in _even(1401) if n % 700 % 3][:50]
    )
    rest = [n for n in range(1, 1401) if n % 2]
    assert ids(claim(store, skipped=tuple((None, task) for task in tasks), limit=60)) == rest[:60]
    mine = [n for n in rest[60:] if n % tenants == 0]
    assert ids(claim(store, skipped=tuple((None, task) for task in tasks), tenant="0", limit=60)) == mine[:60]


SPREADS = {
    "few names": lambda n: f"www-prod/{n % 7}",
    "many names": lambda n: f"www-prod/{n % 1000}",
    "every name different": lambda n: f"www-prod/Task?id={n}",
}


@pytest.mark.parametrize("spread", SPREADS, ids=lambda name: name.replace(" ", "-"))
def test_a_claim_by_pattern_finds_the_first_whatever_stands_before_them(store: Store, spread: str) -> None:
    """Others of higher priority, whose names do not match or lie next to those that do, are passed by."""
    others = ("www-prod", "www-prod.", "www-prod0", "www-Prod/1", "xxx")
    add(store, *(a_job(n, task=f"{others[n % 5]}{n % 50}", priority=900) for n in range(1, 2_001)))
    mine = [
        a_job(n, task=SPREADS[spread](n), priority=900 if n % 5 == 0 else 500) for n in range(5_001, 7_001)
    ]
    add(store, *mine)
    expected = [job.id for job in sorted(mine, key=lambda job: (job.rank, job.id))]

    for limit in (1, 9, 500):
        assert ids(claim(store, glob="www-prod/*", tenant="", limit=limit)) == expected[:limit]
        del expected[:limit]
    assert ids(claim(store, glob="www-prod/*", tenant="", limit=5_000)) == expected


def test_a_job_is_found_by_its_name_wherever_it_stands(store: Store) -> None:
    """Mocked ones by themselves, of one tenant, and nothing of what is archived."""
    places = [*Place]
    add(store, *(a_job(n, task=f"t{n}", place=place) for n, place in enumerate(places, start=1)))
    add(store, a_job(50, task="m", mock=True), a_job(51, task="o", tenant="other"))
    gone = a_job(52, task="gone", place=Place.DONE)
    add(store, gone)
    commit(store, archived=[following(gone)])

    def named(task: str, tenant: str = "", *, mock: bool = False) -> int | None:
        return store.read(lambda txn: txn.named(tenant, task, mock=mock))

    assert [named(f"t{n}") for n in range(1, len(places) + 1)] == list(range(1, len(places) + 1))
    assert (named("m"), named("m", mock=True)) == (None, 50)
    assert (named("o"), named("o", "other"), named("gone"), named("nobody")) == (None, 51, None, None)


def _even(end: int) -> list[int]:
    return [n for n in range(1, end) if n % 2 == 0]
