"""An application whose handlers block their event loop, or hold the interpreter lock; each run is noted."""

import ctypes
import os
import time
from pathlib import Path

import holdfast

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])


def _note(name: str) -> None:
    with Path(os.environ["HOLDFAST_TEST_NOTES"]).open("a") as notes:
        notes.write(f"{name} {os.getpid()}\n")


@queue.task()
async def short(name: str) -> str:
    """End in the first step of its coroutine."""
    _note(name)
    return "done"


@queue.task()
def short_function(name: str) -> str:
    """End at once, in a thread."""
    _note(name)
    return "done"


@queue.task()
def waits_for_other() -> None:
    """Wait for a job that needs the slot of this one."""
    short_function.add("child").result(wait="6s")


@queue.task()
async def blocks_loop(name: str, pipe: str) -> None:
    """Block the event loop until a named pipe is opened to write."""
    _note(name)
    os.close(os.open(pipe, os.O_RDONLY))


@queue.task()
async def holds_lock(name: str, pipe: str) -> None:
    """Hold the interpreter lock until a named pipe is opened to write."""
    _note(name)
    ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY)


@queue.task(losses=1_000)
async def random_coroutine(name: str, block_s: float = 0.0, hold_s: float = 0.0) -> None:
    """Note its start and its end; block the loop and hold the lock meanwhile."""
    random_function.function(name, block_s, hold_s)


@queue.task(losses=1_000)
def random_function(name: str, block_s: float = 0.0, hold_s: float = 0.0) -> None:
    """The same in a thread."""
    _note(name)
    time.sleep(block_s)
    ctypes.PyDLL(None).usleep(int(hold_s * 1e6))
