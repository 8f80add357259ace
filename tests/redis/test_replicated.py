"""`durability=replicated`: what a call waits for, and what it says when the replicas do not have it."""

import signal
import time

import pytest

from holdfast.core.errors import Unavailable, Unsettled
from holdfast.store.redis import store as store_module
from holdfast.store.redis.connection import RedisConnection
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add
from tests.programs import or_skip
from tests.redis_servers import newer_program, redis_or_skip, until
from tests.store.helpers import all_ids

LOG = {"appendonly": "yes", "appendfsync": "everysec"}
# From this one on replicas tell what is on their disks.
WAITAOF = (7, 2)


@pytest.fixture
def settings():
    """Of the master and its replica: such as all tests run on."""
    return {}


@pytest.fixture
def logged(settings):
    """The same with a log, and able to tell what a replica has in its own."""
    settings.update(LOG, path=or_skip(lambda: newer_program(WAITAOF), what="WAITAOF"))


@pytest.fixture
def server(settings):
    """A master."""
    server = redis_or_skip(**settings)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def replica(server, settings):
    """A server that follows the other."""
    replica = redis_or_skip(replicaof=f"127.0.0.1 {server.port}", **settings)
    try:
        with replica.client() as client:
            until(lambda: client.info("replication")["master_link_status"] == "up")
        yield replica
    finally:
        replica.close()


@pytest.fixture
def store(server, replica):
    """A store that waits for the replica."""
    store = RedisStore(server.url(durability="replicated"))
    add(store, a_job(1))
    yield store
    store.close()


@pytest.fixture
def hurried(monkeypatch):
    """Who waits for replicas in vain soon says so."""
    monkeypatch.setattr(store_module, "REPLICAS_MS", 300)


def calls_of(server, command):
    """How often a server was told something."""
    with server.client() as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def jobs_of(server, store):
    """How many jobs a server has, master or not."""
    with server.client() as client:
        return client.hlen(f"{{hf:{store.address.prefix}:0}}:jobs")


def test_what_was_accepted_is_in_the_log_of_the_replica(logged, server, replica, store):
    """Each call waits for that, from Redis 7.2 on: after a crash of both the replica's log has it all."""
    before = calls_of(server, "waitaof")
    add(store, a_job(2))
    add(store, a_job(3))
    waited = calls_of(server, "waitaof") - before
    server.kill()
    replica.kill()
    replica.start()

    assert waited == 2
    assert jobs_of(replica, store) == 3


def test_a_replica_that_syncs_always_is_not_waited_for_longer_than_it_takes(logged, server, replica, store):
    """It would tell by itself only once a second."""
    for one in (server, replica):
        with one.client() as client:
            client.config_set("appendfsync", "always")

    took_s = []
    for n in range(2, 7):
        started_s = time.monotonic()
        add(store, a_job(n))
        took_s.append(time.monotonic() - started_s)

    assert min(took_s) < 0.5


def test_a_replica_without_a_log_is_not_enough(logged, replica, store, hurried):
    """It has what it was sent, but not on its disk; that is told, with the setting to look at."""
    with replica.client() as client:
        client.config_set("appendonly", "no")

    with pytest.raises(Unavailable, match="on their disks"):
        add(store, a_job(2))

    assert jobs_of(replica, store) == 2
    assert all_ids(store) == [1, 2]


def test_without_a_log_of_the_master_memory_is_enough(server, replica, store):
    """The replica has each before the call returns, on any Redis."""
    before = calls_of(server, "wait")
    add(store, a_job(2))

    assert jobs_of(replica, store) == 2
    assert calls_of(server, "wait") - before == 1


def test_a_commit_whose_reply_was_lost_waits_for_the_replicas_too(replica, store, monkeypatch):
    """That it was done is found out by looking; that the replica has it is waited for as ever."""
    lose_the_next_reply(monkeypatch)

    add(store, a_job(2))

    assert jobs_of(replica, store) == 2


def test_a_commit_whose_reply_was_lost_and_that_no_replica_has_is_told(replica, store, monkeypatch, hurried):
    """It was done, and may be lost with the master."""
    lose_the_next_reply(monkeypatch)
    assert replica.process is not None
    replica.process.send_signal(signal.SIGSTOP)

    try:
        with pytest.raises(Unavailable, match="may be lost with the master"):
            add(store, a_job(2))
    finally:
        replica.process.send_signal(signal.SIGCONT)

    assert all_ids(store) == [1, 2]


def test_a_commit_is_told_whose_replicas_cannot_be_waited_for(server, replica, store):
    """It was done, and the next one is as well."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "hasty", "on", ">pass", "~*", "&*", "+@all", "-wait")
    url = server.url(store.address.prefix, durability="replicated")
    hasty = RedisStore(url.replace("redis://", "redis://hasty:pass@"))

    for number in (2, 3):
        with pytest.raises(Unsettled, match=r"has done what was asked for, but .*wait"):
            add(hasty, a_job(number))

    assert all_ids(hasty) == [1, 2, 3]
    hasty.close()


def lose_the_next_reply(monkeypatch):
    """The next commit is done, and its connection breaks before anybody hears of it."""
    exchange = RedisConnection.exchange
    cut: list[object] = []

    def broken(connection, commands):
        if cut or commands[-1][0] != b"WAIT":
            return exchange(connection, commands)
        cut.extend(exchange(connection, commands[:-1]))
        raise ConnectionResetError("cut")

    monkeypatch.setattr(RedisConnection, "exchange", broken)
