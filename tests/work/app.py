"""An application as users write it, for workers to run."""

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

import holdfast

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])


def _note(text: str) -> None:
    """Write down what happened, outside the system."""
    with Path(os.environ["HOLDFAST_TEST_NOTES"]).open("a") as notes:
        notes.write(f"{text} {os.getpid()}\n")


@queue.task()
def double(n: int) -> int:
    return 2 * n


@queue.task()
def noted(n: int) -> int:
    _note(str(n))
    return n


@queue.task()
async def later(n: int) -> int:
    await asyncio.sleep(0.01)
    return n + 1


@queue.task()
def hog(seconds: float) -> str:
    """Hold the interpreter lock: a C call that does not release it."""
    _note("hog")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return "done"


@queue.task(losses=2)
def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task()
def patient(seconds: float) -> str:
    _note("began")
    time.sleep(seconds)
    _note("ended")
    return "done"


@queue.task()
def gated() -> str:
    """Run until the test lets it end, by a file beside the notes."""
    _note("gated")
    while not Path(os.environ["HOLDFAST_TEST_NOTES"] + ".go").exists():
        time.sleep(0.01)
    _note("opened")
    return "done"


@queue.task(timeout="1s", attempts=2, backoff="10ms")
def stuck() -> None:
    time.sleep(600)


@queue.task(attempts=1)
def broken() -> None:
    raise ValueError("no good")


@queue.task()
def family() -> int:
    """What a handler asks of the queue goes through the supervisor."""
    return double.add(21).id


@queue.task()
def nap(ctx: holdfast.Context) -> str:
    """Two runs."""
    ctx.sleep("1 day")
    return "rested"


@queue.task()
def whose(tenant: str) -> None:
    """Write down whose job has started."""
    _note(tenant)
