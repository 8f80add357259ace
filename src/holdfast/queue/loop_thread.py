"""Awaitables that a thread runs to their end on the event loop of another thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

# Runs an awaitable to its end, from a thread.
Wait = Callable[[Awaitable[Any]], Any]


def wait_on(loop: asyncio.AbstractEventLoop, awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable to its end, on the loop of another thread; returns its result or raises its exception.

    If this thread is interrupted, the awaitable is cancelled, and has ended when this returns.
    """
    ended: Future[asyncio.Task[Any]] = Future()
    tasks: list[asyncio.Task[Any]] = []

    def start() -> None:
        tasks.append(loop.create_task(_caught(awaitable)))
        tasks[0].add_done_callback(ended.set_result)

    def cancel() -> None:
        # Without a task, this thread was interrupted before it could ask for one.
        tasks[0].cancel() if tasks else ended.cancel()

    try:
        loop.call_soon_threadsafe(start)
        task = ended.result()
    except BaseException:
        loop.call_soon_threadsafe(cancel)
        with suppress(CancelledError):
            ended.result()
        raise
    result, error = task.result()
    if error is not None:
        raise error
    return result


async def _caught(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except (SystemExit, KeyboardInterrupt) as error:
        # Raised here, these would end the loop with all others on it.
        return None, error


class LoopThread:
    """An event loop in a thread of its own, which starts when something has to be awaited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Run an awaitable to its end; called in another thread."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="holdfast-loop", daemon=True
                )
                self._thread.start()
            loop = self._loop
        return wait_on(loop, awaitable)

    def close(self) -> None:
        """End the loop."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
