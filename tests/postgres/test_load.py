"""Trouble under load: processes add, claim and answer, the server is not what it was, and nothing is lost.

4 × hammer ──▶ a server, or PgBouncer before it ◀── trouble, again and again
     │                    ▲
     └──▶ ledger          └── a probe right after: it must get through within five seconds
           └──▶ checks.broken(address, ledger) == []
"""

import threading
import time
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import psycopg
import pytest

import holdfast
from holdfast.queue.connect import connect
from tests.model import view as model_view
from tests.servers import PostgresServer, bouncer_or_skip
from tests.stress import checks, hammer, ledger
from tests.stress.crew import Crew
from tests.stress.hand import Hand
from tests.stress.ledger import Ledger


class Size(NamedTuple):
    """How much of it."""

    processes: int
    jobs: int
    times: int
    patience_s: float
    # By when work goes on after each trouble: the figure itself, or only that it does.
    soon_s: float


SMALL = Size(processes=2, jobs=60, times=2, patience_s=600, soon_s=60)
FULL = Size(processes=8, jobs=20_000, times=40, patience_s=3_600, soon_s=5)
SIZES = pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]
)
LONG = pytest.mark.timeout(3_600)
# Of the troubles `make test` tries a crash; `tests/work/test_cut_connections.py` cuts connections under load.
PROOF = pytest.mark.proof


def hammered(url, book, size, trouble, tell):
    """Have a store hammered, and troubled each time that a part of the jobs has been accepted."""
    with holdfast.connect(url) as queue:
        for domain, limit in hammer.LIMITS.items():
            queue.limit(domain, **limit)
        waits = _troubled(queue, book, size, trouble)
        while {"QUEUED", "RUNNING"} & {state for states in queue.counts().values() for state in states}:
            hand = Hand(queue, Ledger(str(book)), "last")
            for job in hand.claim(wait=1, lease=1):
                hand.done(job)

    assert checks.broken(url, book) == []
    assert max(waits) < size.soon_s
    events = ledger.read(book)
    jobs = sum(len(event["ids"]) for event in checks.of(events, "added"))
    tell(
        f"{jobs:,} jobs accepted, troubled {len(waits)} times; the next add {max(waits):.2f} s later at most"
    )


def _troubled(queue, book, size, trouble):
    """How long after each trouble the next add had returned."""
    waits: list[float] = []
    added, ready, every = 0, 0, size.jobs // (size.times + 1)
    probe = Hand(queue, Ledger(str(book)), "probe")
    with Crew() as crew:
        for number in range(size.processes):
            share = size.jobs // size.processes
            args = {"path": queue.url, "ledger": str(book), "tag": f"h{number}", "seed": number}
            crew.start(hammer.work, **args, share=share, lease_s=1.0)
        for _, line in crew.listen(patience_s=size.patience_s):
            added += int(line) if line.isdigit() else 0
            ready += line == "ready"
            if ready < size.processes:
                continue
            if added // every > len(waits) and len(waits) < size.times:
                trouble()
                ended_s = time.monotonic()
                probe.add("work")
                waits.append(time.monotonic() - ended_s)
    return waits


@pytest.fixture(autouse=True)
def see_all(monkeypatch):
    """Of very many jobs too."""
    monkeypatch.setattr(model_view, "ALL", 10_000_000)


@LONG
@SIZES
def test_the_server_crashes_and_comes_back(server, tmp_path, size, tell):
    """As `pg_ctl restart -m immediate` does it."""

    def restart():
        server.stop(immediately=True)
        server.start()

    hammered(server.url(), tmp_path / "ledger", size, restart, tell)


@PROOF
@LONG
@SIZES
def test_all_connections_are_cut_again_and_again(server, tmp_path, size, tell):
    """A storm of `pg_terminate_backend`."""

    def storm():
        with server.connect() as connection:
            for _ in range(20):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
                time.sleep(0.02)

    hammered(server.url(), tmp_path / "ledger", size, storm, tell)


@PROOF
@LONG
@SIZES
def test_the_server_has_no_connection_to_spare(tmp_path, size, tell):
    """Somebody else takes all that are left, and cuts ours, for a while."""
    with closing(PostgresServer(max_connections="40", superuser_reserved_connections="1")) as server:

        def hog():
            with ExitStack() as held, server.connect() as first:
                first.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
                until = time.monotonic() + 1.0
                while time.monotonic() < until:
                    try:
                        held.enter_context(server.connect())
                    except psycopg.OperationalError:
                        time.sleep(0.05)

        hammered(server.url(), tmp_path / "ledger", size, hog, tell)


@PROOF
@LONG
@SIZES
def test_a_transaction_stays_open_all_the_while(server, tmp_path, size, tell):
    """Dead rows cannot be cleared away, and nobody waits for it."""
    with server.connect() as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("CREATE TABLE mine (id int)")
        hammered(server.url(), tmp_path / "ledger", size, lambda: None, tell)


@PROOF
@LONG
@SIZES
def test_a_pooler_stands_between(server, tmp_path, size, tell):
    """PgBouncer, a connection for each transaction, fewer of them than there are processes that want one."""
    with closing(bouncer_or_skip(server)) as bouncer:
        hammered(bouncer.url(), tmp_path / "ledger", size, lambda: None, tell)


@PROOF
@LONG
@SIZES
def test_the_server_behind_a_pooler_crashes_and_comes_back(server, tmp_path, size, tell):
    """Whose own errors are not PostgreSQL's."""
    with closing(bouncer_or_skip(server)) as bouncer:

        def restart():
            server.stop(immediately=True)
            server.start()

        hammered(bouncer.url(), tmp_path / "ledger", size, restart, tell)


# ── a pooler, without load ───────────────────────────────────────────────────────────────────────


@contextmanager
def behind(server):
    """A queue behind PgBouncer, which is told nothing of it."""
    with closing(bouncer_or_skip(server)) as bouncer, connect(bouncer.url(), follow=False) as queue:
        yield queue


def test_a_pooler_is_noticed_by_itself(server):
    """Nothing is left in its sessions, which are others' as well: no settings, no prepared statements."""
    with behind(server) as queue:
        for _ in range(20):
            queue.add("work")
            queue.next(["work"]).done()
        pool = queue.connection.engine.store.pool
        assert pool.pooled
        with pool.connection() as connection:
            assert connection.value("SELECT current_setting('enable_seqscan')") == "on"
            assert connection.value("SELECT count(*) FROM pg_prepared_statements") == 0


def test_a_process_behind_a_pooler_announces_no_name_that_would_outlive_it(server):
    """Also if that is the first thing it asks for, as a worker does: the lock would stay in a session."""
    with behind(server) as queue:
        store = queue.connection.store

        assert store.appear("a-worker") is False
        assert not store.read(lambda txn: txn.present(["a-worker"]))


def test_whoever_waits_behind_a_pooler_is_served_all_the_same(server):
    """By looking, since it cannot listen."""
    with behind(server) as queue, holdfast.connect(queue.url) as other:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(other.next(wait=60, renew=False)))
        thread.start()
        added = queue.add("work")
        thread.join()

        assert found[0].id == added.id
