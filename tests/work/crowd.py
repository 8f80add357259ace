"""An application whose jobs are innocent, slow, stuck or poisonous; each run writes down that it began."""

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

import holdfast

# Applications may take long to import.
time.sleep(float(os.environ.get("HOLDFAST_TEST_IMPORT_S", "0")))
queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])


def _note(name: str) -> None:
    with Path(os.environ["HOLDFAST_TEST_NOTES"]).open("a") as notes:
        notes.write(f"{name} {os.getpid()}\n")


@queue.task()
async def call_api(name: str, seconds: float = 0.0, gate: str = "") -> str:
    """Wait as a coroutine does, beside many others: for a time, then for a file."""
    _note(name)
    await asyncio.sleep(seconds)
    while gate and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 (what is waited for is a file)
        await asyncio.sleep(0.01)
    return "done"


@queue.task()
def compute(name: str, seconds: float) -> str:
    """Wait in a thread."""
    _note(name)
    time.sleep(seconds)
    return "done"


@queue.task()
def poison(name: str, seconds: float, gate: str = "") -> None:
    """End the process, and all that runs in it: after a time, or when a file is there."""
    _note(name)
    time.sleep(seconds)
    while gate and not Path(gate).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task()
def until_open(name: str, gate: str = "") -> None:
    """Run until a file is there; without one, end at once."""
    _note(name)
    while gate and not Path(gate).exists():
        time.sleep(0.01)


@queue.task()
def hog_until_open(name: str, gate: str = "") -> None:
    """The same, and hold the interpreter lock."""
    _note(name)
    while gate and not Path(gate).exists():
        ctypes.PyDLL(None).usleep(100_000)


@queue.task()
def hog(name: str, pipe: str) -> None:
    """Hold the interpreter lock without a break, until somebody opens a named pipe to write."""
    _note(name)
    ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY)
