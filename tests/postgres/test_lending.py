"""`connection=` by the libraries that people use: each of them, with its own way of transactions."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import holdfast
from tests.projects import django_connection, run_in
from tests.queue_suite.tools import LONG_S, take

CREATE = "CREATE TABLE IF NOT EXISTS orders (id int)"
ORDER = "INSERT INTO orders VALUES (1)"
COUNT = "SELECT count(*) FROM orders"


class Undo(Exception):
    """Rolls back whatever it is raised in."""


@contextmanager
def undone():
    """Where `Undo` ends."""
    with pytest.raises(Undo):
        yield


@pytest.fixture(autouse=True)
def orders(postgres, queue):
    """The caller's own table, empty; how many rows it has."""
    with postgres.connect() as connection:
        connection.execute(CREATE)
        yield lambda: connection.execute(COUNT).fetchone()[0]
        connection.execute("DROP TABLE orders")


# ── for threads: a transaction, and how a statement is run in it ──────────────────────────────────


@contextmanager
def by_psycopg(postgres):
    """psycopg's, in a transaction block."""
    with psycopg.connect(postgres.dsn) as connection, connection.transaction():
        yield connection, connection.execute


@contextmanager
def by_preparing_psycopg(postgres):
    """One that prepares every statement."""
    with psycopg.connect(postgres.dsn, prepare_threshold=0) as connection, connection.transaction():
        yield connection, connection.execute


