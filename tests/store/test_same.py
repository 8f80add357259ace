"""Each store and the memory store, given the same random batches, show the same.

Below the engine, so that also what it never asks for is compared: `tests/model/model.py` does the rest.
"""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import rank
from holdfast.core.errors import Unavailable
from holdfast.core.job import Job, Place, State
from holdfast.core.limits import Domain
from holdfast.core.unique import Unique
from holdfast.store.contract import ClaimQuery, CountKey, JobFilter, WaitingQuery
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock
from tests.stores import STORES, opener

START_MS = 1_760_000_000_000
TENANTS, TASKS, DOMAINS = ["", "a", "b"], ["t", "u", "v", "w"], [None, None, b"", b"\x00/", b"d" * 600]
KEYS = [b"", b"k", b"\x00"]
WAITING = [
    WaitingQuery(limit=99),
    WaitingQuery(limit=2),
    WaitingQuery(limit=5, tenants=("b", "a"), tasks=("t", "w")),
    WaitingQuery(limit=3, tenants=("",), passing=(("", "u"), (None, "v"))),
    WaitingQuery(limit=4, passing=(("a", None), (None, "t"))),
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


def insert(dice):
    rows = [(dice.job(), dice.pick(["{}", b"\x00", '"é"', ""])) for _ in range(dice.random.randrange(4))]
    return lambda txn: txn.insert(rows)


def swap(dice):
    jobs = [dice.job(job) for job in dice.some()]
    return lambda txn: txn.swap(jobs)


def remove(dice):
    jobs = dice.some(1)
    return lambda txn: txn.remove(jobs)


def archive(dice):
    jobs = [
        replace(job, version=job.version + 1, place=Place.DONE, finished_at=START_MS + job.id % 5)
        for job in dice.some(2)
    ]
    keep = dice.random.random() < 0.8
    return lambda txn: txn.archive(jobs, keep=keep)


def forget(dice):
    job_id = dice.random.randrange(60)
    return lambda txn: txn.forget([job_id] if txn.archived([job_id]) else [])


def purge(dice):
    before, tenant = START_MS + dice.random.randrange(5), dice.maybe(TENANTS)
    return lambda txn: txn.purge(before, tenant=tenant, limit=2)


def claim(dice):
    passing = [(dice.maybe(TENANTS), dice.maybe(TASKS)) for _ in range(dice.random.randrange(3))]
    query = ClaimQuery(
        owner=5,
        now_ms=START_MS + dice.random.randrange(50),
        limit=dice.random.randrange(6),
        lease_until=dice.pick([0, START_MS + 100]),
        tenant=dice.maybe(TENANTS),
        tasks=dice.pick([None, None, tuple(dice.random.sample(TASKS, 2))]),
        priority=dice.pick([None, None, 500]),
        mock=dice.random.random() < 0.3,
        passing=tuple(passing),
        tenants=dice.pick([None, None, tuple(dice.random.sample(TENANTS, 2))]),
        picks=dice.pick([(), _picks(dice)]),
    )
    return lambda txn: txn.claim(query)


def _picks(dice):
    pairs = dice.random.sample([(tenant, task) for tenant in TENANTS for task in TASKS], 5)
    return tuple((*pair, dice.random.randrange(4)) for pair in pairs)


def count(dice):
    changes = {
        CountKey(dice.pick(TENANTS), dice.pick(TASKS), place, state): dice.random.randrange(1, 3)
        for place, state in (
            (Place.READY, State.QUEUED),
            (Place.READY, State.RUNQUEUED),
            (Place.DONE, State.FAILED),
        )
    }
    if dice.random.random() < 0.5:
        return lambda txn: txn.count(changes)

    def fn(txn):
        # Never below zero: the engine counts what there is.
        there = txn.counts()
        txn.count({key: -min(n, there.get(key, 0)) for key, n in changes.items()})

    return fn


def domains(dice):
    names, due, drop = (
        dice.random.sample(DOMAINS[2:], 2),
        dice.random.randrange(3),
        dice.random.random() < 0.3,
    )

    def fn(txn):
        stored = txn.domains([("a", name) for name in names])
        if drop:
            return txn.drop_domains(list(stored.values()))
        old = [stored.get(("a", name), Domain(tenant="a", name=name, version=0)) for name in names]
        return txn.swap_domains([replace(domain, version=domain.version + 1, due_ms=due) for domain in old])

    return fn


def uniques(dice):
    holders = [
        Unique(
            tenant="a", task="t", key=key, job_id=dice.random.randrange(9), until_ms=dice.random.randrange(3)
        )
        for key in dice.random.sample(KEYS, 2)
    ]
    if dice.random.random() < 0.5:
        return lambda txn: txn.put_unique(holders)
    return lambda txn: (txn.drop_unique([holders[0].id]), txn.lapse_unique(1, 9))


def others(dice):
    ids = [dice.random.randrange(60) for _ in range(3)]
    result = dice.random.random() < 0.5
    body, record = dice.pick([b"\xff", '"x"']), dice.pick([None, b"1", b"\x00"])

    def fn(txn):
        there = [id for id in ids if id in txn.load(ids)]
        txn.put_bodies(dict.fromkeys(there, body), result=result)
        txn.put_records("k", {str(ids[0] % 3): record})

    return fn


STEPS = [
    insert,
    insert,
    insert,
    swap,
    swap,
    remove,
    archive,
    forget,
    purge,
    claim,
    claim,
    count,
    domains,
    uniques,
    others,
]


def look(txn):
    """All that can be seen."""
    everything = range(60)
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
        "load": txn.load(list(everything)),
        "archived": txn.archived(list(everything)),
        "bodies": [txn.bodies(list(everything), result=result) for result in (False, True)],
        "children": [txn.children(1, place=place, after=2, limit=9) for place in (None, *Place)],
        "first": [txn.first(place, rank.LAST, 9) for place in Place],
        "expiring": txn.expiring(START_MS + 3, 9),
        "lineups": [
            txn.lineup(("a", name), "t", place, last=last, limit=3)
            for name in DOMAINS[2:]
            for place in (Place.READY, Place.HELD)
            for last in (False, True)
        ],
        "domain counts": [txn.domain_counts([("a", name)]).get(("a", name), {}) for name in DOMAINS[2:]],
        "domains": [txn.due_domains(2, 9), txn.list_domains("a", after=b"", limit=9)],
        "waiting": [txn.waiting(query) for query in WAITING],
        "counts": [txn.counts(), txn.counts(tenant="a")],
        "moments": txn.moments(),
        "unique": txn.find_unique([("a", "t", key) for key in KEYS]),
        "records": txn.records("k"),
    }


def outcome(store, batch):
    """What a batch returns, or that it cannot be done."""
    try:
        return store.run(lambda txn: [step(txn) for step in batch])
    except Unavailable:
        return "conflict"


@pytest.mark.one_shard
@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "memory"])
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.proof) for n in range(6, 60))]
)
def test_random_batches_show_the_same(request, kind, seed):
    """After every batch all that can be seen of both is equal, and so is what the batch returned."""
    clock, dice = MovedClock(START_MS), Dice(seed)
    memory, store = MemoryStore(clock), opener(request, clock, kind)()

    for _ in range(60):
        batch = [dice.pick(STEPS)(dice) for _ in range(dice.random.randrange(1, 3))]
        assert outcome(store, batch) == outcome(memory, batch)
        before, after = memory.read(look), store.read(look)
        assert after == before
        dice.known = before["load"]

    store.close()
