"""Batches that only add, which have a shorter way, and the word to those who wait, which a commit gives."""

import os
import random
import signal
import threading

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Stopped, Unsettled
from holdfast.core.job import Place
from holdfast.core.moving import Notice, Standing
from holdfast.engine.engine import Engine
from holdfast.store.redis import store as redis_store
from holdfast.store.redis.connection import COMMIT
from holdfast.store.redis.keys import INLINE_BYTES, STAMP_BYTES
from holdfast.store.redis.store import RedisStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.making import NOW_MS, a_job, add
from tests.doubles import Passing
from tests.postgres.proxy import Proxy
from tests.redis_servers import redis_or_skip, until
from tests.store.helpers import all_ids

NEW = (
    c.NewJob(task="a", data='{"n":1}'),
    c.NewJob(task="a", data=b"\x00\xff"),
    c.NewJob(task="b", data="{}", tenant="we", priority=900, max_attempts=3),
    c.NewJob(task="b", data="{}", tenant="we", delay_ms=5_000, expires_in_ms=60_000),
    c.NewJob(task="a", data="{}", mock=True),
)
PLAIN = [
    *(c.Add(jobs=(new,)) for new in NEW),
    c.Add(jobs=(NEW[0],), more=('{"n":2}', '{"n":3}')),
    c.Add(jobs=(c.NewJob(task="a", data="{}", repeat="never"),)),
]
LARGE = "x" * (INLINE_BYTES + 1)


@pytest.fixture
def engine(store):
    """An engine that has its number, and so need not read."""
    engine = Engine(store, dice=random.random)
    engine.execute([c.Add(jobs=(NEW[0],))])
    return engine


def content(client, prefix):
    """All that a store holds, without what is drawn anew for each commit."""
    base = b"{hf:%s:0}:" % prefix.encode()
    found = {}
    for key in client.scan_iter(base.replace(b"{", b"\\{") + b"*"):
        name = key.removeprefix(base)
        if name.startswith(b"commit:") or name in (b"tick", b"records:sysid", b"kinds"):
            continue
        sort = client.type(key)
        if sort == b"hash":
            cut = STAMP_BYTES if name == b"jobs" else 0
            found[name] = {field: value[cut:] for field, value in client.hgetall(key).items()}
        else:
            found[name] = client.zrange(key, 0, -1, withscores=True) if sort == b"zset" else client.get(key)
    return found


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "a batch each"])
def test_it_leaves_what_an_ordinary_batch_leaves(redis_server, together):
    """Key by key: records, bodies, orders, counts and turns; with a command among them that is refused."""
    contents, replies = [], []
    for between in (lambda store: store, Passing):
        prefix = redis_server.prefix()
        store = RedisStore(redis_server.url(prefix), clock=MovedClock(NOW_MS))
        engine = Engine(between(store), dice=random.random)
        engine.execute([c.Add(jobs=(NEW[0],))])
        batches = [PLAIN] if together else [[one] for one in PLAIN]
        replies.append([str(reply) for batch in batches for reply in engine.execute(batch).replies])
        store.close()
        with redis_server.client() as client:
            contents.append(content(client, prefix))

    blind, ordinary = contents
    assert len(blind[b"jobs"]) == 9
    assert blind == ordinary
    assert replies[0] == replies[1]


def test_it_reads_nothing_and_is_one_round_trip(engine, monkeypatch):
    """Nor is anybody told apart from it."""
    sent = []
    many = engine.store._link.many

    def counting(commands):
        sent.append(commands)
        return many(commands)

    monkeypatch.setattr(engine.store._link, "many", counting)
    monkeypatch.setattr(engine.store, "run", None)
    monkeypatch.setattr(engine.store, "notify", None)

    engine.execute(PLAIN[:3])

    assert [[words[1] for words in commands] for commands in sent] == [[COMMIT.sha]]


def test_a_large_body_goes_the_ordinary_way(engine):
    """It is written before its record."""
    ((job_id, other),) = engine.execute([c.Add(jobs=(NEW[0],), more=(LARGE,))]).replies

    assert engine.read(lambda txn: txn.bodies([job_id, other])) == {job_id: '{"n":1}', other: LARGE}


