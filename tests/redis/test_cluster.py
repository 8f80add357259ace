"""A Redis Cluster: a part of the queue suite, slots that move under load, masters that are killed."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.store.redis.connection import _node
from holdfast.store.redis.keys import Keys
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add
from tests.queue_suite.basics import *  # noqa: F403
from tests.queue_suite.claims import *  # noqa: F403
from tests.queue_suite.families import *  # noqa: F403
from tests.queue_suite.fixtures import *  # noqa: F403
from tests.queue_suite.races import *  # noqa: F403
from tests.queue_suite.unique import *  # noqa: F403
from tests.queue_suite.waiting import *  # noqa: F403
from tests.redis.test_broken import load
from tests.redis_servers import cluster_or_skip, until
from tests.store.helpers import all_ids
from tests.stores import here_and_in_proof, opener


def pytest_generate_tests(metafunc):
    """Run the suite by `make proof` alone: a cluster runs the scripts that one server runs."""
    if "open_store" in metafunc.fixturenames:
        metafunc.parametrize("open_store", here_and_in_proof([], ["cluster"]), indirect=True)


@pytest.fixture
def open_store(request, clock):
    """Opens the store under test, once for each queue."""
    return opener(request, clock)


@pytest.fixture
def servers(request):
    """A cluster of the test's own; settings by the mark of a parameter."""
    servers = cluster_or_skip(**getattr(request, "param", {}))
    try:
        yield servers
    finally:
        servers.close()


def slot_of(client, prefix):
    """The slot of a store."""
    return int(client.execute_command("CLUSTER", "KEYSLOT", Keys(prefix).base))


def master_of(servers, prefix):
    """The server that has the slot of a store, and its number."""
    with servers.servers[0].client() as client:
        slot = slot_of(client, prefix)
    return slot, servers.servers[slot * 3 // 16_384]


def name_of(server):
    """The name of a node."""
    with server.client() as client:
        name = client.execute_command("CLUSTER", "MYID")
    return name.decode() if isinstance(name, bytes) else name


def move_slot(slot, source, target):
    """Move a slot as an operator does, key by key."""
    with source.client() as old, target.client() as new:
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", name_of(source))
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", name_of(target))
        while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            old.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
            # Those who want keys of both sides are told to try again.
            time.sleep(0.005)
        for client in (new, old):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name_of(target))


def test_a_redirection_without_a_host_leads_to_the_host_that_was_asked():
    """So say nodes that do not know their own."""
    asked: Any = SimpleNamespace(node=("10.0.0.1", 6379))

    assert _node("3999 :6381", asked) == ("10.0.0.1", 6381)
    assert _node("3999 10.0.0.2:6381", asked) == ("10.0.0.2", 6381)


# A node that is slow on a busy machine is not to be taken for one that is down: its slots would move, too.
@pytest.mark.parametrize("servers", [{"cluster_node_timeout": "10000"}], ids=["patient"], indirect=True)
def test_a_slot_that_is_moved_under_load_is_followed(servers):
    """There and back: nothing is lost and nothing fails."""
    prefix = "moved"
    slot, source = master_of(servers, prefix)
    target = next(server for server in servers.servers[:3] if server is not source)
    with load(servers.url(prefix)) as seen:
        move_slot(slot, source, target)
        move_slot(slot, target, source)

    assert seen.left == seen.doubts == []
    assert set(seen.states.values()) == {"FINISHED"}


def test_work_goes_on_when_a_master_is_killed_and_its_replica_promoted(servers):
    """What the replica had is there, and adds and claims go on by themselves."""
    prefix = "promoted"
    _, master = master_of(servers, prefix)
    replica = servers.servers[servers.servers.index(master) + 3]
    store = RedisStore(servers.url(prefix, durability="replicated"))
    add(store, *(a_job(n) for n in range(1, 50)))

    master.kill()
    with replica.client() as client:
        until(lambda: client.info("replication")["role"] == "master")
    # Nobody follows the new master yet: with one replica asked for it would be refused, and rightly.
    after = RedisStore(servers.url(prefix))
    add(after, a_job(50))

    assert all_ids(after) == list(range(1, 51))
    for one in (store, after):
        one.close()
