"""Claims by pattern that go on where the last one ended: they find what a look at everything would find."""

import random
import re

import pytest

from holdfast.core import rank
from holdfast.core.glob import matches
from holdfast.core.job import Place
from holdfast.store.contract import ClaimQuery
from holdfast.store.sqlite import glob as sqlite_glob
from holdfast.store.sqlite import marks as sqlite_marks
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import NOW_MS, a_job, add, claim, following, ids

GLOB = "www-prod/*"


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Of a file in which every search by pattern is soon a long one."""
    for name, steps in (("FIRST_ROWS", 4), ("FIRST_NAMES", 2), ("FIRST_RANGE", 2), ("GROWTH", 2)):
        monkeypatch.setattr(sqlite_glob, name, steps)
    return tmp_path / "jobs.db"


@pytest.fixture(params=["apsw", "stdlib"])
def open_store(request, path):
    """Opens the file, each time as another process would."""
    opened = []

    def make():
        opened.append(SqliteStore(path, driver=request.param, clock=lambda: NOW_MS))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store):
    """A hundred jobs that do not match before twenty that do, each with a name of its own."""
    store = open_store()
    add(store, *(a_job(n, task=f"www-stag/{n}", priority=1000) for n in range(1, 101)))
    add(store, *(a_job(n, task=f"www-prod/{n}") for n in range(101, 121)))
    return store


def take(store, **asked):
    """The next one that matches."""
    return ids(claim(store, **{"glob": GLOB, "tenant": "", "limit": 1, **asked}))


def test_the_second_claim_begins_where_the_first_has_ended(store, monkeypatch):
    """And looks at no more than it needs."""
    assert take(store) == [101]
    monkeypatch.setattr(sqlite_glob, "_long_search", None)

    assert [take(store) for _ in range(19)] == [[n] for n in range(102, 121)]


def test_where_nothing_is_left_nothing_is_looked_at(store, monkeypatch):
    """Until something comes."""
    assert len(take(store, limit=99)) == 20
    monkeypatch.setattr(sqlite_glob, "_by_rank", None)
    assert take(store) == []
    monkeypatch.undo()

    add(store, a_job(200, task="www-prod/new"))
    assert take(store) == [200]


@pytest.mark.parametrize("verb", ["insert", "insert_alike", "swap"])
def test_what_becomes_ready_before_the_mark_is_found(store, verb):
    """Whichever way it is written; what does not match is no reason to go back."""
    waits = a_job(50_000, task="www-prod/first", priority=900, place=Place.PAUSED)
    add(store, waits)
    assert take(store) == [101]
    ready = a_job(50_001, task="www-prod/first", priority=900)

    def write(txn):
        if verb == "insert":
            txn.insert([(ready, "{}")])
        elif verb == "insert_alike":
            txn.insert_alike(ready, [(ready.id + n, "{}") for n in (2, 1)])
        else:
            txn.swap([following(waits, place=Place.READY, rank=rank.ready(900, waits.run_at))])

    store.run(write)

    assert take(store) == [{"insert": 50_001, "insert_alike": 50_002, "swap": 50_000}[verb]]
    rest = [50_003] if verb == "insert_alike" else []
    assert take(store, limit=99) == [*rest, *range(102, 121)]


def test_only_these_statements_write_jobs():
    """A new one that makes jobs READY must tell the marks of them."""
    writing = re.compile(r"\b(INSERT (OR \w+ )?INTO|UPDATE|REPLACE INTO) holdfast_jobs\b")

    assert {name for name, sql in SQL.items() if writing.search(sql)} == {
        "insert_jobs",
        "insert_alike",
        "swap",
        "claim",
    }


def test_a_claim_that_was_undone_leaves_no_mark(store):
    """What it had taken comes first again."""
    assert take(store) == [101]

    def undone(txn):
        found = txn.claim(ClaimQuery(owner=1, now_ms=NOW_MS, limit=3, glob=GLOB, tenant=""))
        assert ids(found) == [102, 103, 104]
        raise KeyError

    with pytest.raises(KeyError):
        store.run(undone)

    assert take(store) == [102]


def test_what_another_process_adds_is_found(store, open_store):
    """Also by the caller's own connection: any commit but our own makes us look from the beginning."""
    other = open_store()
    assert take(store) == [101]

    add(other, a_job(500, task="www-prod/first", priority=1000))
    assert take(store) == [500]
    assert take(other) == [102]
    assert take(store) == [103]


def test_a_pause_has_a_mark_of_its_own(store):
    """What was passed by is found when it is passed by no more."""
    passing = ((None, "www-prod/101"), (None, "www-prod/102"))
    assert take(store, passing=passing) == [103]
    assert take(store, passing=passing) == [104]

    assert take(store) == [101]
    assert take(store, priority=500) == [102]


def test_marks_are_bounded(store):
    """Whoever asks for ever new patterns does not fill the memory."""
    for n in range(sqlite_marks.MARKS_KEPT + 10):
        take(store, glob=f"www-*/*[^{n}x]*", limit=99, tenant=None)

    assert len(store._marks._marks) == sqlite_marks.MARKS_KEPT


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.proof) for n in range(8, 80))]
)
def test_whatever_happens_claims_are_in_order(store, open_store, seed):
    """Random adds, returns and claims by two processes, beside a list that is sorted each time."""
    dice, stores = random.Random(seed), [store, open_store()]
    waiting = {n: (rank.ready(1000, a_job(n).run_at), n, f"www-stag/{n}") for n in range(1, 101)}
    waiting |= {n: (rank.ready(500, a_job(n).run_at), n, f"www-prod/{n}") for n in range(101, 121)}
    taken: list[tuple[int, tuple[int, int, str]]] = []
    for number in range(1_000, 1_150):
        one = stores[dice.random() < 0.1]
        kind = dice.randrange(4)
        if kind == 0:
            job = a_job(
                number,
                task=f"www-{dice.choice(['prod', 'stag'])}/{number}",
                priority=dice.choice([0, 500, 1000]),
            )
            add(one, job)
            waiting[job.id] = (job.rank, job.id, job.task)
        elif kind == 1 and taken:
            job_id, spot = taken.pop(dice.randrange(len(taken)))
            held = one.read(lambda txn, job_id=job_id: txn.load([job_id]))[job_id]
            one.run(
                lambda txn, held=held, spot=spot: txn.swap([following(held, place=Place.READY, rank=spot[0])])
            )
            waiting[job_id] = spot
        else:
            glob = dice.choice([GLOB, "www-*", "*/*[02468]", "www-prod/1*"])
            limit = dice.choice([1, 1, 1, 5])
            expected = sorted(spot for spot in waiting.values() if matches(glob, spot[2]))[:limit]
            assert take(one, glob=glob, limit=limit) == [spot[1] for spot in expected], (seed, number)
            taken += [(spot[1], waiting.pop(spot[1])) for spot in expected]
