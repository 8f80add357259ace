"""`connection=`: adding and finishing jobs inside the caller's own transaction."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

import holdfast
from holdfast.store.sqlite import lock
from holdfast.testing.clock import MovedClock
from tests.idle import waits
from tests.queue_suite.fixtures import START_MS
from tests.queue_suite.tools import LONG_S, complaints, see, take, until, upkeep


@pytest.fixture
def clock():
    """The time."""
    return MovedClock(START_MS)


@pytest.fixture
def path(tmp_path):
    """The file that the queue and its caller share."""
    return tmp_path / "app.db"


@pytest.fixture
def queue(path, clock):
    """A queue on a fresh file, in which all is right at the end."""
    with holdfast.connect(str(path), clock=clock) as queue:
        queue.counts()
        yield queue
        upkeep(queue)
        assert complaints(queue) == []


def opened(path):
    """A connection that begins nothing by itself."""
    return sqlite3.connect(path, isolation_level=None)


@pytest.fixture
def connection(path, queue):
    """The caller's own, to a table of his own in the same file."""
    connection = opened(path)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield connection
    connection.close()


def orders(connection):
    """How many the caller has."""
    return connection.execute("SELECT count(*) FROM orders").fetchone()[0]


# ── adding ───────────────────────────────────────────────────────────────────────────────────────


def test_the_job_is_there_when_the_caller_commits(queue, connection):
    """One of it, with his own rows, and not before."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    added = queue.add("ship", {"order": 1}, connection=connection)
    assert queue.jobs() == []
    connection.execute("COMMIT")

    job = take(queue)

    assert (job.id, job.data, orders(connection)) == (added.id, {"order": 1}, 1)
    assert queue.counts() == {"ship": {"RUNNING": 1}}
    job.done()
    assert queue.next() is None


def test_jobs_of_a_callers_transaction_are_counted_when_it_commits(queue, connection):
    """Before anybody claims, also those that are due later; and nothing is complained of."""
    connection.execute("BEGIN IMMEDIATE")
    first = queue.add("work", connection=connection)
    queue.add("later", delay="1h", connection=connection)
    assert queue.counts() == {}
    connection.execute("COMMIT")

    assert queue.counts() == {"work": {"QUEUED": 1}, "later": {"QUEUED": 1}}
    assert queue.jobs(state="QUEUED", limit=1)[0].id == first.id
    assert complaints(queue) == []
    connection.execute("BEGIN IMMEDIATE")
    queue.add("work", connection=connection)
    connection.execute("ROLLBACK")
    assert queue.counts() == {"work": {"QUEUED": 1}, "later": {"QUEUED": 1}}
    take(queue, "work").done()
    assert queue.counts() == {"work": {"FINISHED": 1}, "later": {"QUEUED": 1}}


def test_there_is_no_job_when_the_caller_rolls_back(queue, connection):
    """Nor a trace of it."""
    before = see(queue)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    added = queue.add("ship", connection=connection)
    connection.execute("ROLLBACK")

    assert see(queue) == before
    assert (queue.next(), orders(connection)) == (None, 0)
    with pytest.raises(holdfast.NotFound, match=str(added.id)):
        added.get()


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_transaction_that_is_open_before_the_store_is_created_is_told_what_to_do(path, mode):
    """At once: the tables can be created only without it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with holdfast.connect(str(path)) as queue:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(holdfast.BadInput, match=r"no tables .* call queue\.counts\(\) once before"):
            queue.add("ship", connection=connection)
        connection.execute("COMMIT")

        queue.counts()
        connection.execute("BEGIN IMMEDIATE")
        queue.add("ship", connection=connection)
        connection.execute("COMMIT")
        assert queue.counts() == {"ship": {"QUEUED": 1}}
    connection.close()


def test_the_standard_librarys_own_way_of_transactions_works_too(path, clock):
    """`with connection:` commits, and rolls back when it raises; the first write begins."""
    with holdfast.connect(str(path), clock=clock) as queue:
        queue.counts()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")

        def add(*tasks):
            with connection:
                connection.execute("INSERT INTO orders DEFAULT VALUES")
                for task in tasks:
                    queue.add(task, connection=connection)

        add("kept")
        with pytest.raises(holdfast.BadInput):
            add("lost", "")
        with pytest.raises(holdfast.BadInput, match=r"not in a transaction.*BEGIN IMMEDIATE"), connection:
            queue.add("before the first write", connection=connection)
        connection.isolation_level = None
        queue.add("in autocommit", connection=connection)
        connection.close()

        assert [job.task for job in queue.jobs()] == ["kept", "in autocommit"]