@contextmanager
def by_session(postgres):
    """SQLAlchemy's, as most people have it."""
    engine = sqlalchemy.create_engine(postgres.sqlalchemy_url("psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@contextmanager
def by_connection(postgres):
    """SQLAlchemy's without objects."""
    engine = sqlalchemy.create_engine(postgres.sqlalchemy_url("psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))


@contextmanager
def by_django(postgres):
    """Django's, in `atomic`."""
    with django_of(postgres) as connection, transaction.atomic(using="ours"):
        yield connection, lambda sql: run_in(connection, sql)


def django_of(postgres):
    """Django's connection to this server."""
    where = {"HOST": str(postgres.folder), "PORT": str(postgres.port), "USER": "postgres"}
    return django_connection(ENGINE="django.db.backends.postgresql", NAME=postgres.database, **where)


EACH_SYNC = pytest.mark.parametrize(
    "within", [by_psycopg, by_preparing_psycopg, by_session, by_connection, by_django]
)


@EACH_SYNC
def test_a_job_comes_and_goes_with_the_callers_transaction(queue, postgres, orders, within):
    """Together with his order; and not without it."""
    with undone(), within(postgres) as (connection, execute):
        execute(ORDER)
        queue.add("lost", connection=connection)
        raise Undo
    with within(postgres) as (connection, execute):
        execute(ORDER)
        queue.add("kept", {"n": 1}, connection=connection)
        assert queue.jobs() == []

    assert [job.task for job in queue.jobs()] == ["kept"]
    assert orders() == 1


@EACH_SYNC
def test_a_job_that_is_all_a_transaction_does_is_committed_by_it(queue, postgres, within):
    """Also where the library has not spoken to the server itself before."""
    with within(postgres) as (connection, _):
        queue.add("alone", connection=connection)

    assert [job.task for job in queue.jobs()] == ["alone"]


@EACH_SYNC
def test_a_job_is_done_with_the_callers_transaction(queue, postgres, orders, within):
    """And is not where he rolls back."""
    queue.add("work")
    job = take(queue)
    with undone(), within(postgres) as (connection, execute):
        execute(ORDER)
        job.done("lost", connection=connection)
        raise Undo
    assert queue.get(job.id).state == "RUNNING"
    with within(postgres) as (connection, execute):
        execute(ORDER)
        job.done("kept", connection=connection)

    assert queue.result(job.id) == "kept"
    assert orders() == 1


def test_a_transaction_that_has_failed_is_told(queue, postgres):
    """Nothing can be done in it any more but to roll back."""
    with psycopg.connect(postgres.dsn) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT FROM nothing")
        with pytest.raises(holdfast.BadInput, match="rolled back"):
            queue.add("work", connection=connection)
        connection.rollback()
        with connection.transaction():
            queue.add("work", connection=connection)
    for within in (by_session, by_connection, by_django):
        with undone(), within(postgres) as (connection, execute):
            with pytest.raises(Exception, match="nothing"):
                execute("SELECT FROM nothing")
            with pytest.raises(holdfast.BadInput, match="rolled back"):
                queue.add("work", connection=connection)
            raise Undo

    assert len(queue.jobs()) == 1


def test_without_a_transaction_the_librarys_way_to_begin_one_is_told(queue, postgres):
    """Each by its own words; and nothing was begun meanwhile."""
    engine = sqlalchemy.create_engine(postgres.sqlalchemy_url("psycopg"), poolclass=NullPool)
    with psycopg.connect(postgres.dsn) as plain, Session(engine) as session, engine.connect() as connection:
        for each, way in ((plain, r"connection\.transaction\(\)"), (session, "begin"), (connection, "begin")):
            with pytest.raises(holdfast.BadInput, match=f"not in a transaction.*{way}"):
                queue.add("work", connection=each)
        assert not session.in_transaction()
        assert not connection.in_transaction()
        assert plain.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    assert queue.jobs() == []


def test_without_a_transaction_a_job_is_added_at_once_in_autocommit(queue, postgres):
    """Each library has its own way to be in it; Django is by default, also before its first query."""
    url = postgres.sqlalchemy_url("psycopg")
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with django_of(postgres) as wrapped, Session(engine) as session, engine.connect() as connection:
        for each in (wrapped, session, connection):
            queue.add("work", connection=each)
        run_in(wrapped, "SELECT 1")
        connection.execute(sqlalchemy.text("SELECT 1"))
        for each in (wrapped, connection):
            queue.add("work", connection=each)
        connection.rollback()

    assert queue.counts() == {"work": {"QUEUED": 5}}


def test_a_connection_in_pipeline_mode_is_refused(queue, awaited, postgres):
    """It would read nothing; after the pipeline it is taken."""
    with psycopg.connect(postgres.dsn) as connection:
        with connection.pipeline(), pytest.raises(holdfast.BadInput, match="pipeline mode"):
            queue.add("work", connection=connection)
        with connection.transaction():
            queue.add("work", connection=connection)

    async def work(aio):
        async with (
            await psycopg.AsyncConnection.connect(postgres.dsn) as connection,
            connection.pipeline(),
        ):
            with pytest.raises(holdfast.BadInput, match="pipeline mode"):
                await aio.add("work", connection=connection)

    awaited(work)
    assert len(queue.jobs()) == 1


# ── for asyncio ──────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def by_async_psycopg(postgres):
    """psycopg's."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as connection, connection.transaction():
        yield connection, connection.execute


@asynccontextmanager
async def by_preparing_async_psycopg(postgres):
    """One that prepares every statement."""
    connecting = psycopg.AsyncConnection.connect(postgres.dsn, prepare_threshold=0)
    async with await connecting as connection, connection.transaction():
        yield connection, connection.execute


@asynccontextmanager
async def by_asyncpg(postgres):
    """asyncpg's, in a transaction block."""
    connection = await asyncpg.connect(**postgres.asyncpg)
    try:
        async with connection.transaction():
            yield connection, connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(postgres):
    """The same of a pool."""
    async with (
        asyncpg.create_pool(**postgres.asyncpg, min_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection, connection.execute


def by_async_session(driver):
    """SQLAlchemy's, over either."""

    @asynccontextmanager
    async def within(postgres):
        engine = create_async_engine(postgres.sqlalchemy_url(driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))

    return within


def by_async_connection(driver):
    """SQLAlchemy's without objects."""

    @asynccontextmanager
    async def within(postgres):
        engine = create_async_engine(postgres.sqlalchemy_url(driver), poolclass=NullPool)
        async with engine.begin() as connection:
            yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))

    return within


ASYNC = {
    "psycopg": by_async_psycopg,
    "preparing psycopg": by_preparing_async_psycopg,
    "asyncpg": by_asyncpg,
    "asyncpg pool": by_asyncpg_pool,
    "session over psycopg": by_async_session("psycopg"),
    "session over asyncpg": by_async_session("asyncpg"),
    "connection over psycopg": by_async_connection("psycopg"),
    "connection over asyncpg": by_async_connection("asyncpg"),
}
EACH = pytest.mark.parametrize("within", ASYNC.values(), ids=ASYNC.keys())


@pytest.fixture
def awaited(postgres_url):
    """Runs a coroutine function with a queue for asyncio on the same store."""

    def run(work):
        async def main():
            async with holdfast.connect_async(postgres_url) as queue:
                return await work(queue)

        return asyncio.run(main())

    return run


@EACH
def test_a_job_comes_and_goes_with_an_awaited_transaction(queue, awaited, postgres, orders, within):
    """As it does in threads."""

    async def work(aio):
        with undone():
            async with within(postgres) as (connection, execute):
                await execute(ORDER)
                await aio.add("lost", connection=connection)
                raise Undo
        async with within(postgres) as (connection, _):
            await aio.add("alone", connection=connection)
        async with within(postgres) as (connection, execute):
            await execute(ORDER)
            await aio.add("kept", {"é": b"x".hex()}, priority=7, connection=connection)
            assert len(await aio.jobs()) == 1

    awaited(work)

    assert [(job.task, job.priority) for job in queue.jobs()] == [("alone", 500), ("kept", 7)]
    assert orders() == 1


@EACH
def test_a_job_is_done_with_an_awaited_transaction(queue, awaited, postgres, orders, within):
    """With all that follows from it: a family, a domain, a key, counts."""
    queue.limit("site", concurrency=1)

    async def work(aio):
        await aio.add("visit", domain="site", unique="one")
        await aio.add("visit", domain="site")
        job = await aio.next(["visit"], wait=60)
        with undone():
            async with within(postgres) as (connection, execute):
                await execute(ORDER)
                await job.done("lost", connection=connection)
                raise Undo
        assert (await aio.get(job.id)).state == "RUNNING"
        async with within(postgres) as (connection, execute):
            await execute(ORDER)
            await job.done({"kept": True}, connection=connection)
        return job.id

    done = awaited(work)

    assert queue.result(done) == {"kept": True}
    assert orders() == 1
    take(queue, "visit").done()
    assert queue.counts() == {"visit": {"FINISHED": 2}}


def test_an_awaited_connection_outside_a_transaction_is_in_autocommit_or_refused(awaited, postgres):
    """asyncpg always is, the others if told so; and none may be closed."""

    async def work(aio):
        connection = await asyncpg.connect(**postgres.asyncpg)
        await aio.add("at once", connection=connection)
        await connection.close()
        async with await psycopg.AsyncConnection.connect(postgres.dsn) as other:
            with pytest.raises(holdfast.BadInput, match=r"by connection\.transaction\(\)"):
                await aio.add("work", connection=other)
            await other.set_autocommit(True)
            await aio.add("at once", connection=other)
        for closed in (connection, other):
            with pytest.raises(holdfast.BadInput, match="closed"):
                await aio.add("work", connection=closed)
        for driver in ("psycopg", "asyncpg"):
            engine = create_async_engine(postgres.sqlalchemy_url(driver), poolclass=NullPool)
            async with AsyncSession(engine) as session, engine.connect() as connection:
                for each in (session, connection):
                    with pytest.raises(holdfast.BadInput, match=r"not in a transaction.*begin"):
                        await aio.add("work", connection=each)
            async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                await aio.add("at once", connection=connection)
                await connection.rollback()
        return await aio.counts()

    assert awaited(work) == {"at once": {"QUEUED": 4}}


def test_an_awaited_transaction_that_has_failed_is_told(awaited, postgres):
    """asyncpg says so in its own words, which are turned into ours."""

    async def work(aio):
        for within in (by_asyncpg, by_async_session("asyncpg")):
            with undone():
                async with within(postgres) as (connection, execute):
                    with pytest.raises(Exception, match="nothing"):
                        await execute("SELECT FROM nothing")
                    with pytest.raises(holdfast.BadInput, match="rolled back"):
                        await aio.add("work", connection=connection)
                    raise Undo

    awaited(work)


def test_a_connection_of_the_wrong_kind_is_refused_with_the_right_one(queue, awaited, postgres):
    """One to await where nobody awaits, and the other way round."""

    async def work(aio):
        async with await psycopg.AsyncConnection.connect(postgres.dsn) as connection:
            with pytest.raises(holdfast.BadInput, match=r"AsyncConnection.*connect_async"):
                queue.add("work", connection=connection)
        async with by_async_session("asyncpg")(postgres) as (session, _):
            with pytest.raises(holdfast.BadInput, match=r"AsyncSession.*connect_async"):
                queue.add("work", connection=session)
        for within in (by_psycopg, by_session):
            with (
                within(postgres) as (connection, _),
                pytest.raises(holdfast.BadInput, match=r"(psycopg\.Connection|Session).*holdfast\.connect"),
            ):
                await aio.add("work", connection=connection)
        with pytest.raises(holdfast.BadInput, match=r"builtins\.int"):
            await aio.add("work", connection=7)

    awaited(work)
    assert queue.jobs() == []


def test_an_awaited_connection_to_another_database_is_refused(awaited, postgres):
    """Before anything is written there."""

    async def work(aio):
        connection = await asyncpg.connect(**postgres.asyncpg | {"database": "template1"})
        async with connection.transaction():
            with pytest.raises(holdfast.BadInput, match="template1"):
                await aio.add("work", connection=connection)
        await connection.close()

    awaited(work)


def test_a_caller_who_is_cancelled_has_his_connection_to_himself(awaited, postgres):
    """What was under way on it has ended when he hears of it."""

    async def work(aio):
        async with by_asyncpg(postgres) as (connection, execute):
            adding = asyncio.create_task(aio.add("work", connection=connection))
            await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            # asyncpg refuses to do two things at once.
            await execute("SELECT 1")

    awaited(work)


def test_any_number_of_coroutines_may_wait_for_locks(awaited, postgres):
    """However few threads the event loop has: the one that has the lock goes on."""
    count = 4

    async def work(aio):
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        await aio.limit("d", concurrency=count)
        await aio.add_many([("work", n) for n in range(count)], domain="d")
        all_began = asyncio.Barrier(count)

        async def finish(job):
            async with by_async_psycopg(postgres) as (connection, execute):
                await execute("SELECT 1")
                await all_began.wait()
                await job.done(connection=connection)
                await aio.add("next", connection=connection)

        jobs = await aio.claim(limit=count)
        await asyncio.wait_for(asyncio.gather(*map(finish, jobs)), LONG_S)
        return await aio.counts()

    assert awaited(work)["next"] == {"QUEUED": count}
