"""The pairs with READY jobs: tenants by name from a place on, and the tasks of each likewise."""

from typing import Any

import pytest

from ...core.job import Place, State
from ...core.kinds import HANDLED, name_of
from ...store import ready_pairs
from ...store.contract import NOTHING, Changes, CountKey, Store, Txn, Waiting, WaitingQuery
from .making import a_job, a_query, add, claim, commit, ids, new_jobs, tally


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
