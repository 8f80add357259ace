"""An application whose handlers use all that they are given."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import AsyncContext, Context, Failed, Job, Retry, SoftTimeout

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])


def _note(text: str) -> None:
    """Write down what happened, outside the system."""
    with Path(os.environ["HOLDFAST_TEST_NOTES"]).open("a") as notes:
        notes.write(f"{text} {os.getpid()}\n")


def _noted() -> int:
    """How much was written down."""
    return len(Path(os.environ["HOLDFAST_TEST_NOTES"]).read_text().splitlines())


@queue.task(backoff="10ms")
def steps(ctx: Context, name: str) -> Any:
    """Fail once, after a step that is done once."""

    def pay() -> str:
        _note("paid")
        return f"receipt of {name}"

    receipt = ctx.step("pay", pay)
    ctx.progress(0.5, "paid")
    ctx.log(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return [receipt, ctx.claim, ctx.job_id]


@queue.task(losses=5)
def dies(ctx: Context) -> str:
    """Be killed in the midst of it, and go on where it was."""
    ctx.step("first", _note, "first")
    ctx.log("before the end")
    _note("first-done")
    if ctx.claim == 1:
        time.sleep(600)
    ctx.step("second", _note, "second")
    return "done"


@queue.task()
def patient(ctx: Context) -> str:
    """Go on until it is cancelled."""
    _note("began")
    while not ctx.cancelled:
        time.sleep(0.01)
    _note("heard")
    raise Retry


@queue.task(cancel="raise")
async def patient_on_a_loop() -> None:
    """The same for coroutines, which are interrupted."""
    _note("began")
    try:
        await asyncio.sleep(600)
    finally:
        _note("heard")


@queue.task(soft_timeout="300ms", timeout="1m")
def hurried() -> str:
    """Be interrupted, and clean up."""
    try:
        while True:
            time.sleep(0.01)
    except SoftTimeout:
        return "cleaned up"


@queue.task(soft_timeout="300ms", attempts=1)
async def hurried_on_a_loop() -> None:
    """Be interrupted, and let it happen."""
    await asyncio.sleep(600)


@queue.task(soft_timeout="300ms", attempts=1)
def waits_for_another() -> None:
    """Wait for another job, and be interrupted."""
    queue.next(["another"], wait="10m")


@queue.task(losses=1)
def waits_for_another_and_dies() -> None:
    """Wait for another job, and be killed."""
    _note("began")
    queue.next(["another"], wait="10m")


@queue.task(attempts=1)
def claims_another() -> str:
    """Claim another job, and take longer than its lease; the process is not busy meanwhile."""
    job = queue.next(["another"], lease="1s")
    assert job is not None
    _note("claimed")
    time.sleep(3)
    return job.done().state.name


@queue.task()
async def meets(ctx: AsyncContext, number: int) -> int:
    """Wait until as many run as are to run at once."""
    _note("met")
    while _noted() < number:  # noqa: ASYNC110 (what is waited for is in a file)
        await asyncio.sleep(0.01)
    return await ctx.step("number", abs, -number)


@queue.task(batch=100)
def batch(items: list[int]) -> list[Any]:
    """Say how many came together; some of them fail."""
    _note(f"batch-{len(items)}")
    outcomes = {1: Failed("one"), 2: Retry("1h", reason="two"), 3: ValueError("three")}
    return [outcomes.get(item, len(items)) for item in items]


@queue.task()
def opaque(n: int) -> Any:
    """Return something that cannot be written as JSON."""
    _note(f"opaque-{n}")
    return {"n": n, "handle": object()}


@queue.task()
async def opaque_on_a_loop(n: int) -> Any:
    """The same for coroutines."""
    return opaque(n)


@queue.task(batch=10)
def opaque_batch(items: list[int]) -> list[Any]:
    """Return one that cannot be written among others that can."""
    return [object() if item == 2 else item for item in items]


@queue.task(batch=10, attempts=1)
def broken_batch(items: list[int]) -> list[int]:
    """Raise for all."""
    raise ValueError(f"all {len(items) > 0}")


@queue.task(attempts=1)
def leaves() -> None:
    """What no handler should do."""
    sys.exit(3)


@queue.task(attempts=1, soft_timeout="1m")
async def leaves_a_loop() -> None:
    """Nor here."""
    sys.exit(3)


@queue.task()
def by_hand(job: Job) -> None:
    """Answer for itself."""
    job.done("by hand")  # type: ignore[attr-defined]


@queue.task()
def first(n: int) -> int:
    """What another one follows."""
    return n + 1


@queue.task()
def second(n: int) -> int:
    """What follows."""
    return n * 10


@queue.task()
def parent(ctx: Context) -> list[str]:
    """Make children, and see how they ended."""
    children = ctx.children()
    if not children:
        ctx.add(first, {"n": 1})
        ctx.add(leaves, attempts=1)
    return sorted(child.state for child in children)
