"""Claims: who gets which jobs, and what of them changes; and the pairs that have READY jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from ...core import rank
from ...core.job import Place, State
from ...core.kinds import HANDLED, name_of
from ...store import ready_pairs
from ...store.contract import NOTHING, Changes, CountKey, Store, Txn, Waiting, WaitingQuery
from .making import NOW_MS, a_job, a_query, add, claim, commit, following, ids, live, new_jobs, tally


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


def waiting(store: Store, limit: int = 9, **asked: Any) -> list[tuple[str, str]]:
    """The pairs with READY jobs, in the order of the list."""
    return [pair[:2] for pair in store.read(lambda txn: txn.waiting(WaitingQuery(limit=limit, **asked)))]


def take(store: Store, **asked: Any) -> list[int]:
    """Claim and count, as the engine does."""
    jobs = claim(store, **asked)
    ready = [a_job(job.id, tenant=job.tenant, task=job.task) for job in jobs]
    commit(store, counts=tally(ready, by=-1))
    return ids(jobs)


def test_tenants_come_by_name_and_wrap_round(store: Store) -> None:
    """From above the tenant that the query begins with, whether or not it has jobs."""
    add(store, *(a_job(n, tenant=tenant) for n, tenant in enumerate(("d", "b", "a", ""), start=1)))

    assert waiting(store, after=("a", "")) == [("b", "t"), ("d", "t"), ("", "t"), ("a", "t")]
    assert waiting(store, after=("c", "t")) == [("d", "t"), ("", "t"), ("a", "t"), ("b", "t")]
    assert waiting(store, after=("d", ""), limit=2) == [("", "t"), ("a", "t")]
    assert waiting(store) == [("a", "t"), ("b", "t"), ("d", "t"), ("", "t")]
    assert waiting(store, after=("a", ""), tenants=("", "d", "a")) == [("d", "t"), ("", "t"), ("a", "t")]


def test_tenants_come_before_tasks(store: Store) -> None:
    """A tenant with many tasks is served as often as one with one; the tasks of each wrap round too."""
    jobs = [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("c", "x"), ("c", "y")]
    add(store, *(a_job(n, tenant=tenant, task=task) for n, (tenant, task) in enumerate(jobs, start=1)))

    assert waiting(store) == [("a", "x"), ("b", "x"), ("c", "x"), ("a", "y"), ("c", "y"), ("a", "z")]
    assert waiting(store, limit=3) == [("a", "x"), ("b", "x"), ("c", "x")]
    after_x = [("b", "x"), ("c", "y"), ("a", "y"), ("c", "x"), ("a", "z"), ("a", "x")]
    assert waiting(store, after=("a", "x")) == after_x
    assert waiting(store, after=("a", "y"), tenants=("a",)) == [("a", "z"), ("a", "x"), ("a", "y")]
    assert waiting(store, after=("a", "y"), limit=2) == [("b", "x"), ("c", "x")]


def test_a_page_has_every_pair_once(store: Store) -> None:
    """Page after page, each from the last tenant of the page before."""
    pairs = [(f"tenant{n:02}", f"task{n % 7}") for n in range(40)]
    add(store, *(a_job(n, tenant=tenant, task=task) for n, (tenant, task) in enumerate(pairs, start=1)))

    found, last = [], ("tenant17", "")
    for _ in range(4):
        page = waiting(store, limit=10, after=last)
        found += page
        last = page[-1]

    assert found == [*pairs[18:], *pairs[:18]]
    assert waiting(store, limit=100, after=last) == found


def test_a_batch_finds_the_pairs_as_they_were_before_it(store: Store) -> None:
    """Until it writes the counts: also those that it claimed from, which may have got other READY jobs."""
    add(store, *(a_job(n, tenant=tenant, task=task) for n, (tenant, task) in enumerate(PAIRS, start=1)))

    def fn(txn: Txn) -> tuple[Changes, list[set[tuple[str, str]]]]:
        def pairs(**asked: Any) -> set[tuple[str, str]]:
            return {pair[:2] for pair in txn.waiting(WaitingQuery(**{"limit": 9} | asked))}

        txn.write(Changes(rows={(HANDLED, name_of("b", "z")): b"1"}))
        assert len(txn.claim(a_query(tenants=("a", "b")))) == 4
        txn.write(Changes(added=new_jobs([a_job(9, tenant="d", task="y")])))
        found = [pairs(), pairs(tenants=("b", "c")), pairs(tasks=("x",)), pairs(skipped=(("b", "z"),))]
        return NOTHING, [*found, pairs(handled=True), pairs(limit=0)]

    found, of_tenants, of_task, without_skipped, handled, none = store.run(fn)

    assert found == {*PAIRS}
    assert of_tenants == {("b", "x"), ("b", "z"), ("c", "y")}
    assert of_task == {("a", "x"), ("b", "x")}
    assert without_skipped == {*PAIRS} - {("b", "z")}
    assert handled == {("b", "z")}
    assert none == set()


def test_how_many_are_ready_is_told(store: Store) -> None:
    """In either state; what else there is does not count."""
    add(store, a_job(1), a_job(2), a_job(3, lapsed=True), a_job(4, place=Place.HELD, task="u"))

    assert store.read(lambda txn: txn.waiting(WaitingQuery(limit=9))) == [Waiting("", "t", 3)]


def test_a_pair_is_found_while_it_has_ready_jobs(store: Store) -> None:
    """Claimed ones are not READY; one of its counts may become the other."""
    add(store, *(a_job(n, task="many") for n in range(1, 5)), a_job(5, task="one"))
    assert take(store, tasks=("one",)) == [5]
    assert waiting(store) == [("", "many")]

    add(store, a_job(6, task="one"))
    lapsed = CountKey("", "one", Place.READY, State.RUNQUEUED)
    commit(store, counts={lapsed._replace(counted=State.QUEUED): -1, lapsed: 1})
    assert waiting(store) == [("", "many"), ("", "one")]


PAIRS = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "z"), ("c", "y")]
ASKED: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({}, [("a", "x"), ("b", "x"), ("c", "y"), ("a", "y"), ("b", "z")]),
    ({"tenants": ("b",)}, [("b", "x"), ("b", "z")]),
    ({"tenants": ("c", "a", "c", "nobody")}, [("a", "x"), ("c", "y"), ("a", "y")]),
    ({"tenants": ()}, []),
    ({"tenants": ("nobody",)}, []),
    ({"tasks": ("y", "z")}, [("a", "y"), ("b", "z"), ("c", "y")]),
    ({"tasks": ()}, []),
    ({"tasks": ("unheard-of",)}, []),
    ({"tenants": ("a",), "tasks": ("y",)}, [("a", "y")]),
    ({"skipped": (("a", None),)}, [("b", "x"), ("c", "y"), ("b", "z")]),
    ({"skipped": ((None, "x"),)}, [("a", "y"), ("b", "z"), ("c", "y")]),
    ({"skipped": (("b", "x"), (None, "y"))}, [("a", "x"), ("b", "z")]),
    ({"skipped": ((None, None),)}, []),
    ({"skipped": ((None, "x"),), "tasks": ("x", "z")}, [("b", "z")]),
    ({"skipped": ((None, "x"),), "tasks": ("x", "z"), "limit": 1}, [("b", "z")]),
    ({"limit": 0}, []),
]


@pytest.mark.parametrize(("asked", "found"), ASKED, ids=str)
def test_only_who_is_asked_for_is_found(
    store: Store, asked: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    """By tenants and tasks, without what is paused."""
    add(store, *(a_job(n, tenant=tenant, task=task) for n, (tenant, task) in enumerate(PAIRS, start=1)))

    assert waiting(store, **asked) == found


def test_it_looks_at_so_many_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If these are not asked for, it finds nothing, and says so."""
    monkeypatch.setattr(ready_pairs, "PAGE_TASKS", 8)
    monkeypatch.setattr(ready_pairs, "TENANT_TASKS", 4)
    add(store, *(a_job(n, tenant=f"{n:03}", task="unknown") for n in range(1, 41)))
    add(store, a_job(41, tenant="041", task="known"), *(a_job(50 + n, task=f"t{n}") for n in range(9)))
    add(store, a_job(60, task="u"))

    assert waiting(store, limit=10, tasks=("known",)) == []
    assert waiting(store, limit=11, tasks=("known",)) == [("041", "known")]
    assert waiting(store, tenants=("",), tasks=("u", "t8")) == []
    assert waiting(store, tenants=("",), tasks=("u", "t7")) == [("", "t7")]