def test_an_id_that_is_taken_is_found_out_by_the_commit(store):
    """And the batch begins anew as one that looks."""
    add(store, a_job(1), a_job(2))
    store.run(lambda txn: txn.archive([a_job(2, version=2, place=Place.DONE)], keep=True))
    tries = []

    def fn(txn):
        known = txn.insert_alike(a_job(1, size=2), [(1, "[]"), (2, "[]"), (3, "[]")])
        tries.append((type(txn).__name__, known))

    store.run_blindly(fn)

    assert tries == [("BlindTxn", set()), ("RedisTxn", {1, 2})]
    assert all_ids(store) == [1, 3]
    assert store.read(lambda txn: txn.bodies([1, 2, 3])) == {1: "{}", 2: "{}", 3: "[]"}


def test_who_reads_all_the_same_is_let(store):
    """As one who may."""
    store.run(lambda txn: txn.put_records("k", {"n": b"1"}))

    assert store.run_blindly(lambda txn: txn.records("k")) == {"n": b"1"}


def test_a_notice_that_somebody_has_put_up_is_obeyed(engine, redis_url, monkeypatch):
    """What was believed of the door is checked by the commit."""
    monkeypatch.setattr("holdfast.engine.engine.STOPPED_S", 0.0)
    other = RedisStore(redis_url)
    notice = msgspec.json.encode(Notice(standing=Standing.STOPPED, other="elsewhere"))
    other.run(lambda txn: txn.put_notice(notice))
    before = all_ids(other)

    with pytest.raises(Stopped):
        engine.execute([PLAIN[0]])

    assert all_ids(other) == before
    other.run(lambda txn: txn.put_notice(None))
    other.close()
    assert isinstance(engine.execute([PLAIN[0]]).replies[0], list)


def test_an_answer_that_was_lost_is_looked_for(redis_server, redis_url):
    """And the jobs are added once."""
    proxy = Proxy(redis_server.port, word=COMMIT.sha)
    store = RedisStore(redis_url.replace(str(redis_server.port), str(proxy.port)))
    try:
        engine = Engine(store, dice=random.random)
        engine.execute([PLAIN[0]])

        proxy.arm()
        (added,) = engine.execute([PLAIN[0]]).replies

        assert proxy.swallowed.is_set()
        assert len(all_ids(store)) == 2
        assert added[0] in all_ids(store)
    finally:
        store.close()
        proxy.close()


def waiting(store):
    """A thread in which a store waits, and what it was told."""
    told = []
    thread = threading.Thread(target=lambda: told.append(store.wait(20)))
    thread.start()
    return thread, told


@pytest.mark.parametrize("command", [PLAIN[0], c.Add(jobs=(c.NewJob(task="u", unique=b"u"),))])
def test_a_commit_tells_those_who_wait_in_other_processes(engine, redis_url, redis_server, command):
    """Not one who waits here: he is told by whoever committed."""
    other = RedisStore(redis_url)
    other.read(lambda txn: txn.notice())
    while other.wait(0.01):
        pass
    while engine.store.wait(0.01):
        pass
    thread, told = waiting(other)

    engine.execute([command])

    thread.join(15)
    assert told == [True]
    assert not engine.store.wait(0.05)
    other.close()


def test_one_who_may_not_speak_has_committed_all_the_same(redis_server):
    """A user of the server without a right to channels."""
    with redis_server.client() as client:
        rights = ("on", ">pass", "~*", "+@all", "resetchannels")
        client.execute_command("ACL", "SETUSER", "silent", *rights)
    url = redis_server.url().replace("redis://", "redis://silent:pass@")
    store = RedisStore(url)
    engine = Engine(store, dice=random.random)
    added = [job_id for n in range(3) for job_id in engine.execute([PLAIN[0]]).replies[0]]

    assert all_ids(store) == added
    store.close()


def test_what_the_replicas_do_not_have_is_done_once_and_said_so(monkeypatch):
    """A batch that may be lost is not done again: it is done, and its caller has to look."""
    monkeypatch.setattr(redis_store, "REPLICAS_MS", 1_000)
    server = redis_or_skip()
    replica = redis_or_skip(replicaof=f"127.0.0.1 {server.port}")
    store = RedisStore(server.url(durability="replicated"), patience_s=5)
    assert replica.process is not None
    pid = replica.process.pid
    try:
        with server.client() as client:
            until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
        engine = Engine(store, dice=random.random)
        engine.execute([PLAIN[0]])
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(Unsettled):
            engine.execute([PLAIN[0]])
        with pytest.raises(Unsettled):
            store.run(lambda txn: (txn.notice(), txn.insert([(a_job(1), "{}")])))

        assert len(all_ids(store)) == 3
    finally:
        os.kill(pid, signal.SIGCONT)
        store.close()
        replica.close()
        server.close()
