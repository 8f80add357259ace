"""`connection=`: adding and finishing jobs inside the caller's own transaction; adding from SQL."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pytest
from msgspec.structs import replace

import holdfast
from holdfast.core import ids
from holdfast.core.commands import NewJob
from holdfast.core.creating import create
from holdfast.core.errors import Contended
from holdfast.core.job import Place
from tests.postgres.test_address import holdfast_cli
from tests.queue_suite.tools import LONG_S, complaints, see, take


def test_the_job_is_there_when_the_caller_commits(queue, connection):
    """And not before."""
    added = queue.add("ship", {"order": 1}, connection=connection)
    assert queue.jobs() == []
    connection.commit()

    job = take(queue)

    assert (job.id, job.data) == (added.id, {"order": 1})
    assert queue.counts() == {"ship": {"RUNNING": 1}}
    job.done()


def test_there_is_no_job_when_the_caller_rolls_back(queue, connection):
    """Nor a trace of it; and numbers are not made twice."""
    queue.add("before")
    before = see(queue)
    lost = queue.add("ship", connection=connection)
    connection.rollback()

    after = see(queue)
    assert (after.live, after.data, after.counts) == (before.live, before.data, before.counts)
    assert queue.add("work").id != lost.id


def test_a_connection_that_cannot_send_the_characters_of_a_job_is_refused(queue, postgres):
    """What it can send is added, in the same transaction."""
    with psycopg.connect(postgres.dsn, client_encoding="latin1") as connection, connection.transaction():
        with pytest.raises(holdfast.BadInput, match="client_encoding UTF8"):
            queue.add("ship", {"to": "東京"}, connection=connection)
        queue.add("ship", {"to": "Zürich"}, connection=connection)

    assert take(queue).data == {"to": "Zürich"}


def test_a_long_transaction_of_the_caller_holds_up_nobody(queue, connection, postgres_url):
    """Adding in it locks nothing that others need: not even the number of a process that had none."""
    with holdfast.connect(postgres_url) as fresh, holdfast.connect(postgres_url) as other:
        fresh.add("mine", connection=connection)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.add, "theirs").result(LONG_S)
            assert take(other).task == "theirs"
        connection.commit()

        assert take(other).task == "mine"


def test_a_waiting_claim_hears_of_the_callers_commit(queue, connection):
    """At once, although nobody else told it."""
    began = threading.Event()

    def wait():
        began.set()
        return queue.next(wait=LONG_S, renew=False)

    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(wait)
        assert began.wait(LONG_S)
        added = queue.add("work", connection=connection)
        connection.commit()

        assert claim.result(LONG_S).id == added.id


def test_a_job_is_done_when_the_caller_commits(queue, connection):
    """Together with what he did, and not before."""
    queue.add("work")
    job = take(queue)
    job.done("result", connection=connection)
    assert queue.get(job.id).state == "RUNNING"
    connection.commit()

    assert (queue.get(job.id).state, queue.result(job.id)) == ("FINISHED", "result")


def test_a_job_is_not_done_when_the_caller_rolls_back(queue, connection):
    """It runs on, and may be answered once more."""
    queue.add("work")
    job = take(queue)
    before = see(queue)
    job.done("result", connection=connection)
    connection.rollback()

    after = see(queue)
    assert (after.live, after.counts) == (before.live, before.counts)
    job.done()


def test_what_fails_inside_is_undone_alone(queue, connection):
    """What the caller did before stays in his transaction, which goes on."""
    queue.add("first", connection=connection)
    with pytest.raises(holdfast.BadInput, match="parent"):
        queue.add("second", parent=12345, connection=connection)
    connection.commit()

    assert [job.task for job in queue.jobs()] == ["first"]


def test_a_connection_in_autocommit_has_transactions_only_in_blocks(queue, postgres):
    """Outside of it a job is added at once, as each statement is."""
    with postgres.connect() as connection:
        with connection.transaction(force_rollback=True):
            queue.add("lost", connection=connection)
        queue.add("work", connection=connection)

        assert [job.task for job in queue.jobs()] == ["work"]


@pytest.mark.parametrize("other", [7, "dsn", object()], ids=lambda value: type(value).__name__)
def test_what_is_no_connection_is_refused(queue, other):
    """By name, with what is taken."""
    with pytest.raises(holdfast.BadInput, match=r"connection .*psycopg\.Connection"):
        queue.add("work", connection=other)


def test_a_connection_to_another_database_is_refused(queue, postgres):
    """Before anything is written there."""
    with psycopg.connect(
        host=str(postgres.folder), port=postgres.port, user="postgres", dbname="template1"
    ) as other:
        other.execute("SELECT 1")
        with pytest.raises(holdfast.BadInput, match="template1"):
            queue.add("work", connection=other)
        other.rollback()
        other.autocommit = True
        with pytest.raises(holdfast.BadInput, match="template1"):
            queue.add("work", connection=other)
    with pytest.raises(holdfast.BadInput, match="closed"):
        queue.add("work", connection=other)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_with_an_old_snapshot_can_only_add(queue, connection, level):
    """It does not see a limit that was set after its first statement."""
    queue.add("work", domain="d")
    job = take(queue)
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    connection.execute("SELECT count(*) FROM pg_class")
    queue.limit("d", concurrency=1)

    with pytest.raises(holdfast.BadInput, match=f"{level} .* must be in a READ COMMITTED one"):
        job.done(connection=connection)
    queue.add("next", domain="d", connection=connection)
    connection.commit()
    job.done(connection=connection)
    connection.commit()

    assert take(queue).task == "next"


@pytest.mark.parametrize("setting", ["TimeZone = 'Asia/Tokyo'", "DateStyle = 'German'"])
def test_a_connection_may_have_any_settings(queue, connection, setting):
    """Also those by which times are shown."""
    connection.execute(f"SET {setting}")
    queue.add("work", connection=connection)
    connection.commit()

    assert take(queue).task == "work"


def two_jobs_each(queue, *domains):
    """Two claimed jobs of each of these domains, which are limited."""
    for domain in domains:
        queue.limit(domain, concurrency=9)
        queue.add_many([("work", domain)] * 2, domain=domain)
    jobs = [take(queue) for _ in range(2 * len(domains))]
    return [[job for job in jobs if job.data == domain] for domain in domains]


def test_two_transactions_that_wait_for_each_other_are_told_soon(queue, postgres):
    """One of them at once, when PostgreSQL notices; the other goes on."""
    first, second = two_jobs_each(queue, "one", "two")
    both = threading.Barrier(2)

    def finish(one, two):
        with psycopg.connect(postgres.dsn) as connection, connection.transaction():
            one.done(connection=connection)
            both.wait(LONG_S)
            two.done(connection=connection)

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(finish, *pair) for pair in ((first[0], second[0]), (second[1], first[1]))]
        faults = [end.exception(LONG_S) for end in ends]

    assert sorted(type(fault).__name__ for fault in faults) == ["Contended", "NoneType"]


def test_a_lock_of_another_transaction_is_not_waited_for_for_ever(queue, connection, postgres):
    """The caller's own limit is as before."""
    ((one, two),) = two_jobs_each(queue, "d")
    queue.connection.engine.store._patience_s = 0.5
    connection.execute("SET LOCAL lock_timeout = '7s'")
    one.done(connection=connection)
    assert connection.execute("SHOW lock_timeout").fetchone() == ("7s",)

    with psycopg.connect(postgres.dsn) as other, other.transaction():
        with pytest.raises(Contended, match="roll it back, and try again"):
            two.done(connection=other)
        assert other.execute("SHOW lock_timeout").fetchone() == ("0",)
        connection.commit()
        two.done(connection=other)


