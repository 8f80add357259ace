"""Connections that break, servers that go away, clients that are killed: nothing is lost, or done twice."""

import os
import signal
import threading

import psycopg
import pytest

import holdfast
from holdfast.core.errors import Unavailable, Unsettled
from holdfast.store.contract import NOTHING, Changes
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.txn import PostgresTxn
from holdfast.testing.stores.making import a_job, add, claim, new_jobs
from tests.postgres.proxy import Proxy
from tests.queue_suite.tools import LONG_S, until
from tests.store.helpers import all_ids, line, python

KILL = "SELECT pg_terminate_backend(%s)"


def test_a_batch_whose_connection_is_cut_is_done_again(store, postgres):
    """From the start, and once."""
    add(store, a_job(1))
    tries = []

    def fn(txn):
        txn.write(Changes(added=new_jobs([a_job(2)])))
        tries.append(txn.connection.value("SELECT pg_backend_pid()"))
        if len(tries) < 3:
            with postgres.connect() as other:
                other.execute(KILL, (tries[-1],))
        return Changes(added=new_jobs([a_job(3)])), None

    store.run(fn)

    assert len(set(tries)) == len(tries) == 3
    assert all_ids(store) == [1, 2, 3]


def test_a_connection_to_a_server_that_has_become_a_replica_is_given_up(store):
    """After a failover the address leads to another server."""
    add(store, a_job(1))
    with store.pool.connection() as connection:
        connection.execute("SET default_transaction_read_only = on")

    add(store, a_job(2))

    assert all_ids(store) == [1, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_cancels_the_statement(store, monkeypatch, error):
    """Ctrl-C, or `sys.exit` in a signal handler, ends the wait at once, and the server does not go on."""

    def raise_error(*_):
        raise error

    before = signal.signal(signal.SIGINT, raise_error)
    own, other = store.pool.connect(), store.pool.connect()
    running = f"SELECT state = 'active' FROM pg_stat_activity WHERE pid = {own.pgconn.backend_pid}"
    waits, over, poll = threading.Event(), threading.Event(), own._readable.poll

    class Readable:
        def poll(self) -> None:
            waits.set()
            poll()

    monkeypatch.setattr(own, "_readable", Readable())

    def interrupt_when_running():
        # Until it waits for the reply: one that is interrupted as it is sent is left to the server.
        waits.wait(LONG_S)
        until(lambda: other.value(running))
        os.kill(os.getpid(), signal.SIGINT)
        # Python does not see a signal that comes right before a system call in which it waits.
        while not over.wait(5):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_running)
    thread.start()
    with pytest.raises(error):
        own.execute("SELECT pg_sleep(60)")
    over.set()
    thread.join()
    signal.signal(signal.SIGINT, before)

    until(lambda: not other.value(running))
    for connection in (own, other):
        connection.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, holdfast.SoftTimeout])
def test_an_interrupt_is_raised_although_the_server_cannot_be_asked_to_cancel(store, monkeypatch, error):
    """Its own error would be retried, and the interrupt be lost."""

    class Interrupting:
        def poll(self) -> None:
            raise error

    def fails(*, timeout: float) -> None:
        raise psycopg.errors.CancellationTimeout("cancellation timeout expired")

    own = store.pool.connect()
    monkeypatch.setattr(own, "_readable", Interrupting())
    monkeypatch.setattr(own.connection, "cancel_safe", fails)

    with pytest.raises(error):
        own.execute("SELECT pg_sleep(0.1)")
    own.close()


def test_what_a_killed_client_was_writing_is_gone_and_its_locks_are_free(store, postgres_url):
    """It dies with everything written and nothing committed."""
    add(store, a_job(1), a_job(2))
    code = """
import sys
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.contract import Changes
from holdfast.testing.stores.making import a_job, new_jobs
store = PostgresStore(sys.argv[1])
def fn(txn):
    txn.rows("unique", ["k"])
    removed = list(txn.load([1]).values())
    txn.write(Changes(removed=removed, rows={("setting", "x"): b"1"}, added=new_jobs([a_job(3)])))
    print("written")
    sys.stdin.readline()
    return Changes(), None
store.run(fn)
"""
    with python(code, postgres_url) as client:
        assert line(client) == "written"
        assert [job.id for job in claim(store)] == [2]
        client.kill()
        client.wait()

        found = store.run(
            lambda txn: (NOTHING, (txn.load([1, 3]), txn.rows("unique", ["k"]), txn.rows("setting")))
        )

    assert (list(found[0]), *found[1:]) == ([1], {}, {})


