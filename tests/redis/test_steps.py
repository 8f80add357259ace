"""Between any two steps of a claim or a commit: what is left, and what puts it right."""

import os
import sys

import msgspec
import pytest

from holdfast.core.errors import Conflict, Unsettled
from holdfast.core.job import Place
from holdfast.store.contract import NOTHING, Changes, Leased
from holdfast.store.redis.claim import TAKEN_MS
from holdfast.store.redis.connection import COMMIT, SETTLE, RedisConnection
from holdfast.store.redis.keys import Keys, new_stamp
from holdfast.store.redis.plan import HSET
from holdfast.store.redis.store import RedisStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.batches import Strike, Struck
from holdfast.testing.stores.making import (
    NOW_MS,
    a_job,
    a_query,
    add,
    claim,
    commit,
    following,
    ids,
    live,
    look,
    new_jobs,
)
from tests.store.helpers import all_ids, line, python

TAKES = """
import sys
from holdfast.store.contract import NOTHING, ClaimQuery
from holdfast.store.redis.store import RedisStore
store = RedisStore(sys.argv[1], clock=lambda: int(sys.argv[2]))
tasks = ("t",) if sys.argv[3:] else None
def fn(txn):
    until = txn.now_ms + 60_000
    jobs = txn.claim(ClaimQuery(owner=3, now_ms=txn.now_ms, limit=2, lease_until=until, tasks=tasks))
    print(*(job.id for job in jobs))
    sys.stdin.readline()
    return NOTHING, None
store.run(fn)
"""


@pytest.fixture
def clock():
    """A clock that is moved."""
    return MovedClock(NOW_MS)


@pytest.fixture
def store(redis_url, clock):
    """A store by that clock."""
    store = RedisStore(redis_url, clock=clock)
    yield store
    store.close()


@pytest.mark.parametrize("by", [(), ("t",)], ids=["from all", "from a queue"])
def test_a_crash_between_the_two_steps_of_a_claim_is_a_lost_lease(store, clock, redis_url, by):
    """Nobody gets the jobs until their time is over; then upkeep puts them back as they were."""
    added = add(store, a_job(1), a_job(2), a_job(3, domain=b"d", expires_at=NOW_MS + 10**9))
    with python(TAKES, redis_url, NOW_MS, *by) as client:
        assert line(client) == "1 2"
        assert ids(claim(store, limit=9)) == [3]
        client.kill()
        client.wait()

    assert claim(store) == claim(store, tasks=("t",)) == []
    assert store.read(lambda txn: txn.moments().running) == NOW_MS + TAKEN_MS
    clock.advance(TAKEN_MS)
    assert look(store, lambda txn: txn.first(Place.RUNNING, clock(), 9)) == []

    assert ids(store.read(lambda txn: txn.first(Place.READY, 1 << 60, 9))) == [1, 2]
    assert live(store, 1, 2) == {1: added[0], 2: added[1]}
    assert ids(claim(store, tasks=("t",))) == [1, 2]


def test_what_was_taken_can_be_changed_by_others(store, clock, redis_url):
    """A claim that is not heard of again does not hold it: a job that was cancelled stays so."""
    first, second = add(store, a_job(1), a_job(2))
    with python(TAKES, redis_url, NOW_MS) as client:
        assert line(client) == "1 2"
        commit(store, removed=[first])
        commit(store, swapped=[following(second, priority=501)])

        assert ids(claim(store)) == [2]
        client.kill()
        client.wait()
    clock.advance(TAKEN_MS)

    assert look(store, lambda txn: txn.first(Place.RUNNING, NOW_MS + 1, 9)) == []
    assert live(store, 1, 2).keys() == {2}
    assert claim(store) == []


def test_a_batch_that_is_done_again_claims_the_same_jobs(store):
    """And what it finished the first time is not refused the second."""
    add(store, a_job(1), a_job(2), a_job(3))
    (held,) = claim(store, limit=1)
    tries = []

    def fn(txn):
        txn.write(Changes(swapped=[following(held, place=Place.PAUSED, rank=0)]))
        tries.append(ids(txn.claim(a_query(limit=1))))
        if len(tries) < 3:
            raise Conflict("again")
        return NOTHING, None

    store.run(fn)

    assert tries == [[2], [2], [2]]
    assert ids(claim(store)) == [3]


def test_a_claim_that_is_given_back_is_there_for_others_by_its_pair(store):
    """Also where another batch has meanwhile found the pair's queue empty."""
    (first, _) = add(store, a_job(1), a_job(2))
    tries = []

    def fn(txn):
        tries.append(ids(txn.claim(a_query(tasks=("t",)))))
        if len(tries) == 1:
            commit(store, removed=[first])
        return NOTHING, None

    store.run(fn)

    assert tries == [[1, 2], [2]]


