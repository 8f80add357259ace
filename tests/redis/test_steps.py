"""Between any two steps of a claim or a commit: what is left, and who puts it right."""

import os

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.job import Place
from holdfast.store.contract import ClaimQuery
from holdfast.store.redis.claim import TAKEN_MS
from holdfast.store.redis.connection import COMMIT, SETTLE
from holdfast.store.redis.keys import INLINE_BYTES, Keys
from holdfast.store.redis.lane import LANE_MS
from holdfast.store.redis.store import RedisStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.making import NOW_MS, a_job, add, claim, following, ids, live
from tests.postgres.proxy import Proxy
from tests.store.helpers import all_ids, line, python

TAKES = """
import sys
from holdfast.store.contract import ClaimQuery
from holdfast.store.redis.store import RedisStore
store = RedisStore(sys.argv[1], clock=lambda: int(sys.argv[2]))
def fn(txn):
    jobs = txn.claim(ClaimQuery(owner=3, now_ms=txn.now_ms, limit=2, lease_until=txn.now_ms + 60_000))
    print(*(job.id for job in jobs))
    sys.stdin.readline()
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


def test_a_crash_between_the_two_steps_of_a_claim_is_a_lost_lease(store, clock, redis_url):
    """Nobody gets the jobs until their time is over; then upkeep puts them back as they were."""
    added = add(store, a_job(1), a_job(2), a_job(3, domain=b"d", expires_at=NOW_MS + 10**9))
    with python(TAKES, redis_url, NOW_MS) as client:
        assert line(client) == "1 2"
        assert ids(claim(store, limit=9)) == [3]
        client.kill()
        client.wait()

    assert claim(store) == []
    assert store.read(lambda txn: txn.moments().running) == NOW_MS + TAKEN_MS
    clock.advance(TAKEN_MS)
    assert store.run(lambda txn: txn.first(Place.RUNNING, clock(), 9)) == []

    assert ids(store.read(lambda txn: txn.first(Place.READY, 1 << 60, 9))) == [1, 2]
    assert live(store, 1, 2) == {1: added[0], 2: added[1]}
    assert ids(claim(store)) == [1, 2]


def test_what_was_taken_can_be_changed_by_others(store, clock, redis_url):
    """Who took it and is not heard of does not hold it: a job that was cancelled stays so."""
    first, second = add(store, a_job(1), a_job(2))
    with python(TAKES, redis_url, NOW_MS) as client:
        assert line(client) == "1 2"
        store.run(lambda txn: txn.remove([first]))
        store.run(lambda txn: txn.swap([following(second, priority=501)]))

        assert ids(claim(store)) == [2]
        client.kill()
        client.wait()
    clock.advance(TAKEN_MS)

    assert store.run(lambda txn: txn.first(Place.RUNNING, NOW_MS + 1, 9)) == []
    assert live(store, 1, 2).keys() == {2}
    assert claim(store) == []


def test_a_batch_that_is_done_again_claims_the_same_jobs(store):
    """And what it finished the first time is not refused the second."""
    add(store, a_job(1), a_job(2), a_job(3))
    (held,) = claim(store, limit=1)
    tries = []

    def fn(txn):
        txn.swap([following(held, place=Place.PAUSED, rank=0)])
        tries.append(ids(txn.claim(ClaimQuery(owner=7, now_ms=NOW_MS, limit=1))))
        if len(tries) < 3:
            raise Conflict("again")

    store.run(fn)

    assert tries == [[2], [2], [2]]
    assert ids(claim(store)) == [3]


def test_somebody_who_is_faster_makes_a_batch_begin_anew(redis_url, clock):
    """Between what it read and its commit: a job, a record, a kind, a key, a domain, each also if absent."""
    with_two = [RedisStore(redis_url, clock=clock) for _ in range(2)]
    store, other = with_two
    (job,) = add(store, a_job(1))
    changes = [
        (lambda txn: txn.load([1]), lambda txn: txn.swap([following(job)])),
        (lambda txn: txn.load([5]), lambda txn: txn.insert([(a_job(5), "{}")])),
        (lambda txn: txn.records("k", ["a"]), lambda txn: txn.put_records("k", {"a": b"1"})),
        (lambda txn: txn.records("k"), lambda txn: txn.put_records("k", {"b": b"1"})),
        (lambda txn: txn.archived([9]), lambda txn: txn.archive([following(a_job(5))], keep=True)),
    ]
    for n, (read, write) in enumerate(changes):
        tries: list[int] = []

        def fn(txn, read=read, write=write, tries=tries, n=n):
            read(txn)
            if not tries:
                other.run(write)
            tries.append(1)
            txn.put_records("mine", {str(n): b"x"})

        store.run(fn)
        # The last reads what the other does not touch.
        assert len(tries) == (2 if n < 4 else 1), n
    for one in with_two:
        one.close()


def test_a_commit_whose_answer_was_lost_is_done_once(redis_server, redis_url):
    """It is looked for, and found."""
    proxy = Proxy(redis_server.port, word=COMMIT.sha)
    store = RedisStore(redis_url.replace(str(redis_server.port), str(proxy.port)))
    try:
        add(store, a_job(1))
        tries = []

        def fn(txn):
            tries.append(txn.insert([(a_job(2), "{}")]))
            txn.put_records("k", {"n": b"%d" % len(tries)})

        proxy.arm()
        store.run(fn)

        assert proxy.swallowed.is_set()
        assert tries == [set()]
        assert all_ids(store) == [1, 2]
        assert store.read(lambda txn: txn.records("k")) == {"n": b"1"}
    finally:
        store.close()
        proxy.close()


def test_a_commit_that_arrives_after_it_was_given_up_does_nothing(redis_server, redis_url):
    """Its lane was cut off by whoever asked what became of it."""
    keys = Keys(redis_url.partition("prefix=")[2].partition("&")[0])
    lane = keys.lane("late")
    plan = [0, 0, 0, 0, 1, b"SET", 10, 1, b"x", 0, 0, 0, 0]
    named = [lane, *keys.of_every_plan, keys.base + b"mark"]
    how = (LANE_MS, b"0", keys.channel, b"")
    with redis_server.client() as client:

        def call(script, names, *values):
            return client.eval(script.text, len(names), *names, *values)

        assert call(SETTLE, [lane], b"1", LANE_MS) == 0
        assert call(COMMIT, named, b"1", b"", *how, *plan) == b"LANE"
        assert client.exists(keys.base + b"mark") == 0
        client.delete(lane)
        assert call(COMMIT, named, b"1", b"", *how, *plan) == b"OK"
        assert call(COMMIT, named, b"1", b"", *how, *plan) == b"DONE"
        assert call(SETTLE, [lane], b"1", LANE_MS) == 1


def test_large_bodies_are_written_before_and_belong_to_nobody_if_the_batch_fails(store, redis_server):
    """They have an expiry, which the commit lifts; nothing of them is left when their job goes."""
    large = "x" * (INLINE_BYTES + 1)
    store.run(lambda txn: txn.insert([(a_job(1), large)]))
    store.run(lambda txn: txn.put_bodies({1: large.encode()}, result=True))
    with redis_server.client() as client:
        base = f"{{hf:{store.address.prefix}:0}}:"

        def kept():
            return sorted(client.keys(f"{base}data:*".replace("{", "\\{")) + client.keys(f"{base}result:*"))

        assert [client.ttl(key) for key in kept()] == [-1, -1]
        assert store.read(lambda txn: (txn.bodies([1]), txn.bodies([1], result=True))) == (
            {1: large},
            {1: large.encode()},
        )
        assert claim(store)[0].id == 1

        store.run(lambda txn: txn.put_bodies({1: "small"}))
        assert len(kept()) == 1
        store.run(lambda txn: txn.remove(list(txn.load([1]).values())))
        assert kept() == []
        assert client.keys(f"{base}stage:*") == []


def test_what_somebody_has_taken_stands_in_nobodys_way(store, redis_url):
    """However many: one who claims by task gets the next."""
    add(store, *(a_job(n) for n in range(1, 101)))

    def fn(txn):
        taken = txn.claim(ClaimQuery(owner=1, now_ms=NOW_MS, limit=90))
        if len(taken) == 90:
            assert ids(claim(store, owner=2, tasks=("t",), tenant="", limit=2)) == [91, 92]
        return taken

    assert len(store.run(fn)) == 90
    assert ids(claim(store, tasks=("t",), limit=99)) == list(range(93, 101))


def test_a_forked_process_does_not_take_its_parents_commits_for_its_own(store):
    """Its lanes are new: with those of its parent its first commit would seem to be done already."""
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


def test_a_staged_body_that_is_gone_leaves_the_batch_undone(store, redis_server):
    """Nothing of it is written; it is done again with the body."""
    large = "x" * (INLINE_BYTES + 1)
    store.run(lambda txn: txn.insert([(a_job(1), large)]))
    many = store._link.many
    sent = []

    def without(commands):
        sent.append(len(commands))
        return many(commands[1:] if len(sent) == 1 else commands)

    store._link.many = without
    store.run(lambda txn: txn.put_bodies({1: "y" * len(large)}))
    del store._link.many

    assert sent[0] == sent[-1] == 2
    assert store.read(lambda txn: txn.bodies([1])) == {1: "y" * len(large)}
