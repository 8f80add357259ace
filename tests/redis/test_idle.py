"""Whoever waits for jobs on a server hardly asks it anything, and is there as soon as it must be."""

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack

import pytest

import holdfast
from holdfast.store.contract import JOBS
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import commit
from tests.idle import MOST_A_MINUTE, SECONDS, SETTLED_S, WAITS, is_quiet
from tests.work.conftest import Bench


def asked(client) -> Counter[str]:
    """How often each command was called so far, by anybody but this client."""
    stats = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()}
    return Counter({name: count for name, count in calls.items() if name != "info"})


@pytest.mark.proof
def test_idle_processes_ask_under_twenty_commands_a_minute(server, tmp_path):
    """A worker with one executor, one with two, one that only waits, and a worker of two shards."""
    with ExitStack() as stack:
        for processes, options in (("1", {}), ("2", {}), ("1", {"shards": "2"})):
            bench = Bench(tmp_path, server.url(**options))
            stack.callback(bench.close)
            bench.start("--processes", processes)
            assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
            bench.queue.close()
        first = stack.enter_context(server.client())
        waiting = subprocess.Popen([sys.executable, "-c", WAITS, server.url()])
        stack.callback(waiting.wait)
        stack.callback(waiting.kill)
        time.sleep(SETTLED_S)
        before = asked(first)

        # Five ears: each shard has one.
        quiet = is_quiet(lambda: asked(first).total(), 5 * MOST_A_MINUTE * SECONDS / 60)
        assert quiet, asked(first) - before
        with holdfast.connect(bench.store) as queue:
            assert queue.add("double", {"n": 2}).result(wait=60) == 4


def test_a_line_that_is_lost_is_news(redis_server, redis_url, no_looks, store):
    """Whoever waits is to find out whether the server is there; then it listens anew."""
    store.read(lambda txn: None)
    # The first listens, and looks what it may have missed.
    while store.wait(0.05):
        pass
    with redis_server.client() as client:
        client.client_kill_filter(_type="pubsub")

    assert store.wait(60.0)

    while store.wait(0.05):
        pass
    other = RedisStore(redis_url)
    other.read(lambda txn: None)
    commit(other, rows={("k", "a"): b"1"}, wake=JOBS)
    assert store.wait(60.0)
    other.close()
