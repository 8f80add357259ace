"""What failovers lose, by durability: masters are killed under load, and what was accepted is looked for.

    follows    the replica has told its master that it has everything before the load begins
    just back  the load begins, and the master is killed, as soon as the replica says that its link is up.
               After a full sync by the network the master sends nothing on before it has heard from the
               replica again, which may take a second; until then what it accepts is with it alone

The tables in docs/durability.md are printed by the long form: pytest -m proof tests/redis/test_failover.py -s
"""

import sys
import threading
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.queue.queue import Queue
from holdfast.store.redis.keys import Keys
from holdfast.store.redis.store import RedisStore
from tests.queue_suite.tools import complaints, upkeep
from tests.redis.test_cluster import master_of
from tests.redis_servers import ClusterServers, cluster_or_skip, until
from tests.store.helpers import all_ids

ADDERS = 4
ROUND_JOBS = 60
LOG = {"appendonly": "yes", "appendfsync": "always"}
# Of each durability: how the servers are set, and what the address asks for.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "memory": ({}, {"durability": "memory"}),
    "everysec": ({"appendonly": "yes"}, {"durability": "everysec"}),
    "always": (LOG, {"durability": "always"}),
    "replicated": ({}, {"durability": "replicated"}),
}


class Failovers:
    """A cluster whose master is killed again and again, and the old one comes back as a replica."""

    def __init__(self, servers: ClusterServers, prefix: str, **options: str) -> None:
        self._servers, self._prefix = servers, prefix
        self._url = servers.url(prefix, **options)
        self.accepted: set[int] = set()
        self.refused = 0
        _, self._master = master_of(servers, prefix)
        self._replica = servers.servers[servers.servers.index(self._master) + 3]

    def follow(self) -> None:
        """Wait until the replica says that it has what its master was told last."""
        with self._master.client() as client:
            until(lambda: client.set(Keys(self._prefix).base + b"last", b"") and client.wait(1, 100))

    def round(self) -> None:
        """Adders at work, the master killed in the midst of it, the replica promoted, the old one back."""
        queue = Queue(lambda: RedisStore(self._url, patience_s=60), url="")
        begun = threading.Event()
        threads = [threading.Thread(target=self._add, args=(queue, begun)) for _ in range(ADDERS)]
        for thread in threads:
            thread.start()
        begun.wait(30)
        self._master.kill()
        with self._replica.client() as client:
            until(lambda: client.info("replication")["role"] == "master")
        self._master.start()
        with self._master.client() as client:
            until(lambda: client.info("replication").get("master_link_status") == "up")
        for thread in threads:
            thread.join()
        self._master, self._replica = self._replica, self._master
        queue.close()

    def _add(self, queue: Queue, begun: threading.Event) -> None:
        for n in range(ROUND_JOBS):
            try:
                self.accepted.add(queue.add("work", {"n": n}).id)
            except HoldfastError:
                self.refused += 1
            if n == ROUND_JOBS // 3:
                begun.set()

    def lost(self) -> tuple[int, list[str]]:
        """How many that were accepted are not there, and what is not as it must be."""
        with Queue(lambda: RedisStore(self._url), url="") as queue:
            upkeep(queue)
            found = set(all_ids(queue.connection.engine.store))
            return len(self.accepted - found), complaints(queue)


def lost_in(durability: str, rounds: int, *, follows: bool) -> tuple[int, int, int]:
    """How many of how many accepted jobs so many failovers lost, and how many were refused."""
    settings, options = SETTINGS[durability]
    servers = cluster_or_skip(**settings)
    try:
        failovers = Failovers(servers, f"f-{durability}", **options)
        for _ in range(rounds):
            if follows:
                failovers.follow()
            failovers.round()
        lost, wrong = failovers.lost()
        assert wrong == []
        return lost, len(failovers.accepted), failovers.refused
    finally:
        servers.close()


def test_a_failover_loses_nothing_that_a_replica_had():
    """And what it leaves is whole: each job with its data, its count and its place."""
    lost, accepted, _ = lost_in("replicated", 1, follows=False)

    assert lost == 0
    assert accepted > 0


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("replica", ["follows", "just back"])
@pytest.mark.parametrize("durability", SETTINGS)
def test_what_failovers_lose(durability, replica):
    """A line of the table."""
    rounds = 20
    lost, accepted, refused = lost_in(durability, rounds, follows=replica == "follows")

    sys.stderr.write(f"\n| `{durability}` | {replica} | {rounds} | {accepted:,} | {lost:,} | {refused:,} |\n")
    assert durability != "replicated" or lost == 0
