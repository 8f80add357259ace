"""Whoever waits for jobs on a server hardly asks it anything, and is there as soon as it must be.

Every statement that a server is sent stands in its log.
"""

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import holdfast
from holdfast.store.contract import JOBS
from holdfast.store.postgres import notify as postgres_notify
from holdfast.store.postgres.statements import channel
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import commit
from tests.idle import MOST_A_MINUTE, SECONDS, SETTLED_S, WAITS, is_quiet, waits
from tests.queue_suite.tools import until, waiting
from tests.servers import PostgresServer, postgres_or_skip
from tests.work.conftest import Bench

STATEMENT = re.compile(r"^~LOG:  (?:statement|execute [^:]*): ([^~]*)", re.MULTILINE)


@pytest.fixture
def servers():
    """Servers that write down whatever they are asked. Nobody else writes there, not even they themselves.

    One for each who is watched: a look tells that somebody has written, in whichever schema.
    """
    with ExitStack() as stack:
        servers = []
        for _ in range(3):
            servers.append(postgres_or_skip(log_statement="all", log_line_prefix="~", autovacuum="off"))
            stack.callback(servers[-1].close)
        yield servers


def asked(server: PostgresServer, since: int) -> list[str]:
    """What was asked since the log was so long."""
    text = (server.folder / "log").read_bytes()[since:].decode(errors="replace")
    return [" ".join(words.split())[:80] for words in STATEMENT.findall(text)]


@pytest.mark.proof
def test_an_idle_worker_asks_under_twenty_statements_a_minute(servers, tmp_path):
    """With one executor and with two, and a process that only waits; all of them at once, to save time."""
    with ExitStack() as stack:
        for processes, server in (("1", servers[0]), ("2", servers[1])):
            bench = Bench(tmp_path, server.url())
            stack.callback(bench.close)
            bench.start("--processes", processes)
            assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
            bench.queue.close()
        waiting = subprocess.Popen([sys.executable, "-c", WAITS, servers[2].url()])
        stack.callback(waiting.wait)
        stack.callback(waiting.kill)
        time.sleep(SETTLED_S)
        before = [(server.folder / "log").stat().st_size for server in servers]
        most = MOST_A_MINUTE * SECONDS / 60

        with ThreadPoolExecutor() as pool:
            quiet = list(pool.map(lambda server: is_quiet(lambda: len(asked(server, 0)), most), servers))

        told = [asked(server, since) for server, since in zip(servers, before, strict=True)]
        assert quiet == [True] * 3, told
        # What it is asked stands in the log.
        with holdfast.connect(servers[0].url()) as queue:
            assert queue.add("double", {"n": 2}).result(wait=60) == 4
        assert len(asked(servers[0], 0)) > len(told[0])


def test_a_line_that_is_lost_is_news(postgres, postgres_url, no_looks, store):
    """Whoever waits is to find out whether the server is there; then it listens anew."""
    store.read(lambda txn: None)
    # The first listens, and looks what it may have missed.
    while store.wait(0.05):
        pass
    # Not by what it has asked last: others that have just gone are listed for a while.
    listens = store._listener._connection.pgconn.backend_pid
    with postgres.connect() as connection:
        assert connection.execute("SELECT pg_terminate_backend(%s)", (listens,)).fetchall() == [(True,)]

    assert store.wait(60.0)

    while store.wait(0.05):
        pass
    other = PostgresStore(postgres_url)
    commit(other, wake=JOBS)
    assert store.wait(60.0)
    other.close()


def test_a_notification_that_comes_with_the_reply_to_a_poll_is_heard(postgres, schema, store, monkeypatch):
    """It was read from the socket together with the reply."""

    def poll(_listener, connection):
        with postgres.connect() as other:
            other.execute(f'NOTIFY "{channel(schema)}"')
        for _ in range(5):
            connection.value("SELECT 1")
        return "nothing new"

    store.read(lambda txn: None)
    store._listener.begin("nothing new")
    monkeypatch.setattr(postgres_notify.PostgresListener, "_poll", poll)

    assert store.wait(1.0)


@pytest.mark.parametrize("option", ["notify=off", "notify=on"])
def test_who_cannot_be_told_looks_often(postgres_url, option, no_looks):
    """Switched off or not: a job is started, by the frequent looks or by the notification alone."""
    url = f"{postgres_url}&{option}"
    with (
        holdfast.connect(url) as adder,
        holdfast.connect(url) as taker,
        waiting(lambda: taker.next(["t"], wait=60, renew=False)) as found,
    ):
        until(lambda: waits(taker))

        job = adder.add("t")
        taken = found.result()

        assert taken is not None
        assert taken.id == job.id
