"""What a commit promises: it is done once, as a whole, and wakes those that wait in other processes."""

import os
import random
import signal
import threading

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Stopped, Unavailable, Unsettled
from holdfast.core.moving import Notice, Standing
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Done
from holdfast.store.contract import Changes, NewJobs
from holdfast.store.redis import store as redis_store
from holdfast.store.redis.connection import ADD as ADD_ONE
from holdfast.store.redis.connection import CLAIM, COMMIT, LEASE, RedisConnection
from holdfast.store.redis.keys import INLINE_BYTES
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add, commit, ended, ids, look, new_jobs, refuse
from tests.postgres.proxy import Proxy
from tests.redis_servers import redis_or_skip, until
from tests.store.helpers import all_ids

ADD = c.Add(jobs=(c.NewJob(task="a", data='{"n":1}'),))
LARGE = "x" * (INLINE_BYTES + 1)


@pytest.fixture
def engine(store):
    """An engine that has its number, and so need not read."""
    engine = Engine(store, rng=random.random)
    engine.execute([ADD])
    return engine


def test_jobs_of_many_kinds_are_one_commit(engine, messages):
    """Whatever their places, tenants, bodies and priorities."""
    new = (
        c.NewJob(task="a", data=b"\x00\xff"),
        c.NewJob(task="b", data="{}", tenant="we", priority=900, max_attempts=3),
        c.NewJob(task="b", data="{}", tenant="we", delay_ms=5_000, expires_in_ms=60_000),
        c.NewJob(task="a", data=LARGE, mock=True),
    )

    replies = engine.execute([c.Add(jobs=(one,)) for one in new]).replies

    assert [[words[1] for words in commands] for commands, _ in messages] == [[COMMIT.sha]]
    stored = engine.read(lambda txn: txn.bodies([job_id for (job_id,) in replies]))
    assert list(stored.values()) == [b"\x00\xff", "{}", "{}", LARGE]


@pytest.mark.parametrize("archived", [False, True])
def test_an_id_that_is_taken_is_found_out_by_the_commit(store, archived):
    """Nothing of the batch is written, whatever is in it."""
    (job,) = add(store, a_job(1))
    if archived:
        commit(store, archived=[ended(job)])

    refuse(store, Changes(added=new_jobs([a_job(1), a_job(2)]), rows={("k", "a"): b"1"}))

    assert all_ids(store) == ([] if archived else [1])
    assert store.read(lambda txn: txn.rows("k")) == {}


@pytest.mark.parametrize("large", [False, True])
def test_large_bodies_are_kept_apart_and_go_with_their_jobs(store, redis_server, large):
    """Claims do not touch them; one may become the other, and nothing of them is left behind."""
    texts = [LARGE, "small"] if large else ["small", LARGE]
    add(store, a_job(1), data=texts[0])
    commit(store, results={1: texts[0].encode()})
    commit(store, data={1: texts[1]}, results={1: texts[1].encode()})

    assert store.read(lambda txn: (txn.bodies([1]), txn.bodies([1], result=True))) == (
        {1: texts[1]},
        {1: texts[1].encode()},
    )
    store.run(lambda txn: (Changes(removed=[*txn.load([1]).values()]), None))
    with redis_server.client() as client:
        base = f"{{hf:{store.address.prefix}:0}}:"
        assert [name for name in ("data", "results") if client.exists(base + name)] == []


def test_a_notice_that_another_process_has_put_up_is_obeyed(engine, redis_url, monkeypatch):
    """What was believed of the notice is checked by the commit."""
    monkeypatch.setattr("holdfast.engine.sysid.STOPPED_S", 0.0)
    other = RedisStore(redis_url)
    notice = msgspec.json.encode(Notice(standing=Standing.STOPPED, other="elsewhere"))
    commit(other, notice=notice)
    before = all_ids(other)

    with pytest.raises(Stopped):
        engine.execute([ADD])

    assert all_ids(other) == before
    commit(other, notice=None)
    other.close()
    assert isinstance(engine.execute([ADD]).replies[0], list)


