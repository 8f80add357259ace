"""`connection=` in `in_memory`: jobs come with the commit of a transaction on any database."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Annotated

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, StaticPool

import holdfast
from holdfast import testing
from holdfast.store.postgres.borrow import borrowed as borrowed_of_postgres

CREATE, INSERT = "CREATE TABLE orders (id INTEGER PRIMARY KEY)", "INSERT INTO orders VALUES (1)"
queue = holdfast.connect("postgresql://nowhere.invalid/shop")
sent: list[int] = []


class Undo(Exception):
    """Rolls back whatever it is raised in."""


@queue.task
def receipt(order: int) -> None:
    """What the applications of these tests add."""
    sent.append(order)


@pytest.fixture(autouse=True)
def clock():
    """The queue is in memory, and nothing was sent."""
    sent.clear()
    with testing.in_memory(queue) as clock:
        yield clock


def added():
    """The jobs that are there for everybody."""
    return [job.data["order"] for job in testing.added(queue, receipt)]


# ── an application ───────────────────────────────────────────────────────────────────────────────


def shop(session_of_test):
    """An application that saves an order and adds its job in one transaction, then refuses some."""
    app = FastAPI()

    @app.post("/orders/{order}")
    def create(order: int, session: Annotated[Session, Depends(session_of_test)]) -> None:
        session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:id)"), {"id": order})
        receipt.using(connection=session).add(order)
        if order > 100:
            raise HTTPException(422)
        session.commit()

    return TestClient(app)


def check_shop(client):
    """Orders that are kept have their jobs, and those that are not have none."""
    for order, status in ((1, 200), (101, 422), (2, 200)):
        assert client.post(f"/orders/{order}").status_code == status
    assert added() == [1, 2]
    assert [run.state for run in testing.run_due(queue)] == ["FINISHED", "FINISHED"]
    assert sent == [1, 2]


def test_an_endpoint_with_a_database_in_memory():
    """One connection for all threads, as FastAPI's own pages have it."""
    engine = sqlalchemy.create_engine(
        "sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool
    )
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(CREATE))

    def session():
        with Session(engine) as session:
            yield session

    check_shop(shop(session))
    engine.dispose()


