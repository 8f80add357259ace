"""`ctx.transaction`: a step and what its caller writes, in one transaction of the caller's own connection."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import holdfast
from holdfast import AsyncContext, Context
from tests.projects import django_connection
from tests.queue_suite.tools import take

CREATE, ORDER = "CREATE TABLE orders (id int)", "INSERT INTO orders VALUES (1)"


class Database:
    """A database with a table of orders, and how to connect to it."""

    def __init__(self, url, connect, server=None):
        self.url, self.connect, self.server = url, connect, server

    def count(self):
        """How many orders there are."""
        with closing(self.connect()) as connection, connection:
            return connection.execute("SELECT count(*) FROM orders").fetchone()[0]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    """One of each kind, empty."""
    if request.param == "sqlite":
        path = str(tmp_path / "app.db")
        yield from begin(Database(path, lambda: sqlite3.connect(path)))
        return
    schemas = request.getfixturevalue("postgres_schemas")
    name = schemas.take()
    server = schemas.server
    yield from begin(Database(server.url(name), lambda: psycopg.connect(server.dsn), server))
    schemas.give(name)


def begin(database):
    """Make the table, and drop it in the end."""
    with holdfast.connect(database.url) as queue:
        queue.counts()
    with closing(database.connect()) as connection, connection:
        connection.execute(CREATE)
    yield database
    with closing(database.connect()) as connection, connection:
        connection.execute("DROP TABLE orders")


@contextmanager
def by_driver(database):
    """psycopg, or sqlite3."""
    with closing(database.connect()) as connection:
        yield connection, connection.execute


@contextmanager
def by_sqlalchemy(database):
    """A session."""
    with Session(sqlalchemy.create_engine(alchemy(database), poolclass=NullPool)) as session:
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@contextmanager
def by_django(database):
    """Django's connection."""
    with django_connection(ENGINE="django.db.backends.sqlite3", NAME=database.url) as connection:
        yield connection, lambda sql: connection.cursor().execute(sql)


def alchemy(database, *, file_driver="pysqlite"):
    """The address of SQLAlchemy."""
    server = database.server
    if server is None:
        return f"sqlite+{file_driver}:///{database.url}"
    where = f"host={server.folder}&port={server.port}"
    return f"postgresql+psycopg://postgres@/{server.database}?{where}"


@pytest.mark.parametrize("within", [by_driver, by_sqlalchemy, by_django])
def test_a_step_and_its_effect_are_one(database, within):
    """Both are rolled back or both are there, once, whatever comes after."""
    if within is by_django and database.server is not None:
        pytest.skip("one database is enough")
    queue = holdfast.connect(database.url)
    seen = []

    @queue.task(backoff="0s")
    def order(ctx: Context) -> str:
        with within(database) as (connection, execute), ctx.transaction("charge", connection) as step:
            seen.append(step.done)
            if not step.done:
                execute(ORDER)
                step.result = {"paid": 7}
            if ctx.attempt == 1:
                raise ValueError("before the commit")
        if ctx.attempt == 2:
            raise ValueError("after it")
        return str(step.result)

    job = order.add()
    counts = []
    for _ in range(3):
        take(queue).run()
        counts.append((database.count(), len(queue.timeline(job))))

    assert job.result() == "{'paid': 7}"
    assert (seen, counts) == ([False, False, True], [(0, 0), (1, 1), (1, 1)])
    queue.close()


def test_a_transaction_that_is_open_already_is_refused(database):
    """It would not be committed with the step."""
    queue = holdfast.connect(database.url)

    @queue.task(attempts=1)
    def order(ctx: Context) -> None:
        with by_driver(database) as (connection, execute):
            execute(ORDER)
            with pytest.raises(holdfast.BadInput, match=r"in a transaction.*begins one"):
                ctx.transaction("charge", connection).__enter__()
            connection.rollback()
        with pytest.raises(holdfast.BadInput, match="of psycopg, sqlite3"):
            ctx.transaction("charge", object()).__enter__()

    job = order.add()
    take(queue).run()
    assert (job.get().state, database.count()) == ("FINISHED", 0)
    queue.close()


@pytest.mark.parametrize("within", [by_driver, by_sqlalchemy])
def test_a_transaction_that_is_committed_in_the_block_is_named(tmp_path, within):
    """What it wrote is kept without its step; after a mere read of a session the step begins none."""
    database = Database(str(tmp_path / "a.db"), lambda: sqlite3.connect(tmp_path / "a.db"))
    queue = holdfast.connect(database.url)
    queue.counts()
    with database.connect() as own:
        own.execute(CREATE)

    @queue.task(attempts=1)
    def order(ctx: Context) -> None:
        with within(database) as (connection, execute):
            if within is by_sqlalchemy:
                execute("SELECT 1")
                with pytest.raises(holdfast.BadInput, match="Commit or roll back first"):
                    ctx.transaction("charge", connection).__enter__()
                connection.rollback()
            with ctx.transaction("charge", connection):
                execute(ORDER)
                connection.commit()

    job = order.add()
    take(queue).run()
    assert "committed or rolled back in the block', and must be left to ctx.transaction" in job.get().reason
    assert (database.count(), queue.timeline(job)) == (1, [])
    queue.close()


@asynccontextmanager
async def by_async_driver(database):
    """psycopg of asyncio, or aiosqlite."""
    if database.server is None:
        async with aiosqlite.connect(database.url) as connection:
            yield connection, connection.execute
        return
    async with await psycopg.AsyncConnection.connect(database.server.dsn) as connection:
        yield connection, connection.execute


@asynccontextmanager
async def by_async_sqlalchemy(database):
    """A session of asyncio."""
    engine = create_async_engine(alchemy(database, file_driver="aiosqlite"), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@asynccontextmanager
async def by_asyncpg(database):
    """asyncpg."""
    connection = await asyncpg.connect(**database.server.asyncpg)
    try:
        yield connection, connection.execute
    finally:
        await connection.close()


@pytest.mark.parametrize("within", [by_async_driver, by_async_sqlalchemy, by_asyncpg])
def test_the_same_with_asyncio(database, within):
    """A coroutine, on its own connection."""
    if within is by_asyncpg and database.server is None:
        pytest.skip("it is for PostgreSQL")

    async def story():
        async with holdfast.connect_async(database.url) as queue:

            @queue.task(backoff="0s")
            async def order(ctx: AsyncContext) -> Any:
                async with (
                    within(database) as (connection, execute),
                    ctx.transaction("charge", connection) as step,
                ):
                    if not step.done:
                        await execute(ORDER)
                        step.result = "paid"
                    if ctx.attempt == 1:
                        raise ValueError
                if ctx.attempt == 2:
                    raise ValueError
                return step.result

            job = await order.add()
            for _ in range(3):
                claimed = await queue.next(renew=False)
                assert claimed is not None
                await claimed.run()
            return await job.result()

    assert (asyncio.run(story()), database.count()) == ("paid", 1)