def test_another_batch_that_is_faster_makes_one_begin_anew(redis_url, clock):
    """Between what it read and its commit: a job, a row, a table, an archived job, each also if absent."""
    with_two = [RedisStore(redis_url, clock=clock) for _ in range(2)]
    store, other = with_two
    (job,) = add(store, a_job(1))
    changes = [
        (lambda txn: txn.load([1]), {"swapped": [following(job)]}),
        (lambda txn: txn.load([5]), {"added": new_jobs([a_job(5)])}),
        (lambda txn: txn.rows("k", ["a"]), {"rows": {("k", "a"): b"1"}}),
        (lambda txn: txn.rows("k"), {"rows": {("k", "b"): b"1"}}),
        (lambda txn: txn.archived([5]), {"archived": [following(a_job(5))]}),
        (lambda txn: txn.archived([9]), {"added": new_jobs([a_job(6)])}),
    ]
    for n, (read, write) in enumerate(changes):
        tries: list[int] = []

        def fn(txn, read=read, write=write, tries=tries, n=n):
            read(txn)
            if not tries:
                commit(other, **write)
            tries.append(1)
            return Changes(rows={("mine", str(n)): b"x"}), None

        store.run(fn)
        # The last reads what the other does not touch.
        assert len(tries) == (1 if n == 5 else 2), n
    for one in with_two:
        one.close()


def test_a_commit_that_arrives_after_it_was_given_up_does_nothing(redis_server, redis_url):
    """The process that asked what became of it has changed the version that it knows."""
    keys = Keys(redis_url.partition("prefix=")[2].partition("&")[0])
    named = [*keys.of_every_plan, keys.base + b"mark"]
    plan = [msgspec.msgpack.encode([2, 1, 1, HSET, len(named), 1, 2]), b"field", b"value"]
    first, second = new_stamp(NOW_MS), new_stamp(NOW_MS)
    with redis_server.client() as client:
        client.set(keys.version, b"1 1 ")

        def call(script, names, *values):
            return client.eval(script.text, len(names), *names, *values)

        def send(stamp):
            return call(COMMIT, named, stamp, b"", client.get(keys.version), *plan)

        def settle(stamp):
            return call(SETTLE, [keys.marks, keys.version], stamp, new_stamp(NOW_MS).hex())[0]

        late = [COMMIT, named, first, b"", client.get(keys.version), *plan]
        assert settle(first) == 0
        assert call(*late) == b"VERSION"
        assert client.exists(named[-1]) == 0
        assert send(second) == b"OK"
        assert client.hgetall(named[-1]) == {b"field": b"value"}
        assert (settle(first), settle(second)) == (0, 1)


def test_a_commit_of_which_nothing_can_be_known_any_more_is_unsettled(store, redis_server, monkeypatch):
    """Very many commits have been made since it was sent: its mark may be gone."""
    add(store, a_job(1))
    keys, real = Keys(store.address.prefix), RedisConnection.exchange

    def lost(connection, commands):
        if commands[0][1] != COMMIT.sha:
            return real(connection, commands)
        with redis_server.client() as client:
            client.delete(keys.marks)
            client.rpush(keys.marks, *[new_stamp(NOW_MS)] * 20_000)
        raise ConnectionResetError

    monkeypatch.setattr(RedisConnection, "exchange", lost)
    with pytest.raises(Unsettled):
        add(store, a_job(2))
    monkeypatch.undo()

    assert all_ids(store) == [1]


def test_an_interrupt_at_any_step_of_a_plain_claim_leaves_no_job_unknown(store):
    """What has been leased is told, so that the caller can release it."""
    add(store, *(a_job(n) for n in range(1, 200)))
    assert store.lease(a_query(limit=1), [])
    at = struck = 1
    known = {1}
    while struck:
        leased: list[Leased] = []
        before = sys.getprofile()
        sys.setprofile(Strike(store, at))
        try:
            store.lease(a_query(limit=1), leased)
            struck = 0
        except Struck:
            at += 1
        finally:
            sys.setprofile(before)
        known |= {job.id for job, _ in leased}
        running = store.read(lambda txn: txn.first(Place.RUNNING, 1 << 60, 999))
        assert {job.id for job in running} <= known, at

    assert at > 20


def test_what_a_claim_has_taken_stands_in_nobodys_way(store):
    """However many: a claim by task gets the next."""
    add(store, *(a_job(n) for n in range(1, 101)))

    def fn(txn):
        taken = txn.claim(a_query(limit=90))
        assert ids(claim(store, owner=2, tasks=("t",), tenant="", limit=2)) == [91, 92]
        return NOTHING, taken

    assert len(store.run(fn)) == 90
    assert ids(claim(store, tasks=("t",), limit=99)) == list(range(93, 101))


def test_a_forked_process_does_not_take_its_parents_commits_for_its_own(store):
    """Its connections and stamps are new."""
    add(store, a_job(1))
    add(store, a_job(2))
    child = os.fork()
    if child == 0:
        try:
            add(store, a_job(3))
        finally:
            os._exit(0)
    add(store, a_job(4))
    os.waitpid(child, 0)

    assert all_ids(store) == [1, 2, 3, 4]


def test_a_plain_claim_after_an_outage_is_left_to_a_batch(store, monkeypatch):
    """Its lease would have begun before the outage."""
    add(store, a_job(1))
    leased: list[Leased] = []
    monkeypatch.setattr("holdfast.store.redis.store.LATE_S", -1.0)

    assert not store.lease(a_query(limit=1), leased)

    assert not leased
    assert live(store, 1) == {1: a_job(1)}
