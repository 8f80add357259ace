"""What handlers see: the context and its logs."""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.errors import BadInput, LeaseLost
from holdfast.core.job import State
from holdfast.queue.answers import Retry
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeAsyncQueue
from .tools import MINUTE_MS, take

PATIENCE_S = 60


def texts(queue: Queue, job: Any) -> list[str]:
    """The lines of a job's log."""
    return [line.text for line in queue.log(job)]


# ── the context ──────────────────────────────────────────────────────────────────────────────────


def test_a_context_is_given_and_is_no_part_of_the_job(queue: Queue) -> None:
    """Wherever it stands and whatever it is called; `add` takes the other arguments alone."""

    @queue.task
    def first(ctx: Context, name: str) -> Any:
        return [name, ctx.job_id, ctx.claim, ctx.attempt]

    @queue.task
    def last(name: str, *, told: "Context", more: int = 2) -> Any:
        return [name, more, told.job_id]

    one, two = first.add("a"), last.add("b", more=3)  # type: ignore[call-overload]
    for _ in range(2):
        take(queue).run()

    assert (queue.data(one), queue.data(two)) == ({"name": "a"}, {"name": "b", "more": 3})
    assert one.result() == ["a", one.id, 1, 1]
    assert two.result() == ["b", 3, two.id]
    with pytest.raises(BadInput, match="argument of task last"):
        last.add("b", told=None)  # type: ignore[call-overload]


def test_a_context_that_does_not_fit_its_function_is_refused_at_the_decorator(queue: Queue) -> None:
    """It would block the loop, or could not be awaited; and two are one too many."""

    async def blocking(ctx: Context) -> None:
        """Nothing."""

    def awaiting(ctx: AsyncContext) -> None:
        """Nothing."""

    def two(ctx: Context, other: Context) -> None:
        """Nothing."""

    for function, needed in ((blocking, "one AsyncContext"), (awaiting, "one Context"), (two, "one")):
        with pytest.raises(BadInput, match=f"context of task {function.__name__}.*{needed}"):
            queue.task(function)


def test_a_context_tells_the_deadline_of_a_job_that_has_one(queue: Queue) -> None:
    """From the start of the run, by the store's clock."""

    @queue.task
    def timed(ctx: Context) -> bool:
        return ctx.deadline == datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(minutes=2)

    @queue.task
    def untimed(ctx: Context) -> bool:
        return ctx.deadline is None

    jobs = [timed.using(timeout="2m").add(), untimed.add()]
    for _ in jobs:
        take(queue).run()

    assert [job.result() for job in jobs] == [True, True]


def test_children_are_added_by_the_context_and_seen_by_the_next_run(queue: Queue) -> None:
    """The parent runs again when they have ended."""

    @queue.task
    def child(n: int) -> int:
        return n

    @queue.task
    def parent(ctx: Context) -> int:
        children = ctx.children()
        if not children:
            assert isinstance(ctx.add("child", {"n": 1}), int)
            ctx.add(child.call(2))
        return len(children)

    added = parent.add()
    while job := queue.next():
        job.run()

    assert added.result() == 2


def test_a_context_whose_claim_is_lost_is_refused_and_says_so(queue: Queue) -> None:
    """Progress, steps and children alike; the second run stands."""
    seen: list[Any] = []

    @queue.task
    def late(ctx: Context) -> None:
        queue.cancel(ctx.job_id, force=True)
        verbs: list[Callable[[], Any]] = [
            lambda: ctx.progress(0.5),
            lambda: ctx.step("a", int),
            lambda: ctx.add("late"),
        ]
        for verb in verbs:
            with pytest.raises(LeaseLost):
                verb()
        seen.append(ctx.cancelled)

    late.add()
    with pytest.raises(LeaseLost):
        take(queue).run()

    assert seen == [True]


