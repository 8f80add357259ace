"""How functions are called: soft limits and batches."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from holdfast.core.errors import BadInput, JobFailed
from holdfast.core.queries import LoadJobs
from holdfast.queue.answers import Failed, Retry, SoftTimeout
from holdfast.queue.context import Context
from holdfast.queue.queue import Queue
from holdfast.queue.running import SoftLimit
from holdfast.testing.clock import MovedClock

from .tools import LONG_S, take, until


@dataclass
class Order:
    """A record of one's own."""

    number: int
    at: datetime


# ── soft limits ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set by a function that is ready for its limit: on a busy machine that may come before it is."""
    inside, strike = threading.Event(), SoftLimit._on_timer

    def strike_inside(limit: SoftLimit) -> None:
        assert inside.wait(LONG_S)
        strike(limit)

    monkeypatch.setattr(SoftLimit, "_on_timer", strike_inside)
    return inside


def _spin(inside: threading.Event) -> None:
    inside.set()
    while True:
        pass


async def _wait() -> None:
    await asyncio.Event().wait()


def test_a_function_past_its_soft_limit_is_interrupted_and_may_clean_up(
    queue: Queue, inside: threading.Event
) -> None:
    """What it returns then is its result; uncaught, it is an error like any other."""

    @queue.task(soft_timeout="50ms", timeout="1m")
    def cleans() -> str:
        try:
            _spin(inside)
        except SoftTimeout:
            return "cleaned up"
        return "never"

    @queue.task(soft_timeout="50ms", attempts=1)
    def heedless() -> None:
        _spin(inside)

    caught, raised = cleans.add(), heedless.add()
    for _ in range(2):
        inside.clear()
        take(queue).run()

    assert caught.result() == "cleaned up"
    with pytest.raises(JobFailed, match="SoftTimeout"):
        raised.result()
    assert "_spin" in raised.get().errors[0].traceback


def test_a_soft_limit_inside_a_call_of_the_queue_leaves_it_usable(
    queue: Queue, clock: MovedClock, inside: threading.Event
) -> None:
    """It is no error of the call that it hits; a claimed job comes back, at the latest after its lease."""

    @queue.task(soft_timeout="100ms", timeout="1m")
    def claims() -> str:
        try:
            inside.set()
            while True:
                try:
                    job = queue.next(["other"], lease=1, renew=False)
                    assert job is not None
                    job.release()
                except Exception as error:
                    return f"took it for an error: {error!r}"
        except SoftTimeout:
            return "interrupted"

    queue.add("other")
    for _ in range(3):
        ended = claims.add()
        inside.clear()
        take(queue, "claims").run()
        assert ended.result() == "interrupted"
        clock.advance(1_000)
        other = queue.next(["other"], wait=LONG_S)
        assert other is not None
        other.release()


def test_a_coroutine_past_its_soft_limit_is_cancelled_and_may_clean_up(queue: Queue) -> None:
    """As by `asyncio.timeout`: cancellation at an `await`, and an error unless it returns something."""

    @queue.task(soft_timeout="50ms")
    async def cleans() -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_wait())
        except asyncio.CancelledError:
            return "cleaned up"
        return "never"

    @queue.task(soft_timeout="50ms", attempts=1)
    async def heedless() -> None:
        await _wait()

    caught, raised = cleans.add(), heedless.add()
    for _ in range(2):
        take(queue).run()

    assert queue.result(caught) == "cleaned up"
    with pytest.raises(JobFailed, match="SoftTimeout"):
        queue.result(raised)
    assert "_wait" in queue.get(raised).errors[0].traceback


def test_a_coroutine_that_awaits_something_cancelled_has_an_error(queue: Queue) -> None:
    """Otherwise its job would stay RUNNING until its lease ends, and count no attempt."""

    @queue.task(attempts=1)
    async def awaits_cancelled() -> None:
        inner = asyncio.create_task(_wait())
        inner.cancel()
        await inner

    job = awaits_cancelled.add()
    take(queue).run()

    with pytest.raises(JobFailed, match="CancelledError"):
        queue.result(job)


def test_a_soft_limit_never_reaches_what_comes_after(queue: Queue) -> None:
    """However close to its end the limit comes: no later instruction of the thread is hit."""
    hits = 0
    # What others have left behind is not collected meanwhile: a limit that strikes while that is going on is
    # swallowed there, and told as a warning.
    gc.collect()
    gc.disable()
    try:
        for n in range(300):
            try:
                SoftLimit(queue.session.timers, 1).run(partial(sum, range(n * 200)))
            except SoftTimeout:
                hits += 1
            # Were one still on its way, it would come here, and fail the test.
            sum(range(2_000))
    finally:
        gc.enable()

    assert hits < 300