def test_numbers_are_never_made_twice_around_a_rollback(queue, connection):
    """Whether made in the caller's transaction or in the queue's own, before and after it."""
    ids = [queue.add("work").id]
    for end in ("ROLLBACK", "COMMIT", "ROLLBACK"):
        connection.execute("BEGIN IMMEDIATE")
        ids += [queue.add("work", connection=connection).id for _ in range(3)]
        connection.execute(end)
        ids.append(queue.add("work").id)

    assert len(ids) == len(set(ids))
    assert len(queue.jobs()) == 1 + 3 + 3


def test_a_queue_whose_first_write_is_the_callers_makes_numbers_of_its_own(path, clock):
    """Two processes that never wrote by themselves do not make the same, also after a rollback."""
    with (
        holdfast.connect(str(path), clock=clock) as first,
        holdfast.connect(str(path), clock=clock) as second,
    ):
        first.counts()
        connection = opened(path)
        ids = []
        for queue, end in ((first, "ROLLBACK"), (second, "COMMIT"), (first, "COMMIT")):
            connection.execute("BEGIN IMMEDIATE")
            ids.append(queue.add("work", connection=connection).id)
            connection.execute(end)
        connection.close()

        # The first was never anybody's, so nobody minds who has it.
        assert ids[2] not in ids[:2]
        assert sorted(job.id for job in second.jobs()) == sorted(ids[1:])


def test_options_hold_for_what_is_added_there(queue, connection, clock):
    """Time, priority and domain; and its limit."""
    queue.limit("api", concurrency=1)
    connection.execute("BEGIN IMMEDIATE")
    later = queue.add("later", delay="1m", connection=connection)
    for n in range(2):
        queue.add("work", n, domain="api", priority=n, connection=connection)
    connection.execute("COMMIT")

    assert [job.data for job in queue.claim(limit=5, renew=False)] == [1]
    clock.advance(60_000)
    assert take(queue, "later").id == later.id


def test_a_unique_key_is_taken_in_the_callers_transaction(queue, connection):
    """It is there when that commits, and free when it is rolled back; a key that is held gives its job."""
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN IMMEDIATE")
        first = queue.add("work", unique="key", connection=connection)
        again = queue.add("work", unique="key", connection=connection)
        assert (again, again.is_new, first.is_new) == (first, False, True)
        connection.execute(end)

    assert queue.add("work", unique="key") == first
    connection.execute("BEGIN IMMEDIATE")
    assert queue.add("work", unique="key", connection=connection) == first
    connection.execute("COMMIT")
    assert queue.counts() == {"work": {"QUEUED": 1}}
    assert complaints(queue) == []
    take(queue).done()
    assert queue.add("work", unique="key") != first


def test_a_task_and_many_jobs_are_added_in_the_callers_transaction(queue, connection):
    """`using(connection=…)`, also with other options; not by a prepared call, which may be added later."""

    @queue.task
    def ship(order: int) -> None: ...

    using = ship.using(connection=connection, priority=7)
    with pytest.raises(holdfast.BadInput, match="connection"):
        using.call(1)
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES (1)")
        handles = [using.add(1), *using.add_many([(2,), (3,)])]
        handles += queue.add_many([ship.call(4), ("other", {"n": 5})], connection=connection)
        assert queue.jobs() == []
        connection.execute(end)

    assert [(job.id, job.task, job.priority) for job in queue.jobs()] == [
        (handle.id, "other" if n == 4 else "ship", 7 if n < 3 else 500) for n, handle in enumerate(handles)
    ]


@pytest.mark.parametrize("option", [{"parent": 12345}, {"parent": 12345, "unique": "key"}])
def test_what_would_touch_others_is_refused_there(queue, connection, option):
    """A parent, before anything is written; the caller's transaction goes on."""
    before = see(queue)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(holdfast.BadInput, match=next(iter(option))):
        queue.add("work", connection=connection, **option)
    connection.execute("COMMIT")

    assert (see(queue), orders(connection)) == (before, 1)


