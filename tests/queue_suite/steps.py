"""Steps of a handler: done once in the life of a job, whatever happens between its runs."""

import asyncio
import threading
import typing
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from holdfast.core.errors import BadInput, TooLarge
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .tools import MINUTE_MS, see, take

PATIENCE_S = 60


@dataclass
class Bought:
    """A record of one's own."""

    number: int
    at: datetime


def test_a_step_is_done_once_in_the_life_of_a_job(queue: Queue, clock: MovedClock) -> None:
    """A later run gets what the first one got, of the type that the function returns."""
    calls: list[str] = []

    def order(number: int) -> Bought:
        calls.append("order")
        return Bought(number, datetime(2026, 1, 2, tzinfo=UTC))

    def untold() -> Any:
        calls.append("untold")
        return ("a", None)

    @queue.task(backoff="1s")
    def buy(ctx: Context) -> Any:
        placed = ctx.step("order", order, number=7)
        seen = [placed == Bought(7, datetime(2026, 1, 2, tzinfo=UTC)), ctx.step("untold", untold)]
        if ctx.attempt < 3:
            raise ValueError
        return seen

    job = buy.add()
    for _ in range(3):
        take(queue).run()
        assert list(queue.steps(job)) == ["order", "untold"]
        clock.advance(MINUTE_MS)

    assert calls == ["order", "untold"]
    assert job.result() == [True, ["a", None]]
    assert job.get().steps == 2
    assert queue.purge(before=clock() / 1000 + 1) == 1
    assert [name for name in see(queue).records if name[0] == "steps"] == []


def test_a_step_may_be_whatever_can_be_called(queue: Queue) -> None:
    """A partial, an object, a class, a function that returns an awaitable: by the type that each gives."""
    bought = Bought(7, datetime(2026, 1, 2, tzinfo=UTC))

    def order(number: int, unknown: Any = None) -> Bought:
        return Bought(number, bought.at)

    class Shop:
        def __call__(self, number: int) -> Bought:
            return order(number)

    def later(number: int) -> Awaitable[Bought]:
        return asyncio.sleep(0, order(number))

    def soon(number: int) -> Coroutine[Any, Any, Bought]:
        return asyncio.sleep(0, order(number))

    order.__annotations__["unknown"] = "NotKnownHere"
    called: list[Callable[..., Any]] = [
        order,
        partial(order),
        Shop(),
        partial(Bought, at=bought.at),
        later,
        soon,
    ]

    @queue.task
    async def buy(ctx: AsyncContext) -> Any:
        found = [await ctx.step(f"step {at}", fn, 7) for at, fn in enumerate(called)]
        found.append(await ctx.step("class", Bought, 7, bought.at))
        return [one == bought for one in found]

    job = buy.add()
    take(queue).run()

    assert job.result() == [True] * 7


def test_the_result_of_a_step_whose_type_json_cannot_be_read_as(queue: Queue) -> None:
    """It is what JSON has: of a class such as Counter, and of an awaitable that says nothing of its value."""

    def later() -> typing.Awaitable:
        return asyncio.sleep(0, 5)

    def soon() -> Awaitable:
        return asyncio.sleep(0, 5)

    @queue.task
    async def count(ctx: AsyncContext) -> Any:
        called: list[Callable[..., Any]] = [partial(Counter, a=2), partial(OrderedDict, a=2), later, soon]
        return [await ctx.step(f"step {at}", fn) for at, fn in enumerate(called)]

    job = count.add()
    take(queue).run()

    assert job.result() == [{"a": 2}, {"a": 2}, 5, 5]


def test_two_calls_of_one_step_at_once_share_its_result(queue: Queue) -> None:
    """Coroutines and threads of one run: the second waits for the first."""
    calls: list[str] = []

    async def login() -> int:
        calls.append("login")
        await asyncio.sleep(0)
        return len(calls)

    def log_in() -> int:
        calls.append("log in")
        # The other thread is on its way, or waits.
        both.wait(PATIENCE_S)
        return len(calls)

    both = threading.Barrier(2)

    @queue.task(attempts=1)
    async def gathers(ctx: AsyncContext) -> list[int]:
        return list(await asyncio.gather(ctx.step("token", login), ctx.step("token", login)))

    @queue.task(attempts=1)
    def threaded(ctx: Context) -> list[int]:
        results: list[int] = []

        def second() -> None:
            both.wait(PATIENCE_S)
            results.append(ctx.step("token", log_in))

        thread = threading.Thread(target=second)
        thread.start()
        results.append(ctx.step("token", log_in))
        thread.join()
        return results

    jobs = [gathers.add(), threaded.add()]
    for _ in jobs:
        take(queue).run()

    assert [job.result() for job in jobs] == [[1, 1], [2, 2]]
    assert calls == ["login", "log in"]


def test_a_coroutine_may_call_a_step_again_but_not_within_itself(queue: Queue) -> None:
    """After an error it is tried, after a result that is had; within itself it would wait for ever."""
    results: list[Any] = [ValueError("no"), 5]

    async def value() -> int:
        found = results.pop(0)
        if isinstance(found, Exception):
            raise found
        return int(found)

    @queue.task(attempts=1)
    async def again(ctx: AsyncContext) -> Any:
        with pytest.raises(ValueError, match="no"):
            await ctx.step("value", value)
        with pytest.raises(BadInput, match="another name than that of the step around it"):
            await ctx.step("outer", lambda: ctx.step("outer", value))
        return [await ctx.step("value", value) for _ in range(2)]

    job = again.add()
    take(queue).run()

    assert job.result() == [5, 5]


def test_a_step_that_raises_is_not_kept(queue: Queue, clock: MovedClock) -> None:
    """Nor one whose result cannot be written, or is too much."""
    results: list[Any] = [object(), "x" * 17_000_000, 5]
    errors: list[type[Exception]] = []

    @queue.task(backoff="1s")
    def tried(ctx: Context) -> Any:
        try:
            return ctx.step("value", lambda: results.pop(0))
        except Exception as error:
            errors.append(type(error))
            raise

    job = tried.add()
    for _ in range(3):
        take(queue).run()
        clock.advance(MINUTE_MS)

    assert errors == [BadInput, TooLarge]
    assert job.result() == 5


def test_a_kept_result_that_no_longer_fits_is_told(queue: Queue, clock: MovedClock) -> None:
    """The function was changed between two runs."""

    def text() -> str:
        return "a"

    def number() -> int:
        return 1

    @queue.task(backoff="1s", attempts=2)
    def changed(ctx: Context) -> None:
        ctx.step("value", text if ctx.attempt == 1 else number)
        raise ValueError

    job = changed.add()
    for _ in range(2):
        take(queue).run()
        clock.advance(MINUTE_MS)

    assert "result of step value" in job.get().reason
    assert queue.steps(job) == {"value": "a"}


def test_a_step_that_is_cancelled_while_it_is_recorded_is_done(queue: Queue) -> None:
    """As by `asyncio.timeout`: its function has ended, and is not called again."""
    calls: list[int] = []

    async def pay() -> int:
        calls.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return len(calls)

    @queue.task
    async def order(ctx: AsyncContext) -> int:
        paying = asyncio.create_task(ctx.step("pay", pay))
        with pytest.raises(asyncio.CancelledError):
            await paying
        return await ctx.step("pay", pay)

    job = order.add()
    take(queue).run()

    assert (job.result(), calls) == (1, [1])
