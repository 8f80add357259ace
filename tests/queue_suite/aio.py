"""The queue for asyncio: the same promises, awaited. What `Queue` shows of the rules is not shown again."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.errors import BadInput, Closed, JobFailed, LeaseLost, NotFound, Refused, Timeout
from holdfast.core.job import State
from holdfast.queue import asks
from holdfast.queue.aio import AsyncClaimedJob, AsyncQueue
from holdfast.queue.answers import Failed, Retry
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import monotonic_s
from holdfast.testing.clock import MovedClock

from ..doubles import Gated, engines
from .fixtures import START_MS, MakeAsyncQueue
from .tools import HOUR_MS, LONG_S, MINUTE_MS, take

Story = Callable[[AsyncQueue], Awaitable[None]]


@pytest.fixture
def tell(make_async_queue: MakeAsyncQueue) -> Callable[[Story], None]:
    """Run a story on a queue for asyncio, which is closed afterwards."""

    async def run(story: Story) -> None:
        async with make_async_queue() as queue:
            await story(queue)

    return lambda story: asyncio.run(asyncio.wait_for(run(story), LONG_S))


Tell = Callable[[Story], None]


async def taken(queue: AsyncQueue, *tasks: str, **options: Any) -> AsyncClaimedJob:
    """Claim the next job, which must be there."""
    job = await queue.next(tasks or None, **{"renew": False, **options})
    assert job is not None
    return job


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_goes_its_way_in_asyncio(tell: Tell) -> None:
    """Added, claimed, told of, answered, and its result read."""

    async def story(queue: AsyncQueue) -> None:
        added = await queue.add("work", {"n": 1}, priority=900)
        assert ((await added.get()).priority, await queue.data(added)) == (900, {"n": 1})
        job = await taken(queue)
        await job.progress(0.5, "half")
        await job.update({"n": 2})
        await job.extend("2m")
        record = await queue.get(added)
        assert (record.state, record.lease_until) == (State.RUNNING, START_MS + 2 * MINUTE_MS)
        assert (await job.done("fine")).state == State.FINISHED
        assert await added.result() == "fine"
        assert await queue.counts() == {"work": {"FINISHED": 1}}

    tell(story)


def test_options_given_with_many_are_those_of_each_in_asyncio(tell: Tell) -> None:
    """Of prepared calls, and of a task's."""

    async def story(queue: AsyncQueue) -> None:
        @queue.task(priority=1)
        async def work(n: int) -> None: ...

        own = queue.call("work", {"n": 1}, priority=9)
        first, second = await queue.add_many([own, work.call(2)], domain="d", priority=7)
        (third,) = await work.add_many([(3,)], domain="d", priority=7)
        jobs = [await one.get() for one in (first, second, third)]
        assert [(job.domain, job.priority) for job in jobs] == [(b"d", 9), (b"d", 7), (b"d", 7)]

    tell(story)


def test_operators_have_their_verbs_in_asyncio(tell: Tell, clock: MovedClock) -> None:
    """Cancel, requeue, update, delete, why, jobs, purge."""

    async def story(queue: AsyncQueue) -> None:
        first, second, third = await queue.add_many([("work", n) for n in range(3)])
        assert (await queue.cancel(first)).state == State.CANCELLED
        await queue.update(second, priority=1)
        await queue.delete(third)
        assert "waits for a worker" in await queue.why(second)
        await (await taken(queue)).fail()
        assert (await queue.requeue(second)).state == State.QUEUED
        assert [job.id for job in await queue.jobs()] == [second.id]
        clock.advance(1)
        assert await queue.purge(before=clock() / 1_000) == 1

    tell(story)


def test_a_handle_has_the_methods_of_a_handle_in_asyncio(tell: Tell) -> None:
    """Handles of one job are equal."""

    async def story(queue: AsyncQueue) -> None:
        first = await queue.add("work", unique="a")
        again = await queue.add("work", unique="a")
        assert {first, again} == {first}
        assert (first.is_new, again.is_new) == (True, False)
        assert "waits for a worker" in await first.why()
        assert (await first.cancel(force=True)).state == State.CANCELLED

    tell(story)


