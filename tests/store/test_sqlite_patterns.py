"""Claims by pattern, by whichever way they search: they find what a look at everything would find."""

import random

import pytest

from holdfast.core import rank
from holdfast.core.glob import matches
from holdfast.core.job import Place
from holdfast.store.contract import NOTHING, Changes
from holdfast.store.sqlite import claim as sqlite_claim
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import (
    NOW_MS,
    a_job,
    a_query,
    add,
    claim,
    commit,
    following,
    ids,
    new_jobs,
    tally,
)

GLOB = "www-prod/*"
# How much is looked at in which way, so that each of them comes to be used.
WAYS = {
    "by rank": {"FIRST_ROWS": 10_000},
    "by pairs": {"FIRST_ROWS": 4},
    "by pairs, in slices": {"FIRST_ROWS": 4, "PAIRS_AT_ONCE": 3},
    "by name": {"FIRST_ROWS": 4, "MOST_PAIRS": 2},
    "by rank to the end": {"FIRST_ROWS": 4, "PAIRS_LOOKED_AT": 2},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Each way to search."""
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(sqlite_claim, name, value)
    return request.param


@pytest.fixture
def store(tmp_path):
    """A hundred jobs that do not match before twenty that do, each with a name of its own."""
    store = SqliteStore(tmp_path / "jobs.db", clock=lambda: NOW_MS)
    add(store, *(a_job(n, task=f"www-stag/{n}", priority=1000) for n in range(1, 101)))
    add(store, *(a_job(n, task=f"www-prod/{n}") for n in range(101, 121)))
    yield store
    store.close()


def take(store, **asked):
    """Claim and count, as the engine does."""
    query = a_query(**{"glob": GLOB, "tenant": "", "limit": 1} | asked)

    def fn(txn):
        jobs = txn.claim(query)
        return Changes(counts=tally(jobs, by=-1)), ids(jobs)

    return store.run(fn)


def test_the_first_that_match_are_found(store, way):
    """One by one, then all that are left, then none."""
    assert [take(store) for _ in range(3)] == [[101], [102], [103]]
    assert take(store, limit=99) == [*range(104, 121)]
    assert take(store) == []


def test_what_is_paused_is_passed_by(store, way):
    """And found when it is paused no more."""
    skipped = ((None, "www-prod/101"), ("", "www-prod/102"))
    assert take(store, skipped=skipped, limit=2) == [103, 104]
    assert take(store, limit=2) == [101, 102]


def test_mocked_jobs_are_found_by_those_who_ask_for_them(store, way):
    """By nobody else, also where their pair has no others."""
    add(
        store,
        a_job(200, task="www-prod/mocked", mock=True, priority=900),
        a_job(201, task="www-prod/101", mock=True),
    )

    assert take(store, limit=2) == [101, 102]
    assert take(store, mock=True, limit=3) == [200, 103, 104]
    assert take(store, mock=True, limit=99) == [*range(105, 121), 201]


def test_what_the_batch_itself_has_added_is_found(store, way):
    """Though it is not counted yet: new jobs, and one that becomes READY."""
    paused = a_job(300, task="www-prod/paused", place=Place.PAUSED, priority=900)
    add(store, paused)
    ready = following(paused, place=Place.READY, rank=rank.ready(900, paused.run_at))

    def fn(txn):
        txn.write(Changes(added=new_jobs([a_job(301, task="www-prod/new", priority=900)]), swapped=[ready]))
        return NOTHING, ids(txn.claim(a_query(glob=GLOB, tenant="", limit=3)))

    assert store.run(fn) == [300, 301, 101]


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.proof) for n in range(2, 80))]
)
def test_whatever_happens_claims_are_in_order(store, way, seed):
    """Random adds, returns and claims, beside a list that is sorted each time."""
    rng = random.Random(seed)
    waiting = {n: (rank.ready(1000, a_job(n).run_at), n, f"www-stag/{n}") for n in range(1, 101)}
    waiting |= {n: (rank.ready(500, a_job(n).run_at), n, f"www-prod/{n}") for n in range(101, 121)}
    taken: list[tuple[int, tuple[int, int, str]]] = []
    for number in range(1_000, 1_150):
        kind = rng.randrange(4)
        if kind == 0:
            name = f"www-{rng.choice(['prod', 'stag'])}/{number % 40 + 100}"
            job = a_job(number, task=name, priority=rng.choice([0, 500, 1000]))
            add(store, job)
            waiting[job.id] = (job.rank, job.id, job.task)
        elif kind == 1 and taken:
            job_id, spot = taken.pop(rng.randrange(len(taken)))
            held = store.read(lambda txn, job_id=job_id: txn.load([job_id]))[job_id]
            back = following(held, place=Place.READY, rank=spot[0])
            commit(store, swapped=[back], counts=tally([back]))
            waiting[job_id] = spot
        else:
            glob = rng.choice([GLOB, "www-*", "*/*[02468]", "www-prod/1*", "www-prod/101"])
            limit = rng.choice([1, 1, 1, 5])
            expected = sorted(spot for spot in waiting.values() if matches(glob, spot[2]))[:limit]
            found = take(store, glob=glob, limit=limit, tenant=rng.choice(["", None]))
            assert found == [spot[1] for spot in expected], (seed, number)
            taken += [(spot[1], waiting.pop(spot[1])) for spot in expected]


def test_a_claim_of_a_list_of_names_goes_by_the_pattern_too(store, way):
    """Only those of the list that match."""
    names = ("www-prod/110", "www-stag/7", "www-prod/nobody")
    assert ids(claim(store, tasks=names, glob=GLOB, limit=9)) == [110]