# ── from SQL ─────────────────────────────────────────────────────────────────────────────────────


def test_a_job_can_be_added_from_sql(queue, connection, schema):
    """It is just what an add inside a caller's transaction makes, and runs when that commits."""
    ((added,),) = connection.execute(f"SELECT {schema}.add('resize', '{{\"path\": \"é\"}}')").fetchall()
    assert queue.jobs() == []
    connection.commit()

    (job,) = queue.jobs()
    new = NewJob(task="resize", data='{"path": "é"}')
    made = create(new, job_id=added, now_ms=job.created_at)
    assert job == replace(made, place=Place.SCHEDULED, rank=job.created_at)
    assert ids.unpack(added).sysid == ids.PORT_SYSID
    assert abs(ids.unpack(added).time_ms - job.created_at) < 10_000

    claimed = take(queue)
    assert (claimed.id, claimed.data) == (added, {"path": "é"})
    claimed.done()


def test_a_job_that_was_added_from_sql_follows_its_task(queue, connection, schema):
    connection.execute(f"SELECT {schema}.add('resize')")
    connection.commit()

    @queue.task(timeout="10s", attempts=3)
    def resize() -> None: ...

    claimed = take(queue)

    assert (claimed.record.timeout_ms, claimed.record.max_attempts) == (10_000, 3)


