"""The application of `test_functions`: functions of ten steps, which log outside the store what they do.

    step a ▶ step try, which fails ▶ try again ▶ sleep ▶ step tell: a signal to another function
      ▶ wait for go ▶ call two, of which one fails ▶ wait for go ▶ wait for told ▶ step c

    HISTORY    called|end|kept  job  claim  executor  supervisor  monotonic ns  function  name  value

`called` and `end` are of the function of a step, or of a called job. `kept` is that a run got the value of a
step or wait, which is recorded then. Each line is one append, so it stands when its process is killed.
"""

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import holdfast
from holdfast import AsyncContext, ChildFailed, Context

queue = holdfast.connect(os.environ["HOLDFAST_KILLS_STORE"])

_history = os.open(os.environ["HOLDFAST_KILLS_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
# It may end while the executor still logs.
_SUPERVISOR = os.getppid()
# At most, of each step.
STEP_S = 0.02


class Run(NamedTuple):
    """One run of a function, and its number among the functions."""

    job: int
    claim: int
    n: int

    def note(self, event: str, name: str, value: Any) -> None:
        """Log a line."""
        words = [event, self.job, self.claim, os.getpid(), _SUPERVISOR, time.monotonic_ns()]
        words += [self.n, name, value]
        line = " ".join(map(str, words)).encode() + b"\n"
        assert os.write(_history, line) == len(line)

    def keep(self, name: str, value: Any) -> Any:
        """Log a recorded value."""
        self.note("kept", name, value)
        return value

    def keep_ended(self, ended: list[str | ChildFailed]) -> list[str]:
        """The same of the jobs that were called: the second fails, and says with which value."""
        values = [str(one).split()[-1] for one in ended]
        return [self.keep(name, value) for name, value in zip(("half", "fails"), values, strict=True)]

    def begin(self, name: str) -> str:
        """Log a call; its value tells it from all other calls."""
        value = f"{name}.{self.n}.{uuid.uuid4().hex[:12]}"
        self.note("called", name, value)
        return value

    def end(self, name: str, value: str) -> str:
        """Log the end of a call."""
        self.note("end", name, value)
        if name.startswith("fail"):
            raise ValueError(value)
        return value

    def act(self, name: str, then: Callable[[], object] = lambda: None) -> str:
        """What a step does."""
        value = self.begin(name)
        then()
        time.sleep(random.random() * STEP_S)
        return self.end(name, value)

    async def act_async(self, name: str, then: Callable[[], object] = lambda: None) -> str:
        """The same."""
        value = self.begin(name)
        await asyncio.to_thread(then)
        await asyncio.sleep(random.random() * STEP_S)
        return self.end(name, value)

    def tell(self, other: int) -> None:
        """Send the signal of this function; again if it is not known whether it was sent."""
        if other:
            queue.signal(other, "told", self.n, key="told")


@queue.task
def half(ctx: Context, n: int) -> str:
    """A called job."""
    return Run(ctx.job_id, ctx.claim, n).act("half")


@queue.task(attempts=1)
def fails(ctx: Context, n: int) -> str:
    """Another, which fails."""
    return Run(ctx.job_id, ctx.claim, n).act("fails")


@queue.task
def threaded(ctx: Context, n: int, other: int, ms: int) -> dict[str, Any]:
    """The function; its result has everything that it has got."""
    run, got = Run(ctx.job_id, ctx.claim, n), dict[str, Any]()
    got["a"] = run.keep("a", ctx.step("a", run.act, "a"))
    try:
        ctx.step("try", run.act, "fail")
    except ValueError as error:
        got["fail"] = str(error)
    got["again"] = run.keep("again", ctx.step("try", run.act, "again"))
    # It was recorded together with the next.
    run.keep("fail", got["fail"])
    ctx.sleep(ms / 1000)
    got["tell"] = run.keep("tell", ctx.step("tell", run.act, "tell", lambda: run.tell(other)))
    got["go"] = run.keep("go", ctx.wait_for("go", type=int))
    ended = ctx.gather(half.call(n), fails.call(n), return_exceptions=True)
    got["half"], got["fails"] = run.keep_ended(ended)
    got["stop"] = run.keep("stop", ctx.wait_for("go", type=int))
    got["told"] = run.keep("told", ctx.wait_for("told", type=int))
    got["c"] = run.keep("c", ctx.step("c", run.act, "c"))
    return got


@queue.task
async def awaiting(ctx: AsyncContext, n: int, other: int, ms: int) -> dict[str, Any]:
    """The same as a coroutine, in which two steps run at the same time."""
    run, got = Run(ctx.job_id, ctx.claim, n), dict[str, Any]()
    got["a"], got["c"] = await asyncio.gather(
        ctx.step("a", run.act_async, "a"), ctx.step("c", run.act_async, "c")
    )
    run.keep("a", got["a"])
    run.keep("c", got["c"])
    try:
        await ctx.step("try", run.act_async, "fail")
    except ValueError as error:
        got["fail"] = str(error)
    got["again"] = run.keep("again", await ctx.step("try", run.act_async, "again"))
    run.keep("fail", got["fail"])
    await ctx.sleep(ms / 1000)
    tell = ctx.step("tell", run.act_async, "tell", lambda: run.tell(other))
    got["tell"] = run.keep("tell", await tell)
    got["go"] = run.keep("go", await ctx.wait_for("go", type=int))
    ended = await ctx.gather(half.call(n), fails.call(n), return_exceptions=True)
    got["half"], got["fails"] = run.keep_ended(ended)
    got["stop"] = run.keep("stop", await ctx.wait_for("go", type=int))
    got["told"] = run.keep("told", await ctx.wait_for("told", type=int))
    return got
