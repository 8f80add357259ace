"""A server that is down, starts, or is out of connections when it is first needed: callers wait for it."""

import threading
import time
from contextlib import closing

import psycopg
import pytest

import holdfast
from holdfast.core.errors import StoreError
from holdfast.store.common.outage import UnknownHost
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import a_job, add
from tests.outages import close_during_an_outage, first_add_waits
from tests.queue_suite.tools import until
from tests.servers import postgres_or_skip
from tests.stores import here_and_in_proof
from tests.work.conftest import Bench, lines_of


def test_a_first_add_waits_for_a_server_that_is_down(server, heard):
    """All callers wait, and one line says so."""
    server.stop()

    assert "cannot be reached" in first_add_waits(server.url(), heard, server.start)


def test_closing_a_queue_ends_calls_that_wait_for_the_server(server, heard):
    server.stop()
    try:
        close_during_an_outage(server.url(), heard)
    finally:
        server.start()


def test_a_first_add_waits_for_a_server_that_starts(heard):
    """Here it recovers from an archive, and cannot go on until a file is there."""
    with closing(postgres_or_skip(wal_level="replica", hot_standby="off")) as server:
        go = server.folder / "go"
        server.stop()
        with (server.data / "postgresql.conf").open("a") as settings:
            settings.write(f"restore_command = 'until test -e {go}; do sleep 0.05; done; false'\n")
        (server.data / "recovery.signal").touch()
        over = threading.Event()

        def start():
            server.start()
            # It ends with the thread that started it.
            over.wait()

        starting = threading.Thread(target=start)
        starting.start()
        try:
            _wait_for_a_refusal(server)
            waiting = first_add_waits(server.url(), heard, go.touch)
        finally:
            go.touch()
            over.set()
            starting.join()

    assert "is not ready (" in waiting
    assert "starting up" in waiting


def _wait_for_a_refusal(server):
    """Wait until a server listens, and says that it is starting up."""
    until_s = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(host=str(server.folder), port=server.port, user="postgres").close()
        except psycopg.OperationalError as error:
            if "starting up" in str(error):
                return
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.parametrize("limited", here_and_in_proof(["server"], ["role", "database"]))
def test_a_first_add_waits_for_a_connection_to_be_free(heard, limited):
    """Whatever it is that has no more of them."""
    with closing(postgres_or_skip(max_connections="6", superuser_reserved_connections="0")) as server:
        limits = {
            "role": "ALTER ROLE limited CONNECTION LIMIT 3",
            "database": "ALTER DATABASE limited CONNECTION LIMIT 3",
        }
        with server.connect() as connection:
            connection.execute("CREATE ROLE limited LOGIN")
            connection.execute("CREATE DATABASE limited OWNER limited")
            if limited in limits:
                connection.execute(limits[limited])
        place = f"host={server.folder} port={server.port} user=limited dbname=limited"
        taken = [_connected(place) for _ in range(3 if limited in limits else 6)]
        url = f"postgresql://limited@/limited?host={server.folder}&port={server.port}"

        def free():
            for one in taken:
                one.close()

        waiting = first_add_waits(url, heard, free)

    assert "has no connection left (" in waiting


def _connected(place):
    """A connection; the place of one that was just closed is free a moment later."""
    made: list[psycopg.Connection[tuple[object, ...]]] = []

    def connects():
        try:
            made.append(psycopg.connect(place))
        except psycopg.OperationalError:
            return False
        return True

    until(connects)
    return made[0]


def test_a_server_that_stays_down_is_told_after_the_wait(server):
    """At the end of the patience, with the address and what to look at."""
    server.stop()
    store = PostgresStore(server.url(), patience_s=1.5)
    started_s = time.monotonic()

    with pytest.raises(holdfast.Unavailable, match=r"cannot be reached .* is the server running"):
        add(store, a_job(1))

    assert time.monotonic() - started_s > 0.9
    store.close()


def test_what_waiting_cannot_mend_is_told_at_once(server, heard):
    """A host that does not exist, a wrong password, a database that is not there; and doctor always."""
    with server.connect() as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    hba = server.data / "pg_hba.conf"
    hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
    server.stop()
    server.start()
    at = f"127.0.0.1:{server.port}"

    for url in (
        "postgresql://postgres@nohost.invalid/postgres",
        f"postgresql://guarded:wrong@{at}/postgres",
        f"postgresql://postgres@{at}/missing",
    ):
        with holdfast.connect(url) as queue, pytest.raises(holdfast.StoreError) as told:
            queue.add("work")
        assert not isinstance(told.value, holdfast.Unavailable)
    server.stop()
    store = PostgresStore(server.url())
    with pytest.raises(holdfast.Unavailable, match="cannot be reached"):
        store.report()
    store.close()
    assert heard.lines == []


def test_a_host_that_vanishes_is_waited_for(store, monkeypatch):
    """A resolver that fails for a while ends nothing that worked before."""
    add(store, a_job(1))
    store.pool.drop()
    connect, tries = store.pool.connect, []

    def unresolved():
        tries.append(1)
        if len(tries) < 3:
            raise psycopg.OperationalError("failed to resolve host 'x': [Errno -2] Name or service not known")
        return connect()

    monkeypatch.setattr(store.pool, "connect", unresolved)

    add(store, a_job(2))

    assert len(tries) == 3
    assert not issubclass(UnknownHost, holdfast.Unavailable)


def test_a_worker_waits_for_a_server_that_is_down(tmp_path, server):
    """With a line that says so; when the server is there it works."""
    bench = Bench(tmp_path, server.url())
    try:
        job = bench.queue.add("double", {"n": 1})
        server.stop()
        worker = bench.start("--until-empty")
        lines = lines_of(worker)
        assert any("waiting up to 60 s: " in line and "cannot be reached" in line for line in lines)
        server.start()

        assert job.result(wait=60) == 2
        assert worker.wait(60) == 0
    finally:
        bench.close()


def test_a_worker_waits_no_longer_than_told(tmp_path, server):
    """Then it ends with what is wrong; a signal ends the wait at once."""
    bench = Bench(tmp_path, server.url())
    server.stop()
    try:
        short, long = bench.start("--wait", "500ms"), bench.start()
        _, said = short.communicate(timeout=60)
        assert short.returncode == 5
        assert "is the server running" in said.splitlines()[-1]

        assert any("waiting up to" in line for line in lines_of(long))
        long.terminate()
        assert long.wait(60) == 0
    finally:
        bench.close()


def test_a_server_without_tls_is_an_error_at_once(postgres):
    """No other try makes it right, so callers do not wait."""
    store = PostgresStore(f"{postgres.tcp_url()}&sslmode=require", patience_s=600)

    with closing(store), pytest.raises(StoreError, match="check sslmode and the certificates"):
        add(store, a_job(1))
