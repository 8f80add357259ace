"""An application whose handlers hang, each in another way and below a function with a name of its own."""

import asyncio
import ctypes
import os
import time

import holdfast

queue = holdfast.connect(os.environ["HOLDFAST_TEST_STORE"])
SECRET = "hunter2"


def _hang_deep(left: int, secret: str = SECRET) -> None:
    if left:
        _hang_deep(left - 1)
    time.sleep(600)


async def _hang_below(secret: str = SECRET) -> None:
    await asyncio.Event().wait()


@queue.task(timeout="2s", attempts=1)
def in_thread() -> None:
    _hang_deep(3)


@queue.task(timeout="2s", attempts=1)
def in_recursion() -> None:
    _hang_deep(100)


@queue.task(timeout="2s", attempts=1)
async def in_coroutine() -> None:
    await _hang_below()


# Its coroutine runs in an asyncio task of its own.
@queue.task(timeout="2s", soft_timeout="1s", attempts=1)
async def in_soft_coroutine() -> None:
    try:
        await _hang_below()
    except asyncio.CancelledError:
        await _hang_below()


@queue.task(timeout="2s", attempts=1, batch=2)
async def in_batch(items: list[int]) -> list[None]:
    await _hang_below()
    return [None] * len(items)


@queue.task(timeout="2s", attempts=1)
async def blocks_loop() -> None:
    _hang_deep(3)


def _hold_lock() -> None:
    ctypes.PyDLL(None).sleep(600)


@queue.task(timeout="2s", attempts=1)
def holds_lock() -> None:
    _hold_lock()


@queue.task(timeout="2s", attempts=1)
async def coroutine_holds_lock() -> None:
    _hold_lock()
