"""Each store and the memory store, given the same random batches, show the same.

Below the engine, so that also what it never asks for is compared: `tests/model/model.py` does the rest.
"""

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import rank
from holdfast.core.job import Job, Place, State, size_of
from holdfast.core.kinds import DOMAIN
from holdfast.store.contract import NOTHING, Changes, ClaimQuery, JobFilter, NewJobs, WaitingQuery
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.making import REFUSALS, GivenUp, tally
from tests.stores import SHARDED, STORES, opener

START_MS = 1_760_000_000_000
TENANTS, TASKS, DOMAINS = ["", "a", "b"], ["t", "u", "v", "w"], [None, None, b"", b"\x00/", b"d" * 600]
TABLES, KEYS = ["k", DOMAIN, "\u00e9"], ["a", "a%", "ab", "a\x01", "b", "\u00e9", "\U0001f980"]
EVERYTHING = range(60)
WAITING = [
    WaitingQuery(limit=99),
    WaitingQuery(limit=2),
    WaitingQuery(limit=5, tenants=("b", "a"), tasks=("t", "w")),
    WaitingQuery(limit=3, tenants=("",), skipped=(("", "u"), (None, "v"))),
    WaitingQuery(limit=4, skipped=(("a", None), (None, "t"))),
]


class Dice:
    """Random batches. The same seed makes the same ones."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.known = {}

    def maybe(self, values):
        """One of these, or None."""
        return self.pick([None, *values])

    def job(self, old=None):
        """A new job, or the next version of one."""
        place, priority = self.pick(list(Place)), self.pick([0, 500, 500, 1000])
        due = START_MS + self.random.randrange(5)
        standing = {
            Place.PAUSED: 0,
            Place.READY: rank.ready(priority, due),
            Place.HELD: rank.ready(priority, due),
        }
        fields: dict[str, Any] = {
            "task": self.pick(TASKS),
            "place": place,
            "priority": priority,
            "rank": standing.get(place, self.pick([due, rank.LAST])),
            "expires_at": self.pick([0, 0, due]),
            "domain": self.pick(DOMAINS),
            "lapsed": self.pick([False, True]),
            "retry_after": self.pick([0, 5, "+1 DAY"]),
            "ended": self.pick([State.FAILED, State.FINISHED]) if place == Place.DONE else None,
            "finished_at": due if place == Place.DONE else 0,
            "schedule": self.pick(["", "", "s"]),
            "parent_id": self.pick([0, 0, 1, 2]),
            "mock": self.random.random() < 0.1,
            "owner": self.random.randrange(3),
        }
        if old is not None:
            return replace(old, version=old.version + 1, **fields)
        return Job(id=self.random.randrange(1, 60), tenant=self.pick(TENANTS), **fields)

    def some(self, most=4):
        """Some known jobs, now and then one that is out of date."""
        jobs = self.random.sample(
            sorted(self.known.values(), key=lambda j: j.id), k=min(most, len(self.known))
        )
        stale = self.random.random() < 0.03
        return [replace(job, version=job.version + 1) if stale else job for job in jobs]


def add(rng):
    jobs = {job.id: job for job in (rng.job() for _ in range(rng.random.randrange(4)))}
    bodies = {id: rng.pick(["{}", b"\x00", '"é"', ""]) for id in jobs}
    jobs = {id: replace(job, size=size_of(bodies[id])) for id, job in jobs.items()}

    is_careful = rng.random.random() < 0.95

    def fn(txn):
        known = {*txn.load(jobs), *txn.archived(jobs)} if is_careful else ()
        return Changes(
            added=[NewJobs(job, [(id, bodies[id])]) for id, job in jobs.items() if id not in known]
        )

    return fn


def swap(rng):
    jobs = [rng.job(job) for job in rng.some()]
    return lambda txn: Changes(swapped=jobs)


def remove(rng):
    jobs = rng.some(1)
    return lambda txn: Changes(removed=jobs)


def archive(rng):
    jobs = [
        replace(job, version=job.version + 1, place=Place.DONE, finished_at=START_MS + job.id % 5)
        for job in rng.some(2)
    ]
    results = {job.id: '"r"' for job in jobs[:1]}
    return lambda txn: Changes(archived=jobs, results=results)


def pass_through(rng):
    job = replace(rng.job(), version=1, size=2)
    after = replace(job, version=2, place=Place.DONE, finished_at=START_MS)
    kept = rng.random.random() < 0.5

    def fn(txn):
        if txn.load([job.id]) or txn.archived([job.id]):
            return NOTHING
        added = [NewJobs(job, [(job.id, "{}")])]
        return Changes(added=added, archived=[after]) if kept else Changes(added=added, removed=[job])

    return fn


def forget(rng):
    job_id, is_sure = rng.random.randrange(60), rng.random.random() < 0.95
    return lambda txn: Changes(forgotten=[job_id] if txn.archived([job_id]) or not is_sure else [])


def purge(rng):
    before, tenant = START_MS + rng.random.randrange(5), rng.maybe(TENANTS)
    return lambda txn: Changes(forgotten=[job.id for job in txn.ended(before, tenant=tenant, limit=2)])


def claim(rng):
    skipped = [(rng.maybe(TENANTS), rng.maybe(TASKS)) for _ in range(rng.random.randrange(3))]
    query = ClaimQuery(
        owner=5,
        now_ms=START_MS + rng.random.randrange(50),
        limit=rng.random.randrange(6),
        lease_until=rng.pick([0, START_MS + 100]),
        tenant=rng.maybe(TENANTS),
        tasks=rng.pick([None, None, tuple(rng.random.sample(TASKS, 2))]),
        priority=rng.pick([None, None, 500]),
        mock=rng.random.random() < 0.3,
        skipped=tuple(skipped),
        tenants=rng.pick([None, None, tuple(rng.random.sample(TENANTS, 2))]),
        picks=rng.pick([(), _picks(rng)]),
    )

    return lambda txn: txn.claim(query)


def _picks(rng):
    pairs = rng.random.sample([(tenant, task) for tenant in TENANTS for task in TASKS], 5)
    return tuple((*pair, rng.random.randrange(4)) for pair in pairs)


def rows(rng):
    table, keys = rng.pick(TABLES), rng.random.sample(KEYS, 3)
    values = [rng.pick([None, b"", b"1", b"\x00\xff"]) for _ in keys]
    written = {(table, key): value for key, value in zip(keys, values, strict=True)}
    dues = {row: rng.random.randrange(1, 4) for row in written if rng.random.random() < 0.5}
    is_whole = rng.random.random() < 0.3

    def fn(txn):
        found = txn.rows(table) if is_whole else txn.rows(table, keys)
        # What is there is counted on, and what is not there as well.
        written[table, keys[0]] = b"%d" % len(found)
        return Changes(rows=written, dues=dues)

    return fn


def bodies(rng):
    ids = [rng.random.randrange(60) for _ in range(3)]
    part, body = rng.pick(["data", "results"]), rng.pick([b"\xff", '"x"'])

    def fn(txn):
        written = {id: body for id in txn.load(ids) if id in ids}
        return Changes(data=written) if part == "data" else Changes(results=written)

    return fn


STEPS = [
    *(add, add, add),
    *(swap, swap),
    remove,
    archive,
    pass_through,
    forget,
    purge,
    *(claim, claim),
    *(rows, rows),
    bodies,
]


def look(txn):
    """All that can be seen."""
    filters = [
        *(JobFilter(state=state) for state in State),
        *(JobFilter(place=place, tenant="a") for place in Place),
        *(JobFilter(archived=True, state=state) for state in State),
        JobFilter(domain=b"\x00/"),
        JobFilter(parent_id=1),
        JobFilter(schedule="s", task="t"),
        JobFilter(archived=True, domain=b"\x00/"),
    ]
    return {
        "jobs": [txn.jobs(query, after=3, limit=20) for query in filters],
        "load": txn.load(EVERYTHING),
        "archived": txn.archived(EVERYTHING),
        "bodies": [txn.bodies(EVERYTHING, result=result) for result in (False, True)],
        "children": [txn.children(1, place=place, after=2, limit=9) for place in (None, *Place)],
        "first": [txn.first(place, rank.LAST, 9) for place in Place],
        "expiring": txn.expiring(START_MS + 3, 9),
        "domain queues": [
            txn.domain_queue(("a", name), "t", place, last=last, limit=3)
            for name in DOMAINS[2:]
            for place in (Place.READY, Place.HELD)
            for last in (False, True)
        ],
        "domain counts": [txn.domain_counts([("a", name)]).get(("a", name), {}) for name in DOMAINS[2:]],
        "ended": [txn.ended(START_MS + 3, tenant=tenant, limit=9) for tenant in (None, "a")],
        "waiting": [txn.waiting(query) for query in WAITING],
        "counts": [txn.counts(), txn.counts(tenant="a")],
        "moments": txn.moments(),
        "tables": sorted(txn.tables()),
        "rows": [txn.rows(table) for table in TABLES],
        "pages": [txn.scan(table, after="a", prefix="a", limit=2) for table in TABLES],
        "due": [txn.scan(table, due_before=2, limit=9) for table in TABLES],
    }


def outcome(store, batch):
    """What a batch claims, or that it cannot be done. Each step is written at once, and counted last."""

    tries = count(1)

    def fn(txn):
        if next(tries) > REFUSALS:
            raise GivenUp
        before, claimed = tallied(txn), []
        for step in batch:
            done = step(txn)
            if isinstance(done, list):
                claimed.append(done)
            else:
                txn.write(done)
        counts = tallied(txn)
        counts.subtract(before)
        return Changes(counts=counts), claimed

    try:
        return store.run(fn)
    except GivenUp:
        return "conflict"


def tallied(txn):
    """How many jobs there are of each kind, as the engine counts them."""
    jobs = [*txn.load(EVERYTHING).values(), *txn.archived(EVERYTHING).values()]
    return Counter(tally(jobs))


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind not in ("memory", *SHARDED)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.proof) for n in range(1, 60))])
def test_random_batches_show_the_same(request, kind, seed):
    """After every batch all that can be seen of both is equal, and so is what the batch returned."""
    clock, rng = MovedClock(START_MS), Dice(seed)
    memory, store = MemoryStore(clock), opener(request, clock, kind)()

    for _ in range(60):
        batch = [rng.pick(STEPS)(rng) for _ in range(rng.random.randrange(1, 3))]
        assert outcome(store, batch) == outcome(memory, batch)
        before, after = memory.read(look), store.read(look)
        assert after == before
        rng.known = before["load"]

    store.close()
