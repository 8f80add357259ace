"""Progress in a worker's own transaction, for asyncio: with each library's connections to PostgreSQL."""

import asyncio

import pytest

import holdfast
from holdfast.core.errors import Backwards, BadInput
from holdfast.indexed import AsyncConsumer, AsyncConsumerGroup, AsyncProgress
from tests.indexed.tools import PATIENCE_S, Numbers
from tests.postgres.test_lending import ASYNC, EACH, Undo, undone


@pytest.fixture
def output(postgres):
    """The caller's own table, empty; its rows."""
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE output (item int)")
        yield lambda: [row[0] for row in connection.execute("SELECT item FROM output ORDER BY item")]
        connection.execute("DROP TABLE output")


@pytest.fixture
def awaited(postgres_url):
    """Runs a coroutine function with a queue for asyncio."""

    def run(work):
        async def main():
            async with holdfast.connect_async(postgres_url) as queue:
                await asyncio.wait_for(work(queue), PATIENCE_S * 3)

        asyncio.run(main())

    return run


@EACH
def test_progress_moves_with_an_awaited_transaction(awaited, postgres, output, within):
    """Committed with what else is in it, or not at all."""

    async def work(queue):
        progress = AsyncProgress(queue, "c")
        await progress.initialize()
        with undone():
            async with within(postgres) as (connection, execute):
                await execute("INSERT INTO output VALUES (1)")
                assert await progress.move(1, connection=connection) == 1
                raise Undo
        assert await progress.processed() == 0
        async with within(postgres) as (connection, execute):
            await execute("INSERT INTO output VALUES (2)")
            await progress.move(2, connection=connection)
            assert await progress.processed() == 0
        assert await progress.processed() == 2

    awaited(work)
    assert output() == [2]


@EACH
def test_output_and_progress_are_one_awaited_transaction(awaited, postgres, output, within):
    """Committed together, and then believed; a group goes on with the next index only then."""

    async def work(queue):
        async def run(job):
            async with within(postgres) as (connection, execute):
                await execute(f"INSERT INTO output VALUES ({job.item})")
                assert await group.done(job.id, connection=connection) == job.index - 1

        group = AsyncConsumerGroup(Numbers(4), AsyncProgress(queue, "c"), run, max_ahead=1, max_processing=3)
        async with group:
            await group.drained()
        assert await AsyncProgress(queue, "c").processed() == group.processed == 4

    awaited(work)
    assert output() == [1, 2, 3, 4]


def test_an_awaited_transaction_that_was_rolled_back_is_not_believed(awaited, postgres, output):
    """Neither output nor progress is there, and the owner is told."""

    async def work(queue):
        async def run(job):
            try:
                async with ASYNC["psycopg"](postgres) as (connection, execute):
                    await execute(f"INSERT INTO output VALUES ({job.item})")
                    await group.done(job.id, connection=connection)
                    if job.index == 3:
                        raise Undo
            except Undo:
                pass

        group = AsyncConsumerGroup(Numbers(5), AsyncProgress(queue, "c"), run, max_ahead=1)
        await group.start()
        with pytest.raises(Backwards, match="not committed"):
            await group.closed()
        await group.stop()
        assert await AsyncProgress(queue, "c").processed() == group.processed == 2

    awaited(work)
    assert output() == [1, 2]


def test_a_plain_consumer_is_told_again_after_an_awaited_commit(awaited, postgres):
    """The first report moves nothing in memory, the second looks; with more in flight it is refused."""

    async def work(queue):
        given: asyncio.Queue[int] = asyncio.Queue()
        consumer: AsyncConsumer[int] = AsyncConsumer(
            Numbers(5), AsyncProgress(queue, "c"), lambda job: given.put_nowait(job.index), max_ahead=1
        )
        await consumer.start()
        assert await given.get() == 1
        async with ASYNC["asyncpg"](postgres) as (connection, _):
            assert await consumer.done("1", connection=connection) == 0
            assert await AsyncProgress(queue, "c").processed() == 0

        assert await consumer.done("1") == 1
        assert await given.get() == 2
        await consumer.stop()

        wide: AsyncConsumer[int] = AsyncConsumer(Numbers(5), AsyncProgress(queue, "d"), print, max_ahead=2)
        with pytest.raises(BadInput, match="max_ahead=1"):
            await wide.done("1", connection=object())

    awaited(work)
