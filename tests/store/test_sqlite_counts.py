"""The counts, and which pairs are ready by them, whatever is counted in one statement."""

import random
import sqlite3
from contextlib import closing

import pytest

from holdfast.core.job import Place, State
from holdfast.store.contract import Changes, CountKey, WaitingQuery
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import commit, look

KINDS = [(Place.READY, State.QUEUED), (Place.READY, State.RUNQUEUED), (Place.RUNNING, State.RUNNING)]
KEYS = [CountKey(tenant, task, *kind) for tenant in ("", "a", "b") for task in "xyz" for kind in KINDS]


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    store = SqliteStore(tmp_path / "jobs.db")
    commit(store)
    yield store
    store.close()


def seen(store):
    """The counts, and who is ready."""
    return store.read(lambda txn: (txn.counts(), txn.waiting(WaitingQuery(limit=100))))


def differences(rng, counts):
    """Some counts go up or down, some to zero, in any order; some stay."""
    chosen = rng.sample(KEYS, rng.randrange(1, 12))
    return {key: rng.choice([rng.randrange(4), -counts.get(key, 0)]) for key in chosen}


def check(store):
    """No count is zero."""

    def fn(txn):
        assert txn.connection.rows("SELECT * FROM holdfast_counts WHERE number <= 0") == []

    look(store, fn)


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_is_ready_while_it_has_a_ready_count(store, seed):
    """As in the store that counts in plain Python."""
    rng, memory = random.Random(seed), MemoryStore()
    for _ in range(40):
        counts = differences(rng, seen(memory)[0])
        commit(store, counts=counts)
        commit(memory, counts=counts)

        assert seen(store) == seen(memory)
    check(store)


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("names", ["xy", "yx"])
def test_one_ready_count_may_go_over_into_the_other(store, recursive, names):
    """Whichever comes first, also on a caller's connection whose triggers may fire themselves."""
    before, after = (CountKey("a", "t", Place.READY, state) for state in (State.QUEUED, State.RUNQUEUED))
    commit(store, counts={before: 2, CountKey("a", "u", Place.READY, State.QUEUED): 1})
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        connection.execute("BEGIN IMMEDIATE")
        changes = {before: -2, after: 2} if names == "xy" else {after: 2, before: -2}
        store.borrow(connection, lambda txn: (Changes(counts=changes), None))
        connection.execute("COMMIT")

    check(store)
    assert [lane[:2] for lane in seen(store)[1]] == [("a", "t"), ("a", "u")]

    commit(store, counts={after: -2, CountKey("a", "u", Place.READY, State.QUEUED): -1})
    check(store)
    assert seen(store) == ({}, [])
