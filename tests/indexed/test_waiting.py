"""Waiting for a group: until P is somewhere, until all that there is has been processed."""

import asyncio
import threading

import pytest

from holdfast.core.errors import BadInput, Closed
from holdfast.indexed import (
    LATER,
    AsyncConsumerGroup,
    AsyncLog,
    AsyncProgress,
    ConsumerGroup,
    Log,
    Progress,
    Restart,
    set_by_hand,
)
from tests.indexed.test_group_aio import run_async
from tests.indexed.tools import PATIENCE_S, Hands, Numbers


def test_waiting_until_an_index_is_processed(queue):
    """Already there, or reached later; P is stored and told by then."""
    told = []
    group = ConsumerGroup(
        Numbers(5), Progress(queue, "c"), lambda job: None, on_advance=lambda *to: told.append(to)
    )
    assert group.wait(until=0)
    with group:
        assert group.wait(until=3, timeout=PATIENCE_S)
        assert Progress(queue, "c").processed() >= 3
        assert group.wait(until=5, timeout=PATIENCE_S)

        assert told[-1][1] == group.processed == 5
        assert group.wait(until=2)
    assert group.wait(until=5)


def test_waiting_has_an_end(queue):
    """False when the time is up; others who wait for the same index go on waiting."""
    hands = Hands()

    def run(job):
        hands(job)
        return LATER

    with ConsumerGroup(Numbers(1), Progress(queue, "c"), run) as group:
        assert hands.got([1])
        drained = group.drained()

        assert not group.wait(until=1, timeout=0)
        assert not drained.wait(0)

        assert group.done("1") == 1
        assert drained.wait(PATIENCE_S)
        assert group.wait(until=1, timeout=PATIENCE_S)


def test_what_ends_a_group_is_raised_to_those_who_wait(queue):
    """Whether they waited before or come after."""
    go = threading.Event()

    def run(job):
        go.wait(PATIENCE_S)
        if job.index == 2:
            raise ZeroDivisionError

    group = ConsumerGroup(Numbers(5), Progress(queue, "c"), run)
    group.start()
    drained = group.drained()
    go.set()

    with pytest.raises(ZeroDivisionError):
        drained.wait(PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        group.wait(until=4)
    assert group.wait(until=1)
    group.stop()


def test_a_group_that_is_stopped_before_is_closed_to_those_who_wait(queue):
    """With how far it came."""
    group = ConsumerGroup(Numbers(3), Progress(queue, "c"), lambda job: None)
    with group:
        assert group.drained().wait(PATIENCE_S)
        later = threading.Thread(target=lambda: group.stop(wait=False))
        later.start()

        with pytest.raises(Closed, match=r"consumer c was stopped at 3, before it reached 7"):
            group.wait(until=7, timeout=PATIENCE_S)
        later.join()


def test_a_group_that_starts_again_goes_on_being_waited_for(queue):
    """From where it then begins, even where it was set there by hand."""
    failed: list[int] = []

    def run(job):
        if not failed:
            failed.append(job.index)
            set_by_hand(queue, "c", 8)
            raise ConnectionError

    with ConsumerGroup(Numbers(9), Progress(queue, "c"), run, restart=Restart(1, delay="1ms")) as group:
        assert group.wait(until=8, timeout=PATIENCE_S)
        assert group.drained().wait(PATIENCE_S)

    assert group.processed == 9


def test_drained_is_about_what_there_is_now(queue):
    """An empty source is; what comes later is another's to wait for."""
    log, hands = Log(queue, "l", int), Hands()

    def run(job):
        hands(job)
        return LATER if job.item == 3 else None

    with ConsumerGroup(log, Progress(queue, "c"), run) as group:
        assert group.drained().wait(PATIENCE_S)
        log.append_many([1, 2])
        first = group.drained()
        log.append(3)
        second = group.drained()

        assert first.wait(PATIENCE_S)
        assert group.wait(until=2, timeout=PATIENCE_S)
        assert hands.got([1, 2, 3])
        assert not second.is_set()

        assert group.done("#3") == 3
        assert second.wait(PATIENCE_S)


@pytest.mark.parametrize("index", [-1, 1 << 63, True, "5", None])
def test_what_is_no_index_is_not_waited_for(queue, index):
    """It would never come."""
    with pytest.raises(BadInput, match="until"):
        ConsumerGroup(Numbers(1), Progress(queue, "c"), Hands()).wait(until=index)


def test_a_coroutine_waits_for_a_group(make_async_queue):
    """Until an index, until all is processed; what ends the group is raised."""

    async def scenario(queue):
        log, go = AsyncLog(queue, "l", int), asyncio.Event()
        await log.append_many([1, 2, 3])

        async def run(job):
            if job.item == 3:
                await go.wait()
            if job.item == 4:
                raise ZeroDivisionError

        group = AsyncConsumerGroup(log, AsyncProgress(queue, "c"), run)
        before = asyncio.ensure_future(group.wait(until=2))
        await group.start()
        await before
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(group.drained(), 0.01)
        go.set()
        await group.drained()
        assert group.processed == await AsyncProgress(queue, "c").processed() == 3

        await log.append(4)
        with pytest.raises(ZeroDivisionError):
            await group.drained()
        await group.stop()
        stopped: AsyncConsumerGroup[int] = AsyncConsumerGroup(
            log, AsyncProgress(queue, "c"), lambda job: LATER
        )
        await stopped.start()
        waiting = asyncio.ensure_future(stopped.wait(until=4))
        await asyncio.sleep(0)
        await stopped.stop()
        with pytest.raises(Closed, match="stopped at 3"):
            await waiting
        with pytest.raises(BadInput, match="until"):
            await stopped.wait(until=-1)

    run_async(make_async_queue, scenario)