def test_a_commit_whose_reply_was_lost_is_done_once(redis_server, redis_url):
    """It is looked for, and found: the batch is not decided again."""
    proxy = Proxy(redis_server.port, word=COMMIT.sha)
    store = RedisStore(redis_url.replace(str(redis_server.port), str(proxy.port)))
    try:
        add(store, a_job(1))
        tries = []

        def fn(_txn):
            tries.append(1)
            return Changes(
                added=[NewJobs(a_job(2), [(2, "{}")])], rows={("k", "n"): b"%d" % len(tries)}
            ), None

        proxy.arm()
        store.run(fn)

        assert proxy.swallowed.is_set()
        assert tries == [1]
        assert all_ids(store) == [1, 2]
        assert store.read(lambda txn: txn.rows("k")) == {"n": b"1"}
    finally:
        store.close()
        proxy.close()


def test_a_plain_add_whose_reply_was_lost_is_done_once(redis_server, redis_url):
    """By the mark that it has left."""
    proxy = Proxy(redis_server.port, word=ADD_ONE.sha)
    store = RedisStore(redis_url.replace(str(redis_server.port), str(proxy.port)))
    engine = Engine(store, rng=random.random)
    try:
        (first,) = engine.execute([ADD]).replies[0]
        engine.execute([ADD])
        proxy.arm()
        (second,) = engine.execute([ADD]).replies[0]

        assert proxy.swallowed.is_set()
        assert all_ids(store)[0] == first
        assert (len(all_ids(store)), all_ids(store)[-1]) == (3, second)
    finally:
        engine.close()
        proxy.close()


@pytest.mark.parametrize("script", [LEASE, CLAIM], ids=["plain", "in a batch"])
def test_what_a_claim_has_taken_whose_reply_was_lost_is_claimed_at_once(redis_server, redis_url, script):
    """By its stamp, or the batch is run again and finds it."""
    proxy = Proxy(redis_server.port, word=script.sha)
    engine = Engine(RedisStore(redis_url.replace(str(redis_server.port), str(proxy.port))), rng=random.random)
    asked = c.Claim(tasks=("a",), limit=1, lease_ms=60_000, mock=script is CLAIM, tenant="")
    large = c.NewJob(task="a", data=f'"{LARGE}"')
    try:
        (added,) = engine.execute([c.Add(jobs=(*ADD.jobs, *ADD.jobs, large, *ADD.jobs))]).replies
        # The server may not know the script before its first use.
        engine.execute([asked])
        engine.execute([asked])
        proxy.arm()

        (claimed,) = engine.execute([msgspec.structs.replace(asked, limit=2)]).replies

        assert proxy.swallowed.is_set()
        assert [one.job.id for one in claimed] == added[2:4]
        assert [one.data for one in claimed] == [large.data, ADD.jobs[0].data]
        assert engine.read(lambda txn: txn.load(added[2:4])) == {one.job.id: one.job for one in claimed}
    finally:
        engine.close()
        proxy.close()


def test_an_interrupted_claim_is_released(engine, monkeypatch):
    """What it has leased is found by its stamp."""
    (added,) = engine.execute([ADD, *[ADD] * 3]).replies[:1]
    engine.execute([c.Claim(tasks=("a",), limit=1, lease_ms=60_000, tenant="")])
    done, exchange = Done(), RedisConnection.exchange

    def struck(connection, commands):
        replies = exchange(connection, commands)
        if commands[0][1] == LEASE.sha:
            raise KeyboardInterrupt
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(RedisConnection, "exchange", struck)
        with pytest.raises(KeyboardInterrupt):
            engine.execute([c.Claim(tasks=("a",), limit=1, lease_ms=60_000, tenant="")], done)

    assert [one.job.id for one in done.replies[0]] == added