PICKS: list[tuple[dict[str, Any], list[int]]] = [
    ({"picks": (("a", "x", 1), ("b", "y", 1))}, [1, 4]),
    ({"picks": (("b", "x", 9), ("a", "x", 1), ("a", "y", 2))}, [3, 6, 1, 2]),
    ({"picks": (("b", "x", 9), ("a", "x", 9)), "limit": 3}, [3, 6, 1]),
    ({"picks": (("b", "x", 9), ("b", "y", 9)), "tasks": ("x",), "limit": 1}, [3]),
    ({"picks": (("a", "x", 0), ("nobody", "x", 5))}, []),
    ({"picks": (("a", "x", 5), ("b", "y", 5)), "tenant": "b"}, [4]),
    ({"picks": (("a", "x", 5), ("b", "y", 5)), "tenants": ("a", "c")}, [1, 5]),
    ({"picks": (("a", "x", 5), ("b", "y", 5)), "tasks": ("y",)}, [4]),
    ({"picks": (("a", "x", 5), ("b", "y", 5)), "skipped": (("a", None),)}, [4]),
    ({"picks": (("a", "x", 5), ("b", "x", 5)), "priority": 900}, [3, 6]),
    ({"picks": (("a", "x", 5), ("c", "x", 5)), "mock": True}, [1, 5]),
]


@pytest.mark.parametrize(("asked", "found"), PICKS, ids=str)
def test_a_claim_of_picks_takes_the_first_of_each(
    store: Store, asked: dict[str, Any], found: list[int]
) -> None:
    """At most a given number of each pair, in order, and no mocked jobs."""
    fields: list[dict[str, Any]] = [
        {"tenant": "a", "task": "x"},
        {"tenant": "a", "task": "y"},
        {"tenant": "b", "task": "x", "priority": 900},
        {"tenant": "b", "task": "y"},
        {"tenant": "a", "task": "x"},
        {"tenant": "b", "task": "x", "priority": 900},
        {"tenant": "c", "task": "x", "mock": True},
    ]
    add(store, *(a_job(n, **one) for n, one in enumerate(fields, start=1)))

    assert ids(claim(store, **asked)) == found


def test_picks_may_be_very_many(store: Store) -> None:
    """And want different numbers."""
    add(store, *(a_job(n, tenant=str(n % 300), task="t") for n in range(1, 1201)))
    picks = tuple((str(n), "t", 1 + n % 4) for n in range(300))

    found = claim(store, picks=picks, limit=1000)

    assert ids(found) == sorted(ids(found))
    assert tally(found) == {
        CountKey(tenant, "t", Place.RUNNING, State.RUNNING): most for tenant, _, most in picks
    }