def test_a_store_that_does_not_answer_holds_up_no_limit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a running job should stop is read in a thread of its own."""
    ask, polled, answered = queue.session.connection.ask, threading.Event(), threading.Event()

    def hang(asked: Any, **options: Any) -> Any:
        if isinstance(asked, LoadJobs):
            polled.set()
            answered.wait(LONG_S)
        return ask(asked, **options)

    monkeypatch.setattr(queue.session.connection, "ask", hang)
    fired = threading.Event()
    queue.add("work")
    unfollow = queue.session.follow(take(queue, "work")._lease)
    until(polled.is_set)
    queue.session.timers.after(0, fired.set)

    assert fired.wait(LONG_S)
    answered.set()
    unfollow()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"soft_timeout": "2m", "timeout": "1m"}, "soft_timeout.*below the timeout of 1m"),
        ({"soft_timeout": 0}, "soft_timeout.*above 0"),
        ({"cancel": "raise"}, "cancel.*no coroutine function"),
        ({"cancel": "loudly"}, "cancel.*tell or raise"),
        ({"batch": 0}, "batch.*whole number"),
        ({"batch": 1_001}, "batch.*whole number"),
    ],
)
def test_handling_that_makes_no_sense_is_refused_where_it_is_written(
    queue: Queue, options: Any, complaint: str
) -> None:
    """By name."""

    def function(items: list[int]) -> None:
        """Nothing."""

    with pytest.raises(BadInput, match=complaint):
        queue.task(**options)(function)


def test_a_generator_is_no_task(queue: Queue) -> None:
    """Its body would never run."""

    def lines() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function in (lines, more):
        with pytest.raises(BadInput, match=f"task {function.__name__} has a yield"):
            queue.task(function)
        assert function.__name__ not in queue.tasks


# ── batches ──────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_task_takes_items_and_a_claimed_job_is_a_batch_of_one(queue: Queue) -> None:
    """The data of a job is its item, along the annotation."""

    @queue.task(batch=10)
    def ship(orders: list[Order]) -> list[Any]:
        return [order.number for order in orders]

    job = ship.add(Order(3, datetime(2026, 1, 2, tzinfo=UTC)))
    by_name = queue.add("ship", {"number": 4, "at": "2026-01-02T00:00:00Z"})
    for _ in range(2):
        take(queue).run()

    assert queue.data(job) == {"number": 3, "at": "2026-01-02T00:00:00Z"}
    assert (job.result(), by_name.result()) == (3, 4)


@pytest.mark.parametrize("wrong", [{"number": "x"}, [1]])
def test_an_item_that_does_not_fit_is_refused_in_the_producer_and_fails_alone(
    queue: Queue, wrong: Any
) -> None:
    """Where its task was not known it can be added; then its run is its last."""
    job = queue.add("ship", wrong)

    @queue.task(batch=10)
    def ship(orders: list[Order]) -> list[Any]:
        return [order.number for order in orders]

    with pytest.raises(BadInput, match="item of task ship"):
        ship.add(wrong)
    take(queue).run()

    assert "item of task ship" in job.get().reason


@pytest.mark.parametrize(
    ("results", "state"),
    [([Failed("no")], "FAILED"), ([Retry("1h")], "QUEUED"), ([1, 2], "QUEUED"), ("x", "QUEUED")],
)
def test_a_batch_says_how_each_of_its_jobs_ended(queue: Queue, results: Any, state: str) -> None:
    """A list of as many as there are; anything else is an error."""

    @queue.task(batch=10)
    def judge(items: list[int]) -> Any:
        assert items == [1]
        return results

    job = judge.add(1)
    take(queue).run()

    assert job.get().state == state


def test_a_batch_function_of_the_wrong_form_is_refused_at_the_decorator(queue: Queue) -> None:
    """It takes one list, and no context: that belongs to one job."""

    def two(a: list[int], b: list[int]) -> None:
        """Nothing."""

    def scalar(a: int) -> None:
        """Nothing."""

    def told(ctx: Context, a: list[int]) -> None:
        """Nothing."""

    for function in (two, scalar, told):
        with pytest.raises(BadInput, match=f"signature of batch task {function.__name__}"):
            queue.task(batch=2)(function)  # type: ignore[arg-type]


def test_a_batch_function_may_be_a_coroutine(queue: Queue) -> None:
    """It is awaited."""

    @queue.task(batch=10)
    async def double(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [2 * item for item in items]

    job = double.add(4)
    take(queue).run()

    assert job.result() == 8
    # Called, a task is just its function.
    direct: Awaitable[list[int]] = double.function([1])
    assert asyncio.run(_awaited(direct)) == [2]


async def _awaited(value: Awaitable[list[int]]) -> list[int]:
    return await value
