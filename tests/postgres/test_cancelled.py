"""Callers of `connection=` that are cancelled: their connection is theirs again, and nothing is left."""

import asyncio

import psycopg
import pytest

import holdfast
from holdfast.store.postgres.locks import lock_number
from tests.queue_suite.tools import until

# In this database: other test processes have theirs on the same server.
WAITING = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def test_a_caller_who_is_cancelled_again_and_again_leaves_no_job(postgres_url, postgres, schema):
    """As anyio does: nothing is written on the connection after its transaction was rolled back."""

    async def work():
        async with (
            holdfast.connect_async(postgres_url) as aio,
            await psycopg.AsyncConnection.connect(postgres.dsn, autocommit=True) as connection,
        ):
            await aio.add("first")

            async def add():
                async with connection.transaction():
                    await aio.add("work", connection=connection)

            with postgres.connect() as other, other.transaction():
                other.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(schema, "notice"),))
                adding = asyncio.create_task(add())
                await asyncio.to_thread(until, lambda: other.execute(WAITING).fetchone() != (0,))
                for _ in range(3):
                    adding.cancel()
                    await asyncio.sleep(0.01)
            with pytest.raises(asyncio.CancelledError):
                await adding
            # What another thread sends to the connection comes before this.
            await connection.execute("SELECT 1")
            return await aio.counts()

    assert asyncio.run(work()) == {"first": {"QUEUED": 1}}
