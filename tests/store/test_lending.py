"""`connection=` over SQLite by SQLAlchemy and Django, which have the standard library's beneath."""

from contextlib import contextmanager

import pytest
import sqlalchemy
from django.db import transaction
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