def test_a_waiting_claim_hears_of_the_callers_commit(queue, connection):
    """Although nobody told it."""
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(queue.next, wait=LONG_S, renew=False)
        # Its first look writes: it would not wait for a transaction of this process for long.
        until(lambda: waits(queue))
        connection.execute("BEGIN IMMEDIATE")
        added = queue.add("work", connection=connection)
        connection.execute("COMMIT")

        assert claim.result(LONG_S).id == added.id


# ── finishing ────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_done_when_the_caller_commits(queue, connection):
    """Together with what it did, and not before."""
    queue.add("work")
    job = take(queue)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    job.done("result", connection=connection)
    assert queue.get(job.id).state == "RUNNING"
    connection.execute("COMMIT")

    assert (queue.get(job.id).state, queue.result(job.id)) == ("FINISHED", "result")
    assert orders(connection) == 1


def test_a_job_is_not_done_when_the_caller_rolls_back(queue, connection, clock):
    """It runs again when its lease has ended."""
    queue.add("work")
    job = take(queue)
    before = see(queue)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    job.done("result", connection=connection)
    connection.execute("ROLLBACK")

    assert (see(queue), orders(connection)) == (before, 0)
    clock.advance(60_000)
    assert take(queue).id == job.id


def test_a_late_worker_is_refused_in_its_own_transaction(queue, connection, clock):
    """Then it knows to roll back what it did."""
    queue.add("work")
    late = take(queue)
    clock.advance(60_000)
    take(queue)
    before = see(queue)

    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(holdfast.LeaseLost, match=str(late.id)):
        late.done(connection=connection)
    connection.execute("ROLLBACK")

    assert see(queue) == before


def test_a_family_and_a_domain_go_on_when_the_caller_commits(queue, connection):
    """What follows from a finish follows from this one too."""
    queue.limit("api", concurrency=1)
    queue.add("parent")
    parent = take(queue)
    for _ in range(2):
        parent.add("child", domain="api")
    parent.done()
    for _ in range(2):
        child = take(queue, "child")
        assert queue.next(["child"]) is None
        connection.execute("BEGIN IMMEDIATE")
        child.done(connection=connection)
        connection.execute("COMMIT")

    assert take(queue).id == parent.id


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def test_another_librarys_connection_is_refused_before_anything_is_written(queue, path):
    """With the way out: which library."""
    before = see(queue)
    queue.add("work")
    job = take(queue)
    stranger = apsw.Connection(str(path))

    for verb in (lambda: queue.add("more", connection=stranger), lambda: job.done(connection=stranger)):
        with pytest.raises(holdfast.BadInput, match=r"connection .* must be a sqlite3\.Connection"):
            verb()
    stranger.close()

    assert queue.counts() == {"work": {"RUNNING": 1}}
    job.done()
    assert before.live == see(queue).live


@pytest.mark.parametrize("connection", [7, "app.db", object()], ids=lambda value: type(value).__name__)
def test_what_is_no_connection_is_refused(queue, connection):
    """By name."""
    with pytest.raises(holdfast.BadInput, match="connection"):
        queue.add("work", connection=connection)
    assert queue.jobs() == []


def test_a_memory_store_has_no_connections(clock):
    """It says so."""
    with (
        holdfast.connect("memory://", clock=clock) as queue,
        pytest.raises(holdfast.BadInput, match="memory:// has no connections"),
    ):
        queue.add("work", connection=object())


def test_a_caller_who_holds_the_write_lock_is_told_instead_of_left_to_wait(queue, connection, monkeypatch):
    """To add without `connection=` would wait for himself; afterwards all is well."""
    assert lock.OWN_TRANSACTION_S == 5
    monkeypatch.setattr(lock, "OWN_TRANSACTION_S", 0.1)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(holdfast.WouldBlock, match="pass its connection as connection="):
        queue.add("work")
    queue.add("inside", connection=connection)
    connection.execute("COMMIT")

    queue.add("outside")

    assert sorted(job.task for job in queue.jobs()) == ["inside", "outside"]
    assert orders(connection) == 1


def test_a_thread_waits_for_the_open_transaction_of_another(queue, connection):
    """Longer than the half second for which it waited once."""
    connection.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(queue.add, "work")
        with pytest.raises(TimeoutError):
            adding.result(1)
        connection.execute("COMMIT")

        assert adding.result(LONG_S).get().task == "work"
