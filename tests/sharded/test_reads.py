"""A view over several shards shows what one store with all of it would."""

import random
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import ids, rank
from holdfast.core.commands import NewJob
from holdfast.core.job import Place
from holdfast.core.kinds import DOMAIN, LOG_ITEMS, LOG_KEYS, SHARD, UNIQUE, log_table, name_of
from holdfast.core.slots import shard_of, slot_for, slot_of_record
from holdfast.core.unique import Unique, UniqueKey
from holdfast.store.contract import Changes, JobFilter, WaitingQuery
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.testing.stores.making import NOW_MS, a_job, ended, new_jobs, tally
from tests.sharded.conftest import SHARDS

LOG = name_of("a", "log")


def _same(store):
    return store


class Both:
    """The same jobs and rows in four stores and in one."""

    def __init__(self, clock):
        stores = [MemoryStore(clock) for _ in range(SHARDS)]
        self.sharded = ShardedStore([Opener("memory", partial(_same, store)) for store in stores])
        self.one = MemoryStore(clock)

    def add(self, job):
        """A live job."""
        self._write(shard_of(job.id, SHARDS), Changes(added=new_jobs([job]), counts=tally([job])))

    def archive(self, job):
        """An ended one."""
        after = ended(job, at=NOW_MS + job.rank % 3)
        changes = Changes(added=new_jobs([job]), archived=[after], counts=tally([after]))
        self._write(shard_of(job.id, SHARDS), changes)

    def put(self, table, key, value, due=None, slot=None):
        """A row, where it belongs or in a slot."""
        slot = slot_of_record(table, key) if slot is None else slot
        changes = Changes(rows={(table, key): value}, dues={} if due is None else {(table, key): due})
        for at in range(SHARDS) if slot is None else (slot % SHARDS,):
            self.sharded.shards[at].run(lambda _txn: (changes, None))
        self.one.run(lambda _txn: (changes, None))

    def _write(self, at, changes):
        self.sharded.shards[at].run(lambda _txn: (changes, None))
        self.one.run(lambda _txn: (changes, None))

    def same(self, look):
        """What both show."""
        found = self.sharded.read(look)
        assert found == self.one.read(look)
        return found


@pytest.fixture
def both(clock):
    """Random jobs, and rows of all sorts."""
    both, rng = Both(clock), random.Random(1)
    parents = [ids.pack(n, 2, rng.randrange(64)) for n in range(5)]
    for n in range(100):
        domain, parent = rng.choice([None, None, b"d", b"\x00e"]), rng.choice([0, 0, *parents])
        slot = ids.slot_of("a", domain) if domain else (parent or rng.randrange(64)) % 64
        job = a_job(
            ids.pack(100 + n, 2, slot),
            tenant="a" if domain else rng.choice("ab"),
            task=rng.choice("tuv"),
            place=rng.choice([*Place]),
            rank=rng.randrange(1_000_000, 1_000_050),
            expires_at=rng.choice([0, NOW_MS + n % 7]),
            domain=domain,
            parent_id=0 if domain else parent,
        )
        both.archive(job) if n % 4 == 0 else both.add(job)
    for n in range(20):
        both.put(DOMAIN, name_of("a", b"%d" % n), b"%d" % n, due=100 - n)
        both.put("pause", name_of(None, str(n), None), b"1")
        both.put("other", str(n), b"%d" % n)
        both.put(log_table(LOG_ITEMS, LOG), f"{n:019}", b"%d" % n)
        both.put(log_table(LOG_KEYS, LOG), name_of(b"%d" % n), b"%d" % n, due=n)
    return both