def test_a_store_whose_server_lost_its_data_is_a_store_again_with_the_next_commit(server):
    """So that commands, which make no new store, find what was added since."""
    store, later = RedisStore(server.url("s")), RedisStore(server.url("s"), create=False)
    add(store, a_job(1))
    with server.client() as client:
        client.flushall()

    add(store, a_job(2))

    assert all_ids(later) == [2]
    store.close()
    later.close()


def waiting(store):
    """A thread in which a store waits, and what it was told."""
    told = []
    thread = threading.Thread(target=lambda: told.append(store.wait(60)))
    thread.start()
    return thread, told


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("command", [ADD, c.Add(jobs=(c.NewJob(task="u", unique=b"u"),))])
def test_a_commit_wakes_those_that_wait_in_other_processes(engine, redis_url, command):
    """Not one that waits here, which is woken by whoever committed."""
    other = RedisStore(redis_url)
    other.read(lambda txn: txn.notice())
    while other.wait(0.01):
        pass
    while engine.store.wait(0.01):
        pass
    thread, told = waiting(other)

    engine.execute([command])

    thread.join()
    assert told == [True]
    assert not engine.store.wait(0.05)
    other.close()


def test_a_user_that_may_not_publish_has_committed_all_the_same(redis_server):
    """A user of the server without a right to channels."""
    with redis_server.client() as client:
        rights = ("on", ">pass", "~*", "+@all", "resetchannels")
        client.execute_command("ACL", "SETUSER", "silent", *rights)
    store = RedisStore(redis_server.url().replace("redis://", "redis://silent:pass@"))
    engine = Engine(store, rng=random.random)
    added = [job_id for _ in range(3) for job_id in engine.execute([ADD]).replies[0]]

    assert all_ids(store) == added
    store.close()


def test_a_user_that_may_not_subscribe_polls(redis_server):
    """A user of the server without a right to channels."""
    with redis_server.client() as client:
        rights = ("on", ">pass", "~*", "+@all", "resetchannels")
        client.execute_command("ACL", "SETUSER", "silent", *rights)
    url = redis_server.url().replace("redis://", "redis://silent:pass@")
    store, other = RedisStore(url), RedisStore(url)
    add(store, a_job(1))
    while store.wait(0.01):
        pass
    thread, told = waiting(store)

    add(other, a_job(2))

    thread.join()
    assert told == [True]
    store.close()
    other.close()


def test_a_commit_that_the_server_refuses_was_not_made(server):
    """It is tried again for a while, and its caller need not look."""
    store = RedisStore(server.url(), patience_s=0.5)
    add(store, a_job(1))
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        with pytest.raises(Unavailable, match="NOREPLICAS") as told:
            add(store, a_job(2))
        client.config_set("min-replicas-to-write", 0)

    assert not isinstance(told.value, Unsettled)
    assert all_ids(store) == [1]
    store.close()


def test_what_the_replicas_do_not_have_is_done_once_and_said_so(monkeypatch):
    """A batch that may be lost is not done again: it is done, and its caller has to look."""
    server = redis_or_skip()
    replica = redis_or_skip(replicaof=f"127.0.0.1 {server.port}")
    store = RedisStore(server.url(durability="replicated"))
    assert replica.process is not None
    pid = replica.process.pid
    try:
        with server.client() as client:
            until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
        add(store, a_job(1))
        monkeypatch.setattr(redis_store, "REPLICAS_MS", 300)
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(Unsettled):
            add(store, a_job(2))

        assert all_ids(store) == [1, 2]
    finally:
        os.kill(pid, signal.SIGCONT)
        store.close()
        replica.close()
        server.close()


def test_an_interrupted_connection_is_not_used_again(store, monkeypatch):
    """What it was not read of would be taken for the reply to another command."""
    add(store, a_job(1))
    received = []

    def struck(connection):
        received.append(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.store.redis.connection.RedisConnection._received", struck)
        with pytest.raises(KeyboardInterrupt):
            store.read(lambda txn: txn.load([1]))

    assert received[0].socket.fileno() == -1
    assert ids(look(store, lambda txn: txn.load([1])).values()) == [1]
