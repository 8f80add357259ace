"""What is written past the engine into a PostgreSQL store that is moved: by SQL, by long transactions."""

from contextlib import ExitStack

import psycopg
import pytest

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import unpack
from holdfast.engine.migrate.move import StoreMove
from holdfast.queue.connect import store_maker
from holdfast.store.contract import JobFilter
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore


@pytest.fixture
def source(postgres_url):
    """The store that is moved, which does not wait for long."""
    store = PostgresStore(postgres_url, patience_s=1.5)
    yield store
    store.close()


@pytest.fixture
def target(tmp_path):
    """The file that it is moved to."""
    store = SqliteStore(tmp_path / "new.db")
    yield store
    store.close()


@pytest.fixture
def moves(source, target):
    """A move from the server to a file."""
    return StoreMove(source, target, here="here", there="there")


@pytest.fixture
def schema(postgres_url):
    """The name of its schema."""
    return postgres_url.rpartition("schema=")[2]


def test_what_sql_adds_is_refused_while_it_stands_still_and_afterwards(
    postgres, postgres_url, schema, moves, target
):
    """With the new address; before that it goes on, and comes along."""
    with holdfast.connect(postgres_url, follow=False) as queue:
        queue.add("first")
    with postgres.connect() as connection:
        moves.begin()
        connection.execute(f"SELECT {schema}.add('by SQL')")
        moves._walk()
        moves._stop()
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="try again in a moment"):
            connection.execute(f"SELECT {schema}.add('late')")
        moves._hand_over(moves._finish(deep=True))
        moves._open()
        with pytest.raises(
            psycopg.errors.ObjectNotInPrerequisiteState, match="this store has moved to there"
        ):
            connection.execute(f"SELECT {schema}.add('late')")

    jobs = target.read(lambda txn: txn.jobs(JobFilter(), after=0, limit=9))
    assert sorted(job.task for job in jobs) == ["by SQL", "first"]


def test_a_transaction_that_sees_the_store_as_it_was_adds_nothing_after_the_stop(
    postgres, postgres_url, schema, moves
):
    """By SQL or by `connection=`, at REPEATABLE READ: the notice it sees is not the one that stands there."""
    with holdfast.connect(postgres_url, follow=False) as queue:
        queue.add("first")
        with postgres.connect() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SELECT count(*) FROM {schema}.jobs")
            moves.begin()
            moves._stop()

            with pytest.raises(HoldfastError, match="roll it back"):
                queue.add("late", connection=connection)
            with pytest.raises(psycopg.errors.SerializationFailure):
                connection.execute(f"SELECT {schema}.add('late')")
            connection.execute("ROLLBACK")


def test_a_transaction_that_has_added_is_waited_for(postgres, postgres_url, moves, target):
    """What it added before the stop is accepted, so it must come along."""
    with holdfast.connect(postgres_url, follow=False) as queue, postgres.connect() as connection:
        moves.begin()
        with connection.transaction():
            added = queue.add("in time", connection=connection)
            with pytest.raises(HoldfastError):
                moves._stop()
        moves._stop()
        moves._finish(deep=True)

    assert target.read(lambda txn: txn.load([added.id]))


def test_ids_made_by_sql_begin_above_those_of_the_store_before(postgres, postgres_schemas, tmp_path):
    """Also where that one's clock was ahead."""
    with postgres_schemas.one() as one, postgres_schemas.one() as two:
        source, target = PostgresStore(postgres.url(one)), PostgresStore(postgres.url(two))
        with postgres.connect() as connection:
            with holdfast.connect(postgres.url(one)) as queue:
                queue.add("first")
            # An id of the source that is far ahead of the clock.
            ((first,),) = connection.execute(f"SELECT {one}.add('a') FROM generate_series(1, 1)").fetchall()
            StoreMove(source, target, here="one", there="two").run()
            ((second,),) = connection.execute(f"SELECT {two}.add('b') FROM generate_series(1, 1)").fetchall()
        source.close()
        target.close()

    assert unpack(second).time_ms >= unpack(first).time_ms + 50_000


def test_ids_made_by_sql_in_any_shard_begin_above_those_of_the_store_before(postgres, postgres_schemas):
    """Each shard has its own count of them."""
    with ExitStack() as taken, postgres.connect() as connection:
        one, *several = (taken.enter_context(postgres_schemas.one()) for _ in range(3))
        urls = [postgres.url(name) for name in several]
        with holdfast.connect(postgres.url(one)) as queue:
            queue.add("first")
        ((first,),) = connection.execute(f"SELECT {one}.add('a')").fetchall()
        source, target = PostgresStore(postgres.url(one)), store_maker(" ".join(urls), follow=False)()
        StoreMove(source, target, here="one", there="two").run()
        source.close()
        target.close()
        later = [connection.execute(f"SELECT {name}.add('b')").fetchall()[0][0] for name in several]

        assert [unpack(job_id).slot % 2 for job_id in later] == [0, 1]
        assert all(unpack(job_id).time_ms >= unpack(first).time_ms + 50_000 for job_id in later)
        with holdfast.connect(" ".join(urls)) as queue:
            assert len(queue.claim(limit=9, renew=False)) == 4