def test_jobs_are_found_wherever_they_are(both):
    """By id with their bodies, as children, in every listing and every order."""
    jobs = both.same(lambda txn: txn.jobs(JobFilter(), after=0, limit=1000))
    old = both.same(lambda txn: txn.jobs(JobFilter(archived=True), after=0, limit=1000))
    every = [job.id for job in (*jobs, *old)]
    assert len(every) == 100

    both.same(lambda txn: [txn.load(every), txn.archived(every), txn.bodies(every)])
    both.same(lambda txn: [txn.children(job.parent_id, limit=9) for job in jobs if job.parent_id])
    both.same(lambda txn: [txn.first(place, rank.LAST, limit) for place in Place for limit in (3, 99)])
    both.same(lambda txn: [txn.expiring(NOW_MS + 3, limit) for limit in (2, 99)])
    both.same(lambda txn: [txn.ended(NOW_MS + 2, tenant=tenant, limit=9) for tenant in (None, "a")])
    both.same(lambda txn: [txn.named("a", task, mock=False) for task in "tuvw"])
    both.same(lambda txn: txn.jobs(JobFilter(tenant="a", place=Place.DONE), after=jobs[20].id, limit=5))


def test_sums_are_of_all(both):
    """Counts, moments, what waits, and the queues of domains."""
    both.same(lambda txn: [txn.counts(), txn.counts(tenant="b"), txn.moments()])
    found = [store.read(lambda txn: txn.waiting(WaitingQuery(limit=9))) for store in (both.sharded, both.one)]
    assert sorted(found[0]) == sorted(found[1])
    keys = [("a", b"d"), ("a", b"\x00e"), ("b", b"d")]
    both.same(lambda txn: txn.domain_counts(keys))
    both.same(lambda txn: [txn.domain_queue(k, "t", p, last=True, limit=3) for k in keys for p in Place])


def test_rows_are_found_where_they_belong(both):
    """By key, by table and page by page; what every shard has comes once."""
    tables = both.same(lambda txn: [table for table in txn.tables() if table != SHARD])
    assert len(tables) == 5
    for table in tables:
        whole = both.same(lambda txn, table=table: txn.rows(table))
        assert len(whole) == 20
        some = sorted(whole)[::3]
        both.same(lambda txn, table=table, keys=some: txn.rows(table, keys))
        both.same(lambda txn, table=table: txn.scan(table, limit=7))
        both.same(lambda txn, table=table, after=some[2]: txn.scan(table, after=after, limit=99))
        both.same(lambda txn, table=table: txn.scan(table, prefix='["a","M', limit=99))


def test_what_is_due_is_found_in_every_shard(both):
    """In order within each."""
    found = both.sharded.read(lambda txn: txn.scan(DOMAIN, due_before=90, limit=99))

    assert sorted(found) == sorted(both.one.read(lambda txn: txn.scan(DOMAIN, due_before=90, limit=99)))
    keys = log_table(LOG_KEYS, LOG)
    both.same(lambda txn: txn.scan(keys, due_before=9, limit=5))


def test_unique_keys_are_found_with_their_jobs(both):
    """In the shard of the parent, of the domain, however long, or of the key; in no other."""
    scopes = [None, b"d", b"d" * 65, *(ids.pack(9, 2, slot) for slot in range(4))]
    keys = [UniqueKey("", "t", scope, b"real:%d" % n) for n in range(12) for scope in scopes]
    for n, key in enumerate(keys):
        new = NewJob(task="t", unique=key.key.removeprefix(b"real:"))
        is_child = isinstance(key.scope, int)
        new = replace(new, **{"parent_id" if is_child else "domain": key.scope or (0 if is_child else None)})
        slot = slot_for(new) or 0
        raw = msgspec.json.encode(Unique(**key._asdict(), job_id=ids.pack(500 + n, 2, slot)))
        both.put(UNIQUE, key.name, raw, slot=slot)
    missing = UniqueKey("", "t", None, b"real:never added")

    found = both.same(lambda txn: txn.rows(UNIQUE, [key.name for key in (*keys, missing)]))

    assert len(found) == len(keys)
    both.same(lambda txn: txn.scan(UNIQUE, limit=5))
