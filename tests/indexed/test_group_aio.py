"""Groups for asyncio: coroutines work off a source, fail, start again, and are cut short."""

import asyncio

import pytest

from holdfast.core.errors import NotFound
from holdfast.indexed import (
    LATER,
    AsyncConsumerGroup,
    AsyncLog,
    AsyncProgress,
    IndexedJob,
    Restart,
)
from tests.indexed.tools import PATIENCE_S, Numbers


def run_async(make_async_queue, scenario):
    """Run a coroutine with a queue for asyncio."""

    async def main():
        async with make_async_queue() as queue:
            await asyncio.wait_for(scenario(queue), PATIENCE_S)

    asyncio.run(main())


def test_coroutines_work_off_a_log(make_async_queue):
    """As many at once as allowed; each item once; progress behind."""
    seen, now, most = [], 0, 0

    async def run(job):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        seen.append(job.item)
        now -= 1

    async def scenario(queue):
        log = AsyncLog(queue, "l", int)
        await log.append_many(range(100))
        arrived = asyncio.Event()
        group = AsyncConsumerGroup(
            log,
            AsyncProgress(queue, "c"),
            run,
            max_processing=7,
            on_advance=lambda old, new: arrived.set() if new == 101 else None,
            poll="1h",
        )
        async with group:
            await log.append(100)
            await arrived.wait()
        assert await AsyncProgress(queue, "c").processed() == 101
        assert await log.trim() == 101
        with pytest.raises(NotFound):
            await log.at(102)

    run_async(make_async_queue, scenario)
    assert sorted(seen) == list(range(101))
    assert 1 < most <= 7


def test_a_coroutine_that_awaits_something_cancelled_starts_again(make_async_queue):
    """That is an error of its own; only the cancellation of its task is not."""
    runs = []

    async def run(job):
        runs.append(job.index)
        if len(runs) == 1:
            inner = asyncio.create_task(asyncio.Event().wait())
            inner.cancel()
            await inner

    async def scenario(queue):
        restart = Restart(1, delay="1ms")
        async with AsyncConsumerGroup(Numbers(2), AsyncProgress(queue, "c"), run, restart=restart) as group:
            await group.wait(until=2)
        assert group.restarts == 1

    run_async(make_async_queue, scenario)
    assert runs == [1, 1, 2]


def test_a_coroutine_that_raises_stops_its_group(make_async_queue):
    """And starts again where that is allowed."""
    runs = []

    async def run(job):
        runs.append(job.index)
        if len(runs) < 3:
            raise ConnectionError

    async def scenario(queue):
        failing = AsyncConsumerGroup(Numbers(1), AsyncProgress(queue, "c"), run)
        await failing.start()
        with pytest.raises(ConnectionError):
            await failing.closed()
        arrived = asyncio.Event()
        group = AsyncConsumerGroup(
            Numbers(1),
            AsyncProgress(queue, "c"),
            run,
            restart=Restart(5, delay="1ms"),
            on_advance=lambda *_: arrived.set(),
        )
        async with group:
            await arrived.wait()
        assert (group.processed, group.restarts) == (1, 1)

    run_async(make_async_queue, scenario)
    assert runs == [1, 1, 1]


def test_an_awaited_look_up_is_cancelled_when_the_consumer_stops(make_async_queue):
    """The group ends at once."""

    async def scenario(queue):
        asked, cancelled = asyncio.Event(), asyncio.Event()

        class Slow:
            async def head(self):
                return 2

            async def at(self, index):
                if index == 1:
                    return IndexedJob("1", 1)
                asked.set()
                try:
                    await asyncio.sleep(3600)
                finally:
                    cancelled.set()

        group: AsyncConsumerGroup[int] = AsyncConsumerGroup(
            Slow(), AsyncProgress(queue, "c"), lambda job: None, max_processing=2
        )
        starting = asyncio.ensure_future(group.start())
        await asked.wait()
        await group.stop()
        await starting
        await group.closed()
        assert cancelled.is_set()

    run_async(make_async_queue, scenario)


def test_a_coroutine_may_be_done_later(make_async_queue):
    """By the id that it had."""

    async def scenario(queue):
        ids: list[str] = []
        both = asyncio.Event()

        def run(job):
            ids.append(job.id)
            if len(ids) == 2:
                both.set()
            return LATER

        async with AsyncConsumerGroup(Numbers(2), AsyncProgress(queue, "c"), run, max_processing=2) as group:
            await both.wait()
            assert await group.done("2") == 0
            assert await group.done("1") == 2

    run_async(make_async_queue, scenario)