def test_an_endpoint_within_a_transaction_that_the_test_rolls_back(postgres):
    """What the application commits is a savepoint."""
    engine = sqlalchemy.create_engine(postgres.sqlalchemy_url("psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        outer = connection.begin()
        connection.execute(sqlalchemy.text(CREATE.replace("TABLE", "TEMP TABLE")))

        def session():
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                yield session

        check_shop(shop(session))
        outer.rollback()


# ── each library ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def by_sqlite3(path):
    """A connection to a file, which is closed after each transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        try:
            yield connection, connection.execute
        except Undo:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


in_memory = sqlite3.connect(":memory:", check_same_thread=False)


@pytest.fixture(autouse=True, scope="module")
def closed():
    """Python 3.13 warns of one that nobody closes."""
    yield
    in_memory.close()


@contextmanager
def by_sqlite3_in_memory(path):
    """The one connection to a database in memory."""
    with in_memory:
        in_memory.execute("BEGIN")
        yield in_memory, in_memory.execute


@contextmanager
def by_psycopg(path, postgres):
    """A connection that is closed after each transaction."""
    with psycopg.connect(postgres.dsn) as connection, connection.transaction():
        yield connection, connection.execute


@contextmanager
def by_session(path):
    """SQLAlchemy's."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@contextmanager
def by_connection(path):
    """SQLAlchemy's without objects."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.begin() as connection:
        yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))


@pytest.mark.parametrize("way", [by_sqlite3, by_sqlite3_in_memory, by_psycopg, by_session, by_connection])
def test_a_job_comes_with_its_transaction(tmp_path, request, way):
    """And not before, nor with a savepoint that is rolled back; a key is taken within it."""
    more = [request.getfixturevalue("postgres")] if way is by_psycopg else []

    def within():
        return way(tmp_path / "shop.db", *more)

    with suppress(Undo), within() as (connection, _):
        receipt.using(connection=connection, unique="key").add(1)
        raise Undo
    with within() as (connection, execute):
        first = receipt.using(connection=connection, unique="key").add(2)
        assert receipt.using(connection=connection, unique="key").add(3) == first
        execute("SAVEPOINT here") if way is not by_session else connection.begin_nested()
        receipt.using(connection=connection, unique="other").add(4)
        execute(
            "ROLLBACK TO here"
        ) if way is not by_session else connection.get_nested_transaction().rollback()
        receipt.using(connection=connection, unique="other").add(5)
        assert added() == []
    assert added() == [2, 5]

    (job, _) = queue.claim(limit=2)
    with suppress(Undo), within() as (connection, _):
        job.done(connection=connection)
        raise Undo
    assert queue.get(first).state == "RUNNING"
    with within() as (connection, _):
        job.done(connection=connection)
    assert queue.get(first).state == "FINISHED"


def test_a_connection_without_a_transaction_is_refused_as_elsewhere(tmp_path, postgres):
    """Or adds at once in autocommit; what is no connection is refused by name."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db", poolclass=NullPool)
    with (
        closing(sqlite3.connect(tmp_path / "shop.db")) as plain,
        psycopg.connect(postgres.dsn) as other,
        Session(engine) as session,
    ):
        for connection in (plain, other, session):
            with pytest.raises(holdfast.BadInput, match="not in a transaction"):
                receipt.using(connection=connection).add(1)
        plain.isolation_level, other.autocommit = None, True
        for connection in (plain, other):
            receipt.using(connection=connection).add(2)
    with pytest.raises(
        holdfast.BadInput, match=r"connection is 'a builtins\.object', and must be one of SQLA"
    ):
        receipt.using(connection=object()).add(3)
    with pytest.raises(holdfast.BadInput, match=r"base\.Engine', and must be a Session or Connection"):
        receipt.using(connection=engine).add(3)
    with (
        Session(engine) as session,
        session.begin(),
        pytest.raises(holdfast.BadInput, match=r"session\.Session on a sqlite3\.Connection', and must"),
    ):
        borrowed_of_postgres(session)

    assert added() == [2, 2]


# ── for asyncio ──────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def by_aiosqlite(path):
    """aiosqlite's own."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute("BEGIN")
        try:
            yield connection
        except Undo:
            await connection.rollback()
            raise
        await connection.commit()


@asynccontextmanager
async def by_async_psycopg(path, postgres):
    """psycopg's."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def by_async_session(path, postgres):
    """SQLAlchemy's, over asyncpg."""
    engine = create_async_engine(postgres.sqlalchemy_url("asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@pytest.mark.parametrize("way", [by_aiosqlite, by_async_psycopg, by_async_session])
def test_a_job_comes_with_its_awaited_transaction(tmp_path, request, way):
    """In a queue of `connect_async`."""
    more = [request.getfixturevalue("postgres")] if way is not by_aiosqlite else []

    async def main():
        aio = holdfast.connect_async("postgresql://nowhere.invalid/shop")
        with testing.in_memory(aio):
            with suppress(Undo):
                async with way(tmp_path / "shop.db", *more) as connection:
                    await aio.add("lost", connection=connection)
                    raise Undo
            async with way(tmp_path / "shop.db", *more) as connection:
                await aio.add("kept", connection=connection)
                assert await aio.jobs() == []
                assert testing.added(aio) == []
            testing.assert_added(aio, "kept")
            return [job.task for job in await aio.jobs()]

    assert asyncio.run(main()) == ["kept"]


def test_a_waiting_worker_gets_what_is_committed():
    """Although nothing tells it of the commit."""
    aio = holdfast.connect_async("jobs.db")

    async def main():
        with testing.in_memory(aio):
            engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
            waiting = asyncio.create_task(aio.next(["work"], wait=60, renew=False))
            async with AsyncSession(engine) as session, session.begin():
                await aio.add("work", connection=session)
                await asyncio.sleep(0)
            job = await waiting
            await engine.dispose()
            return job and job.task

    assert asyncio.run(main()) == "work"