def test_cancelling_a_job_reaches_the_handler_that_runs_it(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before its lease is renewed; its end is logged as that of a cancelled job."""
    caplog.set_level(logging.INFO, "holdfast.job")
    running = threading.Event()

    @queue.task
    def patient(ctx: Context) -> str:
        running.set()
        waited = threading.Event()
        while not ctx.cancelled:
            assert not waited.wait(0.01)
        raise Retry

    job = patient.add()
    claimed = take(queue, lease="10m")
    runner = threading.Thread(target=claimed.run)
    runner.start()
    assert running.wait(PATIENCE_S)

    queue.cancel(job)
    runner.join(PATIENCE_S)

    assert job.get().state == State.CANCELLED
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["cancelled"]


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_stays_with_its_job(queue: Queue, clock: MovedClock) -> None:
    """Of all its runs, also when it has ended; nothing said before the end is lost."""

    @queue.task(backoff="1s")
    def talks(ctx: Context) -> None:
        ctx.log(f"run {ctx.attempt}\nof two")
        if ctx.attempt == 1:
            raise ValueError

    job = talks.add()
    take(queue).run()
    clock.advance(MINUTE_MS)
    take(queue).run()

    assert texts(queue, job) == ["run 1", "of two", "run 2", "of two"]
    assert [(line.at, line.claim) for line in queue.log(job)][::3] == [
        (START_MS, 1),
        (START_MS + MINUTE_MS, 2),
    ]
    assert (job.get().state, job.get().log_lines) == (State.FINISHED, 4)


def test_lines_are_seen_while_the_job_runs(queue: Queue) -> None:
    """Within about half a second, without another word."""
    seen = threading.Event()

    @queue.task
    def talks(ctx: Context) -> None:
        ctx.log("begun")
        assert seen.wait(PATIENCE_S)

    job = talks.add()
    claimed = take(queue)
    runner = threading.Thread(target=claimed.run)
    runner.start()
    waited = threading.Event()
    while texts(queue, job) != ["begun"]:
        assert not waited.wait(0.01)
    seen.set()
    runner.join(PATIENCE_S)

    assert texts(queue, job) == ["begun"]


def test_a_flood_of_lines_is_cut_from_the_front(queue: Queue) -> None:
    """What is kept are the last ones, in order."""

    @queue.task
    def floods(ctx: Context) -> None:
        for n in range(2_345):
            ctx.log(str(n))

    job = floods.add()
    take(queue).run()

    assert texts(queue, job) == [str(n) for n in range(1_345, 2_345)]
    assert job.get().log_lines == 2_345


# ── coroutines ───────────────────────────────────────────────────────────────────────────────────


def test_a_coroutine_has_the_same_context_to_await(queue: Queue, clock: MovedClock) -> None:
    """Also where the queue is not one for asyncio."""
    calls: list[str] = []

    @queue.task
    def child() -> None:
        """Nothing."""

    @queue.task(backoff="1s")
    async def run(ctx: AsyncContext, name: str) -> Any:
        async def slow() -> tuple[int, ...]:
            calls.append("slow")
            return (1, 2)

        await ctx.progress(0.5, "half")
        ctx.log(name)
        found = [await ctx.step("slow", slow), await ctx.step("plain", name.upper)]
        if ctx.attempt == 1:
            raise ValueError
        if not await ctx.children():
            await ctx.add(child)
        return [*found, ctx.claim]

    job = run.add("x")
    while claimed := queue.next(until_empty=False) or _later(queue, clock):
        claimed.run()

    assert calls == ["slow"]
    assert job.result() == [[1, 2], "X", 3]
    assert texts(queue, job) == ["x", "x", "x"]


def _later(queue: Queue, clock: MovedClock) -> Any:
    clock.advance(MINUTE_MS)
    return queue.next()


def test_the_asyncio_queue_gives_contexts_too(make_async_queue: MakeAsyncQueue) -> None:
    """To coroutine functions and to plain ones; steps and logs are read by it as well."""

    async def story() -> list[Any]:
        async with make_async_queue() as own:

            @own.task()
            async def later(ctx: AsyncContext, n: int) -> int:
                ctx.log("later")
                return await ctx.step("n", abs, n)

            @own.task()
            def plain(ctx: Context, n: int) -> int:
                return ctx.step("n", abs, n)

            jobs = [await later.add(-1), await plain.add(-2)]
            while claimed := await own.next():
                await claimed.run()
            lines = [line.text for line in await own.log(jobs[0])]
            return [await job.result() for job in jobs] + [lines, await own.steps(jobs[0])]

    assert asyncio.run(story()) == [1, 2, ["later"], {"n": 1}]


def test_a_coroutine_that_wants_to_is_cancelled_with_its_job(make_async_queue: MakeAsyncQueue) -> None:
    """`cancel="raise"`: at its next `await`, and it may clean up."""
    seen: list[str] = []

    async def story() -> State:
        async with make_async_queue() as own:
            running = asyncio.Event()

            @own.task(cancel="raise")
            async def patient() -> None:
                running.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    seen.append("cleaned up")

            job = await patient.add()
            claimed = await own.next()
            assert claimed is not None
            run = asyncio.create_task(claimed.run())
            await running.wait()
            await own.cancel(job)
            return (await asyncio.wait_for(run, PATIENCE_S)).state

    assert asyncio.run(story()) == State.CANCELLED
    assert seen == ["cleaned up"]
