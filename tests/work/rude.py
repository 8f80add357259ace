"""Handlers that do what handlers should not do, or rarely do."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from typing import Any, NoReturn

import holdfast

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])
# The name of a file that is not UTF-8, as Python reads it.
NAME = os.fsdecode(b"\xff")


class Mute(BaseException):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Odd:
    """A value that cannot be written."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise OSError("no fields")


@queue.task(losses=1)
def dies(ctx: holdfast.Context, how: str) -> None:
    """End the process."""
    ctx.progress(0.25, "a quarter")
    if how == "exit":
        os._exit(3)
    if how == "signal":
        signal.raise_signal(signal.SIGSEGV)
    kept = bytearray(200 << 20)
    time.sleep(600 + len(kept[:1]))


@queue.task
def good() -> int:
    return 42


@queue.task(attempts=1)
def fails_with_a_name() -> NoReturn:
    raise holdfast.Failed(NAME)


@queue.task(attempts=1)
def retries_with_a_name() -> NoReturn:
    raise holdfast.Retry("1h", reason=NAME)


@queue.task(attempts=1)
async def raises_a_name() -> NoReturn:
    raise ValueError(NAME)


@queue.task(attempts=1)
def raises_what_is_mute() -> NoReturn:
    raise Mute


@queue.task(attempts=1)
async def exits_in_a_task() -> None:
    async def leave() -> NoReturn:
        sys.exit(3)

    await asyncio.create_task(leave())


@queue.task(attempts=1, batch=5)
async def exits_in_a_batch(items: list[int]) -> NoReturn:
    sys.exit(len(items))


@queue.task(attempts=1)
def returns_what_is_odd() -> Odd:
    return Odd()


@queue.task(attempts=1)
def reports_and_logs_a_name(ctx: holdfast.Context) -> None:
    ctx.log(NAME)
    ctx.progress(0.5, NAME)


@queue.task(attempts=1)
def removes_a_schedule_by_number() -> None:
    queue.unschedule(5)  # type: ignore[arg-type]


@queue.task(attempts=1)
def reports_true_and_counts_by_number(ctx: holdfast.Context) -> NoReturn:
    ctx.progress(True)
    raise holdfast.Retry(0, counts=1)  # type: ignore[arg-type]


@queue.task(attempts=1)
async def stops_the_loop() -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return 1


@queue.task(attempts=1)
def terminates_a_program() -> int:
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    return program.wait(10)


@queue.task(attempts=1)
def uses_a_pool() -> list[int]:
    with get_context("fork").Pool(2) as pool:
        pool.map_async(time.sleep, [60])
        return pool.map(abs, [-1])


@queue.task(attempts=1)
def closes_its_streams() -> NoReturn:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
    raise ValueError("after that")


@queue.task(losses=1)
def dies_before_its_children() -> None:
    subprocess.Popen(["sleep", "5"])
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
