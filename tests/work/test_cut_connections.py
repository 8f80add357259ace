"""A worker whose connections are cut again and again: each job is finished, and none runs twice.

A commit whose answer is lost was made or not. The worker looks, and then goes on; what it has claimed
meanwhile, and the answers that wait, stay as many as usual.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.redis_servers import RedisServer, redis_or_skip
from tests.servers import PostgresServer, postgres_or_skip
from tests.work.conftest import Bench

BY = 1_000
CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Cuts(NamedTuple):
    """A worker's store, and what cuts all connections to its server."""

    bench: Bench
    cut: Callable[[], object]


def _cut_postgres(server: PostgresServer) -> None:
    with server.connect() as connection:
        connection.execute(CUT)


def _cut_redis(server: RedisServer) -> None:
    with server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)


# What makes a server of a test's own, so that no other test loses its connections, and what cuts them.
SERVERS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "postgres": (postgres_or_skip, _cut_postgres),
    "redis": (redis_or_skip, _cut_redis),
}


@pytest.fixture(params=SERVERS)
def cuts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cuts]:
    """Of each kind of server."""
    make, cut = SERVERS[request.param]
    server = make()
    bench = Bench(tmp_path, server.url())
    try:
        yield Cuts(bench, lambda: cut(server))
    finally:
        bench.close()
        server.close()


@pytest.mark.parametrize("jobs", [2_000, pytest.param(1_000_000, id="full", marks=pytest.mark.proof)])
@pytest.mark.timeout(3_600)
def test_no_job_is_lost_or_run_twice_when_connections_are_cut(cuts, jobs, tell):
    """As the worker begins with each part of them, and halfway through it; the next is added meanwhile."""
    bench, queue = cuts.bench, cuts.bench.queue
    bench.start()

    for start in range(0, jobs, BY):
        queue.add_many([("noted", {"n": n}) for n in range(start, start + BY)])
        for ended in (start, start + BY // 2):
            bench.wait_for(lambda ended=ended: _finished(queue) > ended)
            cuts.cut()
    bench.wait_for(lambda: _finished(queue) == jobs)

    tell(f"{jobs:,} jobs, {2 * jobs // BY:,} cuts of all connections")
    runs = Counter(line.split()[0] for line in bench.notes.read_text().splitlines())
    assert queue.counts()["noted"] == {"FINISHED": jobs}
    assert runs == Counter(map(str, range(jobs)))


def _finished(queue):
    return queue.counts().get("noted", {}).get("FINISHED", 0)
