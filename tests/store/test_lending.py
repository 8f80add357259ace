"""`connection=` over SQLite by SQLAlchemy, Django and aiosqlite, which all have `sqlite3` beneath."""

import asyncio
from contextlib import asynccontextmanager, contextmanager, suppress

import aiosqlite
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import holdfast
from tests.projects import django_connection, run_in
from tests.queue_suite.tools import take

ORDER = "INSERT INTO orders VALUES (1)"


class Undo(Exception):
    """Rolls back whatever it is raised in."""


@pytest.fixture
def path(tmp_path):
    """The file that the queue and its caller share."""
    return tmp_path / "app.db"


@pytest.fixture
def queue(path):
    """A queue on it, by the library that the others use."""
    with holdfast.connect(str(path)) as queue:
        queue.counts()
        yield queue


@contextmanager
def by_session(path):
    """SQLAlchemy's."""
    with Session(engine(path)) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@contextmanager
def by_connection(path):
    """The same without objects."""
    with engine(path).begin() as connection:
        yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))


def engine(path):
    """Nothing stays open."""
    return sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)


@contextmanager
def by_django(path):
    """Django's, in `atomic`."""
    with django_of(path) as connection, transaction.atomic(using="ours"):
        yield connection, lambda sql: run_in(connection, sql)


def django_of(path):
    """Django's connection to a file."""
    return django_connection(ENGINE="django.db.backends.sqlite3", NAME=str(path))


@pytest.mark.parametrize("within", [by_session, by_connection, by_django])
def test_a_job_comes_and_goes_with_the_callers_transaction(queue, path, within):
    """Added and finished, or neither."""
    with within(path) as (_, execute):
        execute("CREATE TABLE orders (id int)")
    with pytest.raises(Undo), within(path) as (connection, execute):
        _added_and_undone(queue, connection, execute)
    with within(path) as (connection, _):
        queue.add("alone", connection=connection)
    with within(path) as (connection, execute):
        execute(ORDER)
        queue.add("kept", connection=connection)
    assert [job.task for job in queue.jobs()] == ["alone", "kept"]

    job = take(queue, "kept")
    with within(path) as (connection, execute):
        execute(ORDER)
        job.done("well", connection=connection)
    assert queue.result(job.id) == "well"


def _added_and_undone(queue, connection, execute):
    execute(ORDER)
    queue.add("lost", connection=connection)
    raise Undo


def test_outside_a_transaction_a_connection_is_in_autocommit_or_refused(queue, path):
    """SQLAlchemy by a level, Django by default; a refusal begins nothing."""
    with Session(engine(path)) as session, engine(path).connect() as connection, django_of(path) as wrapped:
        for each in (session, connection):
            with pytest.raises(holdfast.BadInput, match=r"not in a transaction.*begin"):
                queue.add("work", connection=each)
            assert not each.in_transaction()
        queue.add("by django", connection=wrapped)
        connection.execution_options(isolation_level="AUTOCOMMIT")
        queue.add("by sqlalchemy", connection=connection)
        connection.rollback()

    assert [job.task for job in queue.jobs()] == ["by django", "by sqlalchemy"]


def test_a_session_that_has_failed_is_told_to_be_rolled_back(queue, path):
    """SQLAlchemy refuses every use of it."""
    key = sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True)
    thing = type("Thing", (), {})
    orm.registry().map_imperatively(thing, sqlalchemy.Table("things", sqlalchemy.MetaData(), key))
    with Session(engine(path)) as session:
        session.add(thing())
        with pytest.raises(sqlalchemy.exc.OperationalError, match="no such table"):
            session.flush()

        with pytest.raises(holdfast.BadInput, match="has failed', and must be rolled back"):
            queue.add("work", connection=session)
        session.rollback()
        with session.begin():
            queue.add("work", connection=session)

    assert len(queue.jobs()) == 1


# ── for asyncio ──────────────────────────────────────────────────────────────────────────────────


def dict_of(_cursor, row):
    """A row as some programs have theirs."""
    return {"row": row}


@asynccontextmanager
async def by_aiosqlite(path):
    """aiosqlite's own, whose rows its caller gets as something else than tuples."""
    async with aiosqlite.connect(path) as connection:
        connection.row_factory = dict_of  # type: ignore[assignment]
        await connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection, connection.execute
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()


@asynccontextmanager
async def by_async_session(path):
    """SQLAlchemy's."""
    async with AsyncSession(async_engine(path)) as session, session.begin():
        yield session, lambda sql: session.execute(sqlalchemy.text(sql))


@asynccontextmanager
async def by_async_connection(path):
    """The same without objects."""
    async with async_engine(path).begin() as connection:
        yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))


def async_engine(path):
    """Nothing stays open."""
    return create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)


@pytest.mark.parametrize("within", [by_aiosqlite, by_async_session, by_async_connection])
def test_a_job_comes_and_goes_with_an_awaited_transaction(queue, path, within):
    """Added, by a task and with a key, and finished; or neither."""
    queue.add("first")

    async def work(aio):
        @aio.task
        async def ship(order: int) -> None: ...

        async with within(path) as (_, execute):
            await execute("CREATE TABLE orders (id int)")
        with suppress(Undo):
            async with within(path) as (connection, execute):
                await execute(ORDER)
                await aio.add("lost", connection=connection)
                raise Undo
        async with within(path) as (connection, execute):
            await ship.using(connection=connection, unique="one").add(1)
            await ship.using(connection=connection, unique="one").add(1)
            await execute(ORDER)
            assert len(await aio.jobs()) == 1
        job = await aio.next(["first"], wait=60)
        async with within(path) as (connection, _):
            await job.done("well", connection=connection)
        return job.id

    assert queue.result(run(path, work)) == "well"
    assert [(job.task, job.unique) for job in queue.jobs()] == [("ship", b"one")]


def run(path, work):
    """Run a coroutine function with a queue for asyncio."""

    async def main():
        async with holdfast.connect_async(str(path)) as aio:
            return await work(aio)

    return asyncio.run(main())


def test_an_awaited_connection_outside_a_transaction_is_in_autocommit_or_refused(queue, path):
    """As one for threads is, which itself is refused with the queue that takes it."""

    async def work(aio):
        async with aiosqlite.connect(path) as connection, AsyncSession(async_engine(path)) as session:
            for each in (connection, session):
                with pytest.raises(holdfast.BadInput, match=r"not in a transaction.*begin|BEGIN"):
                    await aio.add("work", connection=each)
            with pytest.raises(holdfast.BadInput, match=r"aiosqlite.*connect_async"):
                queue.add("work", connection=connection)
        with pytest.raises(holdfast.BadInput, match="closed"):
            await aio.add("work", connection=connection)
        with (
            Session(engine(path)) as plain,
            pytest.raises(holdfast.BadInput, match=r"Session.*holdfast\.connect"),
        ):
            await aio.add("work", connection=plain)
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            await aio.add("at once", connection=connection)

    run(path, work)

    assert [job.task for job in queue.jobs()] == ["at once"]
