"""A server that is down or loads its data when it is first needed: callers wait for it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import holdfast
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import monotonic_s
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add
from tests.outages import close_during_an_outage, first_add_waits
from tests.queue_suite.tools import until
from tests.work.conftest import Bench, lines_of

# Between any two keys it looks whether somebody asks.
SLOW_TO_LOAD = {"loading_process_events_interval_bytes": "1024", "rdbcompression": "no"}


def test_a_first_add_waits_for_a_server_that_is_down(server, heard):
    """All callers wait, and one line says so."""
    server.kill()

    assert "cannot be reached" in first_add_waits(server.url("away"), heard, server.start)


def test_closing_a_queue_ends_calls_that_wait_for_the_server(server, heard):
    server.kill()
    try:
        close_during_an_outage(server.url("away"), heard)
    finally:
        server.start()


@pytest.mark.parametrize("server", [SLOW_TO_LOAD], indirect=True)
def test_a_first_add_waits_for_a_server_that_loads(server, heard):
    """Its data are slow to load: it answers, and only that it does so."""
    with server.client() as client:
        client.mset({f"key-{n}": "x" * 2_000 for n in range(2_000)})
        client.save()
    server.kill()
    server._settings["key-load-delay"] = "20000"
    over = threading.Event()

    def start():
        server.start()
        # It ends with the thread that started it.
        over.wait()

    def load_quickly():
        with server.client() as client:
            client.config_set("key-load-delay", 0)

    starting = threading.Thread(target=start)
    starting.start()
    try:
        until(lambda: _is_loading(server))
        waiting = first_add_waits(server.url("away"), heard, load_quickly)
    finally:
        over.set()
        starting.join()

    assert "loading" in waiting


def _is_loading(server):
    """Whether a server listens, and says that it loads."""
    try:
        with server.client() as client:
            client.ping()
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        pass
    return False


def test_a_server_that_stays_down_is_told_after_the_wait(server):
    """At the end of the patience, with the address and what to look at."""
    server.kill()
    store = RedisStore(server.url(), patience_s=1.5)

    with pytest.raises(holdfast.Unavailable, match=r"cannot be reached .* is the server running"):
        add(store, a_job(1))

    store.close()


def test_a_server_that_has_become_a_replica_is_waited_for(server, heard):
    """Another takes over, or the address leads to another."""
    with (
        holdfast.connect(server.url("away")) as queue,
        server.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        queue.add("work")
        client.replicaof("127.0.0.1", 1)
        adding = pool.submit(queue.add, "work")
        assert heard.first.wait(30), "nothing was logged"
        client.replicaof("NO", "ONE")

        adding.result(60)
        assert "it is a replica" in heard.lines[0]


def test_a_queue_is_closed_although_its_server_is_down(server):
    """Without an error: nothing is left to be done."""
    queue = Queue(lambda: RedisStore(server.url("away"), patience_s=0.5), url="")
    queue.add("work")
    server.kill()

    queue.close()


def test_a_store_that_is_closed_while_it_is_used_keeps_no_connection(server):
    """A call that is running ends, a later one is refused, and neither leaves a connection open."""
    store = RedisStore(server.url("closed"))
    add(store, a_job(1))

    def fn(txn):
        store.close()
        return txn.load([1])

    assert store.read(fn).keys() == {1}
    for call in (lambda: add(store, a_job(2)), lambda: store.read(lambda txn: txn.load([1]))):
        with pytest.raises(holdfast.Closed, match="was closed"):
            call()

    with server.client() as client:
        assert len(client.client_list()) == 1


def test_what_waiting_cannot_mend_is_told_at_once(server, heard):
    """A host that does not exist, a wrong password; and doctor always."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "guarded", "on", ">right", "allcommands", "allkeys")
    urls = ["redis://nohost.invalid/0", f"redis://guarded:wrong@127.0.0.1:{server.port}/0"]
    urls.append("redis+cluster://nohost.invalid/")

    for url in urls:
        with holdfast.connect(url) as queue, pytest.raises(holdfast.StoreError) as told:
            queue.add("work")
        assert not isinstance(told.value, holdfast.Unavailable)
    server.kill()
    store = RedisStore(server.url())
    assert "cannot be reached" in store.report().complaints[0]
    store.close()
    assert heard.lines == []


@pytest.mark.proof
def test_a_worker_waits_for_a_server_that_is_down(tmp_path, server):
    """With a line that says so; when the server is there it works. It waits no longer than told."""
    bench = Bench(tmp_path, server.url("away"))
    server.kill()
    try:
        short = bench.start("--wait", "500ms")
        _, said = short.communicate(timeout=60)
        assert short.returncode == 5
        assert "is the server running" in said.splitlines()[-1]

        worker = bench.start()
        lines = lines_of(worker)
        assert any("waiting up to 60 s: " in line and "cannot be reached" in line for line in lines)
        server.start()

        assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
    finally:
        bench.close()


def test_a_worker_stops_while_its_server_is_down(tmp_path, server):
    """After some seconds, not after three times the patience of its calls, and it says so."""
    bench = Bench(tmp_path, server.url("stop"))
    worker = bench.start()
    assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
    server.kill()
    try:
        began_s = monotonic_s()
        worker.terminate()
        _, said = worker.communicate(timeout=60)

        assert worker.returncode == 0
        assert monotonic_s() - began_s < 25
        assert "a store did not answer in time" in said
    finally:
        server.start()
        bench.close()
