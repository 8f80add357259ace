"""No verb of the store goes through a table: every statement finds what it wants by an index."""

import re
from contextlib import closing
from itertools import groupby

import pytest

from holdfast.core.job import Place, State
from holdfast.store.contract import (
    JOBS,
    NOTHING,
    Changes,
    CountKey,
    JobFilter,
    NewJobs,
    WaitingQuery,
    leased_all,
)
from holdfast.store.sqlite import claim as sqlite_claim
from holdfast.store.sqlite.notify import SqlitePresence
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.txn import SqliteTxn
from holdfast.testing.stores.making import (
    NOW_MS,
    a_job,
    a_query,
    add,
    ended,
    following,
    look,
    new_jobs,
    tally,
)


class Watched:
    """A connection that writes down what it is asked."""

    def __init__(self, connection):
        self.connection, self.asked = connection, {}

    def execute(self, sql, values=()):
        self.asked[sql] = values
        return self.connection.execute(sql, values)

    def value(self, sql, values=()):
        self.asked[sql] = values
        return self.connection.value(sql, values)

    def rows(self, sql, values=()):
        self.asked[sql] = values
        return self.connection.rows(sql, values)

    def change(self, sql, values=()):
        self.asked[sql] = values
        return self.connection.change(sql, values)

    def plans(self):
        """The steps that SQLite would take for each."""
        for sql, values in self.asked.items():
            yield sql, [row[3] for row in self.connection.rows(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.fixture
def store(tmp_path):
    """A store that knows nothing of how many rows its tables have."""
    store = SqliteStore(tmp_path / "jobs.db")
    add(store, *(a_job(n, task=f"t{n % 5}", tenant=str(n % 3), domain=b"d") for n in range(1, 40)))
    yield store
    store.close()


def plans(store, *steps):
    """How the statements of a batch are done."""

    def fn(txn):
        watched = Watched(txn.connection)
        again = SqliteTxn(watched, txn.now_ms, SqlitePresence(store.path))  # type: ignore[arg-type]
        for step in steps:
            step(again)
        return NOTHING, list(watched.plans())

    return store.run(fn)


def claims(**asked):
    """A claim of one kind."""
    return lambda txn: txn.claim(a_query(**{"limit": 2} | asked))


CLAIMS = [
    claims(),
    claims(priority=500),
    claims(tasks=("t1",)),
    claims(tasks=("t1", "t2", "t3")),
    claims(tenant="1"),
    claims(tenant="1", tasks=("t1", "t2")),
    claims(skipped=(("1", None),)),
    claims(skipped=((None, "t1"),), tenant="2"),
    claims(mock=True, skipped=((None, "t1"),)),
    claims(mock=True, tenant="1", tasks=("t1", "t2")),
    claims(tenants=("1", "2"), tasks=("t1",)),
    claims(picks=(("1", "t1", 1), ("2", "t2", 1), ("0", "t3", 5))),
    claims(glob="t*", tenant="1"),
    claims(glob="t*"),
    claims(glob="[^t]*", tenant="1", skipped=((None, "t1"),)),
    claims(glob="t*", tenant="1", limit=50),
]


# The counts of tasks with READY jobs are an index of their own, of which so many entries are looked at.
BOUNDED = re.compile(r"SCAN holdfast_counts USING (COVERING )?INDEX holdfast_waiting")


def walked(steps):
    """Those steps in which all rows of a table are gone through, or rows are sorted."""
    return [
        step
        for step in steps
        if ("SCAN holdfast" in step and not BOUNDED.fullmatch(step))
        or "TEMP B-TREE" in step
        or "AUTOMATIC" in step
    ]


@pytest.mark.parametrize("number", range(len(CLAIMS)))
def test_a_claim_never_walks_or_sorts(store, number):
    """Whatever it asks for: a million waiting jobs cost it no more than a few."""
    found = plans(store, CLAIMS[number])

    assert found
    for sql, steps in found:
        assert walked(steps) == [], sql


def test_a_claim_by_pattern_sorts_only_jobs_whose_names_begin_like_it(store, monkeypatch):
    """Where there are too many pairs to go by."""
    monkeypatch.setattr(sqlite_claim, "MOST_PAIRS", 1)

    found = plans(store, claims(glob="t*", tenant="1", limit=50))

    for sql, steps in found:
        by_name = "holdfast_ready (tenant=? AND task>? AND task<?)"
        assert walked(steps) == [] or any(by_name in step for step in steps), sql


def writes(txn):
    """Every part of `Changes`."""
    jobs = [*txn.load([1, 2, 3, 4]).values()]
    gone = a_job(98)
    txn.write(
        Changes(
            added=[*new_jobs([a_job(99), a_job(97, task="u")]), *new_jobs([gone])],
            swapped=[following(job) for job in jobs[2:]],
            archived=[ended(jobs[0]), ended(gone)],
            removed=[jobs[1]],
            data={3: "x"},
            results={3: "x"},
            counts={
                CountKey("1", "t1", Place.READY, State.QUEUED): -5,
                CountKey("1", "t2", Place.READY, State.QUEUED): 1,
            },
            rows={("k", "a"): b"1", ("k", "b"): None},
            dues={("k", "a"): 5},
            notice=b"x",
        )
    )
    txn.write(Changes(forgotten=[gone.id]))


def reads(txn):
    """Every verb that reads, but for those that are asked to show everything."""
    txn.load([1, 2])
    txn.archived([1, 2])
    txn.bodies([1, 2])
    txn.bodies([1, 2], result=True)
    txn.children(1, limit=5)
    txn.children(1, place=Place.PAUSED, limit=5)
    txn.named("1", "t1", mock=False)
    txn.first(Place.SCHEDULED, NOW_MS, 5)
    txn.expiring(NOW_MS, 5)
    txn.ended(NOW_MS, tenant=None, limit=5)
    txn.waiting(WaitingQuery(limit=5))
    txn.waiting(WaitingQuery(limit=5, tenants=("1", "2"), tasks=("t1",), skipped=((None, "t2"),)))
    txn.waiting(WaitingQuery(limit=5, skipped=(("1", "t2"),)))
    txn.domain_queue(("", b"d"), "t", Place.HELD, last=False, limit=5)
    txn.domain_queue(("", b"d"), "t", Place.HELD, last=True, limit=5)
    txn.domain_counts([("", b"d"), ("", b"e")])
    txn.counts(tenant="x")
    txn.moments()
    txn.rows("k")
    txn.rows("k", ["a"])
    txn.scan("k", limit=5)
    txn.scan("k", after="a", prefix="a", limit=5)
    txn.scan("k", due_before=NOW_MS, limit=5)
    txn.tables()
    txn.notice()


@pytest.mark.parametrize("verbs", [writes, reads])
def test_no_verb_walks_or_sorts(store, verbs):
    """By both libraries, whose planners differ by years."""
    for sql, steps in plans(store, verbs):
        assert walked(steps) == [], sql


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (JobFilter(state=State.FAILED), "holdfast_standing (place=? AND rowid>?)"),
        (JobFilter(place=Place.RUNNING), "holdfast_place (place=?)"),
        (JobFilter(parent_id=3), "holdfast_children (parent_id=?)"),
        (JobFilter(schedule="s"), "holdfast_schedule (schedule=? AND rowid>?)"),
        (JobFilter(domain=b"d", tenant="1"), "holdfast_domain (domain=? AND tenant=?)"),
        (JobFilter(), "INTEGER PRIMARY KEY (rowid>?)"),
        (JobFilter(tenant="1", task="t"), "INTEGER PRIMARY KEY (rowid>?)"),
    ],
    ids=str,
)
def test_a_listing_goes_by_the_index_that_suits_it(store, query, index):
    """FAILED jobs, say, by their place, however many others wait."""
    ((_, steps),) = plans(store, lambda txn: txn.jobs(query, after=0, limit=5))

    assert any(index in step for step in steps), steps


def test_a_claim_returns_what_it_leased(store):
    """The watched claims above are real ones."""
    query = a_query(limit=2)
    claimed = look(store, lambda txn: txn.claim(query))

    assert store.read(lambda txn: txn.load([1, 2])) == {job.id: job for job in leased_all(claimed, query)}


def test_one_plain_job_is_one_statement(tmp_path):
    """Which its trigger counts."""
    asked: list[str] = []
    with closing(SqliteStore(tmp_path / "jobs.db")) as store:
        add(store, a_job(1))
        look(store, lambda txn: txn.connection.connection.set_trace_callback(asked.append))  # type: ignore[attr-defined]
        asked.clear()
        fresh = NewJobs(a_job(2), [(2, "{}")], is_fresh=True)
        assert store.commit(Changes(added=[fresh], counts=tally([a_job(2)]), wake=JOBS))
        # A trigger shows as the statement that fired it.
        verbs = [sql.split()[0] for sql, _ in groupby(asked)]

        assert sum(look(store, lambda txn: txn.counts()).values()) == 2

    assert verbs == ["INSERT"]