def test_limits_pauses_and_schedules_hold_in_asyncio(tell: Tell, clock: MovedClock) -> None:
    """As they do for everybody."""

    async def story(queue: AsyncQueue) -> None:
        await queue.limit("api", concurrency=1)
        await queue.add_many([("work", n) for n in range(2)], domain="api")
        assert list(await queue.limits()) == [b"api"]
        assert len(await queue.claim(limit=2, renew=False)) == 1
        await queue.pause("mail")
        assert await queue.pauses() == [("", "mail", None)]
        await queue.add("mail")
        assert await queue.next(["mail"]) is None
        await queue.resume("mail")
        await (await taken(queue, "mail")).done()
        await queue.schedule("s", "tick", every="1m")
        clock.advance(MINUTE_MS)
        assert (await taken(queue, "tick")).record.schedule == "s"
        assert (await queue.pause_schedule("s")).paused
        run = await queue.run_schedule("s")
        assert (await taken(queue, "tick")).id == run.id
        assert await queue.workers() == []
        await queue.set_retention("2d")
        assert await queue.retention() == timedelta(days=2)
        await queue.unschedule("s")
        assert await queue.schedules() == []

    tell(story)


def test_a_family_grows_up_in_asyncio(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children, siblings, and what the parent sees of them."""

    async def story(queue: AsyncQueue) -> None:
        await queue.add("parent")
        parent = await taken(queue)
        child = await parent.add("child")
        await parent.done()
        job = await taken(queue, "child")
        sibling = await job.add("child", parent=parent)
        await job.done()
        await (await taken(queue, "child")).fail()
        again = await taken(queue, "parent")
        monkeypatch.setattr(asks, "PAGE_JOBS", 1)
        seen = {job.id: job.state for job in await again.children()}
        assert seen == {child.id: State.FINISHED, sibling.id: State.FAILED}
        await again.done()

    tell(story)


def test_answers_in_asyncio_are_the_four(tell: Tell) -> None:
    """Coroutines and plain functions alike: returned, Failed, Retry, and whatever else is raised."""

    async def story(queue: AsyncQueue) -> None:
        @queue.task()
        async def fine(n: int) -> int:
            await asyncio.sleep(0)
            return n + 1

        @queue.task()
        def failed() -> None:
            raise Failed("in vain")

        @queue.task()
        async def again() -> Retry:
            return Retry("1m", counts=False)

        @queue.task(attempts=1)
        async def broken() -> None:
            raise ZeroDivisionError("by zero")

        added = [
            await fine.add(1),
            await failed.add(),
            await again.using(priority=1).add(),
            await broken.add(),
        ]
        for job in await queue.claim(limit=4, renew=False):
            await job.run()
        assert await added[0].result() == 2
        for handle, reason in ((added[1], "in vain"), (added[3], "by zero")):
            with pytest.raises(JobFailed, match=reason):
                await handle.result()
        record = await added[2].get()
        assert (record.state, record.run_at, record.attempts) == (State.QUEUED, START_MS + MINUTE_MS, 0)

    tell(story)


def test_an_async_with_block_answers_for_its_job(tell: Tell) -> None:
    """Done at its end, ERROR when it raised, released when it was cancelled."""

    async def story(queue: AsyncQueue) -> None:
        await queue.add_many([("fine", 1), ("broken", 2), ("stopped", 3)])
        async with await taken(queue, "fine"):
            pass
        with pytest.raises(ZeroDivisionError):
            async with await taken(queue, "broken"):
                raise ZeroDivisionError
        with pytest.raises(asyncio.CancelledError):
            async with await taken(queue, "stopped"):
                raise asyncio.CancelledError
        states = {job.task: (job.state, job.attempts) for job in await queue.jobs()}
        assert states == {"broken": (State.QUEUED, 1), "stopped": (State.QUEUED, 0)}

    tell(story)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


def test_a_late_worker_is_refused_in_asyncio(tell: Tell, queue: Queue, clock: MovedClock) -> None:
    """Once another has its job."""

    async def story(theirs: AsyncQueue) -> None:
        await theirs.add("work")
        late = await taken(theirs, lease=1)
        clock.advance(1_000)
        job = take(queue)
        for say in (late.done, late.extend, late.release):
            with pytest.raises(LeaseLost):
                await say()
        assert late.lost
        job.done()

    tell(story)


def test_what_is_refused_is_refused_in_asyncio(tell: Tell) -> None:
    """By the same errors."""

    async def story(queue: AsyncQueue) -> None:
        with pytest.raises(BadInput, match="task"):
            await queue.add("")
        with pytest.raises(NotFound, match="12345"):
            await queue.get(12345)
        added = await queue.add("work")
        with pytest.raises(Timeout):
            await added.result(wait=0.01)
        job = await taken(queue)
        with pytest.raises(Refused, match="RUNNING"):
            await queue.delete(added)
        await job.done()
        with pytest.raises(Refused, match="answered already"):
            await job.done()

    tell(story)


def test_a_closed_queue_says_so_in_asyncio(make_async_queue: MakeAsyncQueue) -> None:
    """To every verb, and to those who wait."""

    async def story() -> None:
        queue = make_async_queue()
        waits = asyncio.ensure_future(queue.next(wait=LONG_S))
        await queue.add("work", delay=60)
        await queue.close()
        with pytest.raises(Closed):
            await waits
        with pytest.raises(Closed, match=r"holdfast\.connect"):
            await queue.add("work")
        await queue.close()

    asyncio.run(asyncio.wait_for(story(), LONG_S))


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────


def test_those_who_await_are_woken(tell: Tell, queue: Queue) -> None:
    """By an add and by an answer, of their own loop and of another queue."""

    async def story(theirs: AsyncQueue) -> None:
        began_s = monotonic_s()
        for add in (lambda: theirs.add("work"), lambda: asyncio.to_thread(queue.add, "work")):
            waits = asyncio.ensure_future(theirs.next(wait=LONG_S, renew=False))
            await asyncio.sleep(0)
            added = await add()
            job = await waits
            assert job is not None
            assert job.id == added.id
            result = asyncio.ensure_future(theirs.result(added.id, wait=LONG_S))
            await job.done(7)
            assert await result == 7
        assert monotonic_s() - began_s < LONG_S / 2

    tell(story)


def test_a_hundred_await_and_one_gets_the_job(tell: Tell) -> None:
    """Waiting costs nobody a thread."""

    async def story(queue: AsyncQueue) -> None:
        waits = [asyncio.ensure_future(queue.next(wait=LONG_S, renew=False)) for _ in range(100)]
        await asyncio.sleep(0)
        added = await queue.add("work")
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert [job.id for future in done if (job := future.result())] == [added.id]
        assert len(pending) == 99
        for future in pending:
            future.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    tell(story)


def test_the_job_of_a_waiter_who_was_cancelled_goes_back(tell: Tell) -> None:
    """Whether he was cancelled before or after it was claimed for him: the next one gets it."""

    async def story(queue: AsyncQueue) -> None:
        for _ in range(20):
            waits = asyncio.ensure_future(queue.next(wait=LONG_S))
            await asyncio.sleep(0)
            added = await queue.add("work")
            waits.cancel()
            found = (await asyncio.gather(waits, return_exceptions=True))[0]
            job = found if isinstance(found, AsyncClaimedJob) else await taken(queue, wait=LONG_S)
            assert job.id == added.id
            assert (job.record.attempts, job.record.losses) == (0, 0)
            await job.done()

    tell(story)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.one_shard
def test_what_was_claimed_for_a_waiter_who_is_gone_goes_back(tell: Tell, when: str) -> None:
    """He is cancelled just before the claim is committed, or just after: its lease is given up."""

    async def story(queue: AsyncQueue) -> None:
        added = await queue.add("work")
        inside, go, out = threading.Event(), threading.Event(), threading.Event()

        def hold() -> None:
            inside.set()
            go.wait(LONG_S)

        (engine,) = engines(queue)
        engine.store = Gated(engine.store, hold, out)
        waits = asyncio.ensure_future(queue.next(wait=LONG_S))
        await asyncio.to_thread(inside.wait, LONG_S)
        if when == "after":
            go.set()
            # Blocking the loop is the point: the answer is there, and has not been heard.
            out.wait(LONG_S)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        go.set()
        job = await taken(queue, wait=LONG_S)
        assert (job.id, job.claim, job.record.attempts, job.record.losses) == (added.id, 2, 0, 0)

    tell(story)


def test_a_call_that_was_cancelled_is_done_or_not(tell: Tell) -> None:
    """Nothing is half done, and the queue goes on."""

    async def story(queue: AsyncQueue) -> None:
        adding = asyncio.ensure_future(queue.add("work"))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        await queue.add("other")
        assert len(await queue.jobs()) in (1, 2)

    tell(story)


def test_both_kinds_of_queue_see_the_same_jobs(tell: Tell, queue: Queue, clock: MovedClock) -> None:
    """What one adds the other works."""
    added = queue.add("work", {"n": 1}, delay="1h")

    async def story(theirs: AsyncQueue) -> None:
        assert await theirs.next() is None
        clock.advance(HOUR_MS)
        await (await taken(theirs)).done(2)

    tell(story)

    assert added.result() == 2
