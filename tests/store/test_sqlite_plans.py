"""No verb of the store goes through a table: every statement finds what it wants by an index."""

import pytest

from holdfast.core.job import Place, State
from holdfast.core.limits import Domain
from holdfast.core.unique import Unique
from holdfast.store.contract import ClaimQuery, CountKey, JobFilter, LogRow, WaitingQuery, leased
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.txn import SqliteTxn
from holdfast.testing.stores.making import NOW_MS, a_job, add, ended, following


class Watched:
    """A connection that writes down what it is asked."""

    def __init__(self, link):
        self.link, self.asked = link, {}

    def value(self, sql, values=()):
        self.asked[sql] = values
        return self.link.value(sql, values)

    def rows(self, sql, values=()):
        self.asked[sql] = values
        return self.link.rows(sql, values)

    def change(self, sql, values=()):
        self.asked[sql] = values
        return self.link.change(sql, values)

    def give_back(self, pages):
        self.link.give_back(pages)

    @property
    def in_transaction(self):
        return self.link.in_transaction

    def close(self):
        self.link.close()

    def plans(self):
        """The steps that SQLite would take for each."""
        for sql, values in self.asked.items():
            yield sql, [row[3] for row in self.link.rows(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.fixture(params=["apsw", "stdlib"])
def store(request, tmp_path):
    """A store that knows nothing of how many rows its tables have."""
    store = SqliteStore(tmp_path / "jobs.db", driver=request.param)
    add(store, *(a_job(n, task=f"t{n % 5}", tenant=str(n % 3), domain=b"d") for n in range(1, 40)))
    yield store
    store.close()


def plans(store, *steps):
    """How the statements of a batch are done."""

    def fn(txn):
        watched = Watched(txn.link)
        again = SqliteTxn(watched, txn.now_ms)
        for step in steps:
            step(again)
        return list(watched.plans())

    return store.run(fn)


def claims(**asked):
    """A claim of one kind."""
    return lambda txn: txn.claim(ClaimQuery(owner=1, now_ms=NOW_MS, limit=2, **asked))


CLAIMS = [
    claims(),
    claims(priority=500),
    claims(tasks=("t1",)),
    claims(tasks=("t1", "t2", "t3")),
    claims(tenant="1"),
    claims(tenant="1", tasks=("t1", "t2")),
    claims(passing=(("1", None),)),
    claims(passing=((None, "t1"),), tenant="2"),
    claims(mock=True, passing=((None, "t1"),)),
    claims(tenants=("1", "2"), tasks=("t1",)),
    claims(picks=(("1", "t1", 1), ("2", "t2", 1), ("0", "t3", 5))),
    claims(glob="t*", tenant="1"),
    claims(glob="t*"),
    claims(glob="[^t]*", tenant="1", passing=((None, "t1"),)),
]


def walked(steps):
    """Those steps in which all rows of a table are gone through, or rows are sorted."""
    # The first pair or tenant is where the index begins, and the last turn where it ends, which SQLite calls
    # a scan, but ends after one row.
    allowed = (
        *(
            f"SCAN holdfast_tenants USING {kind}INDEX holdfast_tenant_{name}"
            for kind in ("", "COVERING ")
            for name in ("turns", "rests")
        ),
        "SCAN holdfast_jobs USING COVERING INDEX holdfast_ready",
        "SCAN holdfast_jobs USING INDEX holdfast_ready",
    )
    return [
        step
        for step in steps
        if ("SCAN holdfast" in step and step not in allowed) or "TEMP B-TREE" in step or "AUTOMATIC" in step
    ]


@pytest.mark.parametrize("number", range(len(CLAIMS)))
def test_a_claim_never_walks_or_sorts(store, number):
    """Whatever it asks for: a million waiting jobs cost it no more than a few."""
    found = plans(store, CLAIMS[number])

    assert found
    for sql, steps in found:
        assert walked(steps) == [], sql


def writes(txn):
    """Every verb that writes."""
    jobs = list(txn.load([1, 2, 3]).values())
    txn.insert([(a_job(1), "{}"), (a_job(99), "{}")])
    txn.swap([following(job) for job in jobs])
    txn.archive([ended(following(jobs[0]))], keep=True)
    txn.remove([following(jobs[1])])
    txn.forget([5])
    txn.purge(NOW_MS, tenant=None, limit=5)
    txn.put_bodies({3: "x"})
    txn.put_bodies({3: "x"}, result=True)
    txn.put_unique([Unique(tenant="", task="t", key=b"k", job_id=1, until_ms=5)])
    txn.drop_unique([("", "t", b"k"), ("", "t", b"l")])
    txn.lapse_unique(9, 9)
    txn.swap_domains([Domain(tenant="", name=b"d"), Domain(tenant="", name=b"e")])
    txn.swap_domains([Domain(tenant="", name=b"d", version=2), Domain(tenant="", name=b"e", version=2)])
    txn.drop_domains([Domain(tenant="", name=b"d", version=2), Domain(tenant="", name=b"e", version=2)])
    txn.count(
        {
            CountKey("1", "t1", Place.READY, State.QUEUED): -1,
            CountKey("1", "t2", Place.READY, State.QUEUED): 1,
        }
    )
    txn.put_records("k", {"a": b"1", "b": None})
    txn.append_log("l", [LogRow(1, b"k", "1"), LogRow(2, None, b"2")])
    txn.trim_log("l", after=0, up_to=1, keys_up_to=1)


def reads(txn):
    """Every verb that reads, but for those that are asked to show everything."""
    txn.load([1, 2])
    txn.archived([1, 2])
    txn.bodies([1, 2])
    txn.bodies([1, 2], result=True)
    txn.children(1, limit=5)
    txn.children(1, place=Place.PAUSED, limit=5)
    txn.find_unique([("", "t", b"k"), ("", "t", b"l")])
    txn.first(Place.SCHEDULED, NOW_MS, 5)
    txn.expiring(NOW_MS, 5)
    txn.waiting(WaitingQuery(limit=5))
    txn.waiting(WaitingQuery(limit=5, tenants=("1", "2"), tasks=("t1",), passing=((None, "t2"),)))
    txn.waiting(WaitingQuery(limit=5, passing=(("1", "t2"),)))
    txn.lineup(("", b"d"), "t", Place.HELD, last=False, limit=5)
    txn.lineup(("", b"d"), "t", Place.HELD, last=True, limit=5)
    txn.domain_counts([("", b"d")])
    txn.domains([("", b"d"), ("", b"e")])
    txn.due_domains(NOW_MS, 5)
    txn.list_domains("", after=b"", limit=5)
    txn.counts(tenant="x")
    txn.moments()
    txn.records("k")
    txn.records("k", ["a"])
    txn.read_log("l", after=1, limit=5)
    txn.find_in_log("l", [b"k", b"m"])


@pytest.mark.parametrize("verbs", [writes, reads])
def test_no_verb_walks_or_sorts(store, verbs):
    """By both libraries, whose planners differ by years."""
    for sql, steps in plans(store, verbs):
        assert walked(steps) == [], sql


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (JobFilter(state=State.FAILED), "holdfast_place (place=?)"),
        (JobFilter(place=Place.RUNNING), "holdfast_place (place=?)"),
        (JobFilter(parent_id=3), "holdfast_children (parent_id=?)"),
        (JobFilter(schedule="s"), "holdfast_schedule (schedule=? AND id>?)"),
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
    query = ClaimQuery(owner=1, now_ms=NOW_MS, limit=2)
    claimed = store.run(lambda txn: txn.claim(query))

    assert store.read(lambda txn: txn.load([1, 2])) == {job.id: leased(job, query) for job in claimed}