def test_numbers_made_in_sql_are_never_the_same(queue, postgres, schema):
    """By several sessions at once, beyond what a millisecond holds, around rollbacks."""
    with postgres.connect() as connection:
        connection.execute("SET client_min_messages = warning")

    def make(_):
        with postgres.connect() as own:
            own.autocommit = False
            found = own.execute(
                f"SELECT array_agg({schema}.add('t')) FROM generate_series(1, 200)"
            ).fetchone()
            own.rollback()
            kept = own.execute(f"SELECT array_agg({schema}.add('t')) FROM generate_series(1, 50)").fetchone()
            own.commit()
        return [*found[0], *kept[0]]

    with ThreadPoolExecutor(4) as pool:
        made = [id for part in pool.map(make, range(4)) for id in part]

    assert len(set(made)) == len(made) == 1000
    assert len(queue.jobs(limit=1000)) == 200


@pytest.mark.parametrize(
    "call", ["add('')", "add(NULL)", "add(E'a\\nb')", "add(repeat('x', 256))", "add('t', NULL)"]
)
def test_bad_input_from_sql_is_refused(queue, connection, schema, call):
    """Before anything is written."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be"):
        connection.execute(f"SELECT {schema}.{call}")
    connection.rollback()

    assert queue.jobs() == []


def test_data_from_sql_is_kept_as_json(queue, connection, schema):
    """Whatever it is."""
    values = [None, 1.5, [1, {"a": "b"}], 'quote " and \\', "ü"]
    for value in values:
        connection.execute(f"SELECT {schema}.add('t', %s::jsonb)", (msgspec.json.encode(value).decode(),))
    connection.commit()

    assert [take(queue).data for _ in values] == values


# ── counts ───────────────────────────────────────────────────────────────────────────────────────


def test_jobs_of_a_callers_transaction_are_counted_when_it_commits(queue, connection, schema):
    """Before anybody claims: those of `connection=`, those of SQL, and those that are due later."""
    first = queue.add("work", connection=connection)
    queue.add("later", delay="1h", connection=connection)
    connection.execute(f"SELECT {schema}.add('resize')")
    assert queue.counts() == {}
    connection.commit()

    counted = {"work": {"QUEUED": 1}, "later": {"QUEUED": 1}, "resize": {"QUEUED": 1}}
    assert queue.counts() == counted
    assert queue.jobs(state="QUEUED", limit=1)[0].id == first.id
    assert complaints(queue) == []
    connection.execute("BEGIN")
    queue.add("work", connection=connection)
    connection.rollback()
    assert queue.counts() == counted
    take(queue, "work")
    assert queue.counts() == counted | {"work": {"RUNNING": 1}}


def test_counts_of_jobs_that_only_sql_adds_are_folded_by_those_who_look(queue, postgres, schema):
    """However many there are, and although no process writes; what is read does not change by that."""
    differences = f"SELECT count(*) FROM {schema}.count_changes"
    with postgres.connect() as connection:
        connection.execute(f"SELECT {schema}.add('t') FROM generate_series(1, 2000)")
        assert connection.execute(differences).fetchone() == (2000,)

        assert queue.counts() == {"t": {"QUEUED": 2000}}

        assert connection.execute(differences).fetchone() == (0,)
        assert queue.counts() == {"t": {"QUEUED": 2000}}
        connection.execute(f"TRUNCATE {schema}.jobs, {schema}.data_apart, {schema}.counts")


def test_commands_tell_of_jobs_that_only_sql_has_added(postgres_url, postgres, schema, tmp_path):
    """`counts` with the oldest, `doctor`, and `move`; and the counts have moved too."""
    assert holdfast_cli("migrate", "--store", postgres_url)[0] == 0
    with postgres.connect() as connection:
        connection.execute(f"SELECT {schema}.add('resize') FROM generate_series(1, 3)")

    code, counted = holdfast_cli("counts", "--store", postgres_url)
    assert (code, "resize       3" in counted, "oldest queued: " in counted) == (0, True, True), counted
    assert "nothing is wrong" in holdfast_cli("doctor", "--store", postgres_url)[1]
    target = str(tmp_path / "new.db")
    assert "moved 3 live and 0 archived jobs" in holdfast_cli("move", postgres_url, target)[1]
    assert "resize       3" in holdfast_cli("counts", "--store", target)[1]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_transactions_that_take_one_unique_key_wait_for_each_other(queue, connection, postgres, end):
    """The second waits for the end of the first, and then has its job or the key."""
    first = queue.add("work", unique="key", connection=connection)
    with psycopg.connect(postgres.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT 1")
        second = pool.submit(queue.add, "work", unique="key", connection=other)
        with pytest.raises(TimeoutError):
            second.result(0.3)
        getattr(connection, end)()
        assert (second.result(LONG_S) == first) == (end == "commit")
        other.commit()
    assert queue.counts() == {"work": {"QUEUED": 1}}
    assert complaints(queue) == []