def test_a_commit_whose_answer_is_lost_is_settled_by_asking(postgres, postgres_url, schema):
    """It was made, so it is not made again."""
    proxy = Proxy(postgres.port)
    try:
        store = PostgresStore(postgres.tcp_url(schema, proxy.port))
        add(store, a_job(1))
        tries = []

        def fn(txn):
            tries.append(1)
            proxy.arm()
            return Changes(added=new_jobs([a_job(2)])), "done"

        assert store.run(fn) == "done"
        assert proxy.swallowed.is_set()
        assert tries == [1]
        assert all_ids(store) == [1, 2]
        store.close()
    finally:
        proxy.close()


def test_a_commit_is_settled_although_all_connections_are_in_use(postgres, schema):
    """The others may wait for the same."""
    proxy = Proxy(postgres.port)
    try:
        store = PostgresStore(postgres.tcp_url(schema, proxy.port) + "&pool=2", patience_s=5.0)
        add(store, a_job(1))

        def fn(_txn):
            proxy.arm()
            return Changes(added=new_jobs([a_job(2)])), None

        with store.pool.connection():
            store.run(fn)

        assert proxy.swallowed.is_set()
        assert all_ids(store) == [1, 2]
        store.close()
    finally:
        proxy.close()


def test_a_commit_that_comes_after_it_was_asked_for_is_refused(store, postgres, schema, monkeypatch):
    """Whoever asks what became of it voids its mark: then it must not be made any more, and is done again."""
    add(store, a_job(1))
    marks: list[int] = []

    def finish(self, changes):
        found = finish_batch(self, changes)
        marks.append(self.mark)
        if len(marks) == 1:
            with postgres.connect() as other:
                values = (self.now_ms, self.mark)
                other.execute(
                    f"INSERT INTO {schema}.commit_marks (at_ms, mark, void) VALUES (%s, %s, true)", values
                )
        return found

    finish_batch = PostgresTxn.last_statements
    monkeypatch.setattr(PostgresTxn, "last_statements", finish)
    add(store, a_job(2))

    assert len(marks) == 2
    assert all_ids(store) == [1, 2]
    with postgres.connect() as other:
        kept = other.execute(
            f"SELECT mark, void FROM {schema}.commit_marks WHERE mark = ANY(%s)", (marks,)
        ).fetchall()
    assert sorted(kept) == sorted([(marks[0], True), (marks[1], False)])


def test_an_add_whose_answer_is_lost_is_there_once(postgres, postgres_url, schema):
    """By the queue, and with its count. It is a call that is a transaction by itself, known by its task."""
    proxy = Proxy(postgres.port, word=b'"work"')
    try:
        with holdfast.connect(postgres.tcp_url(schema, proxy.port)) as queue:
            # The first asks for a number, the second has the call prepared.
            queue.add("work")
            queue.add("work")
            proxy.arm()
            queue.add("work")
            assert proxy.swallowed.is_set()

            assert queue.counts() == {"work": {"QUEUED": 3}}
            assert len(queue.jobs()) == 3
    finally:
        proxy.close()


