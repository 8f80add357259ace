"""Two PostgreSQL servers as one queue; one of them is stopped, and started again."""

import asyncio

import psycopg
import pytest

import holdfast
from holdfast.core import ids
from holdfast.core.slots import shard_of
from holdfast.store.common.clock import monotonic_s
from tests.queue_suite.tools import take_all, until
from tests.servers import postgres_or_skip
from tests.sharded.places import all_up

# A server that is gone is known within the patience that shards have; claims go on at once after that. Each
# of these calls would wait for half a minute on a store that is no shard.
SOON_S = 25.0


@pytest.fixture
def servers():
    """Two servers of the test's own."""
    made = []
    try:
        made += [postgres_or_skip(), postgres_or_skip()]
        yield made
    finally:
        for server in made:
            server.close()


@pytest.mark.timeout(180)
def test_a_server_that_stops_holds_up_only_its_own_jobs_and_comes_back(servers):
    """Claims and adds go on with the other; what it had is there when it is back, and nothing twice."""
    url = " ".join(server.url() for server in servers)
    there, away = (next(f"d{n}" for n in range(99) if ids.slot_of("", f"d{n}") % 2 == at) for at in (0, 1))
    with holdfast.connect(url) as queue:
        stay = [queue.add("work", domain=there) for _ in range(5)]
        wait = [queue.add("work", domain=away) for _ in range(5)]
        servers[1].stop(immediately=True)

        began_s = monotonic_s()
        added = [queue.add("work") for _ in range(4)]
        with pytest.raises(holdfast.Unavailable, match="shard 1 of 2"):
            queue.get(wait[0])
        claimed = take_all(queue)
        for job in claimed:
            job.done()
        took_s = monotonic_s() - began_s

        assert {job.id for job in claimed} == {job.id for job in [*stay, *added]}
        assert {shard_of(job.id, 2) for job in added} == {0}
        assert took_s < SOON_S

        servers[1].start()
        until(lambda: all_up(queue))
        back = take_all(queue)
        for job in back:
            job.done()

        assert {job.id for job in back} == {job.id for job in wait}
        assert queue.counts() == {"work": {"FINISHED": 14}}


@pytest.mark.proof
def test_a_server_that_is_down_does_not_refuse_a_connection_to_another(servers):
    """It is told to one that leads to none of the others."""
    with (
        holdfast.connect(" ".join(server.url() for server in servers)) as queue,
        servers[1].connect() as connection,
        psycopg.connect(servers[1].dsn, dbname="template1") as elsewhere,
    ):
        queue.add("work")
        queue.counts()
        servers[0].stop(immediately=True)

        with connection.transaction():
            job = queue.add("work", connection=connection)
        with pytest.raises(holdfast.Unavailable, match=str(servers[0].port)):
            queue.add("work", connection=elsewhere)

        assert shard_of(job.id, 2) == 1
        assert queue.get(job).task == "work"


def test_a_job_added_in_sql_lives_where_it_was_added(postgres_schemas):
    """Its number says so, and no two shards make the same one."""
    server = postgres_schemas.server
    with postgres_schemas.one() as one, postgres_schemas.one() as two:
        schemas = (one, two)
        with holdfast.connect(" ".join(map(server.url, schemas))) as queue, server.connect() as connection:
            queue.add_many([("work", n) for n in range(3)])
            queue.add("work")
            added = [
                connection.execute(f"SELECT {schema}.add('work')").fetchone()
                for schema in schemas
                for _ in range(5)
            ]

            ids_made = [int(str(row[0])) for row in added if row is not None]
            assert [shard_of(job_id, 2) for job_id in ids_made] == [0] * 5 + [1] * 5
            assert len({queue.get(job_id).id for job_id in ids_made}) == 10
            for job in take_all(queue):
                job.done()
            assert queue.counts() == {"work": {"FINISHED": 14}}


def test_a_job_is_added_and_finished_in_a_transaction_of_ones_own(postgres_schemas):
    """On the shard that the connection leads to; what belongs to another is refused."""
    server = postgres_schemas.server
    with postgres_schemas.one() as one, postgres_schemas.one() as two:
        domains = [next(f"d{n}" for n in range(99) if ids.slot_of("", f"d{n}") % 2 == at) for at in (0, 1)]
        with (
            holdfast.connect(f"{server.url(one)} {server.url(two)}") as queue,
            server.connect() as connection,
        ):
            queue.counts()
            with connection.transaction():
                job = queue.add("work", connection=connection)
                with pytest.raises(holdfast.BadInput, match="domain"):
                    queue.add("work", domain=domains[1 - shard_of(job.id, 2)], connection=connection)

            claimed = queue.next(wait=60)
            assert claimed is not None
            with connection.transaction():
                claimed.done(connection=connection)

            assert queue.get(job).state == "FINISHED"


def test_a_job_is_added_and_finished_in_an_awaited_transaction(postgres_schemas):
    """As in one of a thread; one that is in no transaction, or leads nowhere, is told as on one store."""
    server = postgres_schemas.server

    async def work(url):
        async with (
            holdfast.connect_async(url) as queue,
            await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection,
        ):
            await queue.counts()
            with pytest.raises(holdfast.BadInput, match="AsyncConnection"):
                await queue.add("work", connection=object())
            async with connection.transaction():
                job = await queue.add("work", connection=connection)
            claimed = await queue.next(wait=60)
            assert claimed is not None
            async with connection.transaction():
                await claimed.done(connection=connection)
            return (await queue.get(job)).state

    with postgres_schemas.one() as one, postgres_schemas.one() as two:
        assert asyncio.run(work(f"{server.url(one)} {server.url(two)}")) == "FINISHED"