@pytest.mark.parametrize(
    "immediately",
    [pytest.param(False, id="in order", marks=pytest.mark.proof), pytest.param(True, id="crash")],
)
def test_a_restart_during_traffic_loses_nothing(server, immediately):
    """What was accepted is there, what is asked for meanwhile is done when the server is back."""
    accepted, goes_on, errors = [], threading.Event(), []
    goes_on.set()

    def produce(queue):
        try:
            while goes_on.is_set():
                accepted.append(queue.add("work").id)
        except holdfast.HoldfastError as error:
            errors.append(error)

    def consume(queue):
        try:
            while goes_on.is_set():
                for job in queue.claim(limit=5, wait=0.2, lease=60, renew=False):
                    job.done()
        except holdfast.LeaseLost:
            pass
        except holdfast.HoldfastError as error:
            errors.append(error)

    with holdfast.connect(server.url()) as one, holdfast.connect(server.url()) as two:
        threads = [threading.Thread(target=produce, args=(one,)) for _ in range(3)]
        threads += [threading.Thread(target=consume, args=(queue,)) for queue in (one, two)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            _more(accepted, 50)
            server.stop(immediately=immediately)
            server.start()
        _more(accepted, 50)
        goes_on.clear()
        for thread in threads:
            thread.join()

        assert errors == []
        assert len(set(accepted)) == len(accepted)
        assert all(one.get(id).task == "work" for id in accepted)
        store = one.connection.engine.store
        assert store.report().complaints == []


def _more(accepted, count):
    enough = len(accepted) + count
    pause = threading.Event()
    for _ in range(6_000):
        if len(accepted) >= enough:
            return
        pause.wait(0.01)
    raise AssertionError("nothing was accepted for a minute")


def test_a_server_that_stays_away_is_told_in_the_end(server):
    """After as much patience as there is; and when it is back all goes on."""
    store = PostgresStore(server.url(), patience_s=0.5)
    add(store, a_job(1))
    server.stop()

    with pytest.raises(Unavailable, match="cannot be reached"):
        add(store, a_job(2))
    assert not store.wait(0.05)

    server.start()
    add(store, a_job(3))
    assert all_ids(store) == [1, 3]
    store.close()


def test_a_commit_that_cannot_be_settled_is_asked_about_seldom_and_logged_once(server, heard, monkeypatch):
    """While the server stays away it is tried as seldom as by other calls, and the log says so."""
    store, tries = PostgresStore(server.url(), patience_s=2.0), []
    add(store, a_job(1))
    connect = store.pool.connect

    def count_and_connect():
        tries.append(1)
        return connect()

    def stop_server(_txn):
        server.stop(immediately=True)
        monkeypatch.setattr(store.pool, "connect", count_and_connect)
        return Changes(added=new_jobs([a_job(2)])), None

    with pytest.raises(Unsettled):
        store.run(stop_server)

    assert len(tries) <= 12
    assert [line.partition(":")[0] for line in heard.lines] == ["trying again for 2 s"]
    store.close()


def test_what_is_prepared_may_be_gone_behind_a_pooler(store):
    """Then nothing more is prepared, and the batch is done again."""

    def forget(txn):
        # As if the next transaction came to another connection of the pooler.
        txn.connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        return NOTHING, None

    def load(txn):
        return NOTHING, list(txn.load([1]))

    add(store, a_job(1))
    store.run(load)
    store.run(forget)

    assert store.run(load) == [1]
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    assert store.run(lambda txn: (NOTHING, txn.connection.value(prepared))) == 0
    add(store, a_job(2))
    assert all_ids(store) == [1, 2]


def test_all_connections_in_use_is_told(postgres_url):
    """With how to have more; and when one is free again all is well."""
    store = PostgresStore(postgres_url + "&pool=2", patience_s=0.2)
    add(store, a_job(1))

    def nested(txn, deep=1):
        if deep < 3:
            store.read(lambda txn: nested(txn, deep + 1))
        return NOTHING, None

    with pytest.raises(Unavailable, match=r"\?pool="):
        store.run(nested)

    add(store, a_job(2))
    store.close()


def test_a_forked_child_makes_its_own_connections(store, postgres_url):
    """And its end does not end those of its parent."""
    code = """
import os, sys
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import a_job, add
store = PostgresStore(sys.argv[1])
add(store, a_job(1))
pid = os.fork()
add(store, a_job(2 if pid else 3))
if not pid:
    store.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
add(store, a_job(4))
store.close()
print("well")
"""
    with python(code, postgres_url) as parent:
        assert line(parent) == "well"

    assert all_ids(store) == [1, 2, 3, 4]
