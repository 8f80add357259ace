"""The stores that a test runs on, and both kinds of consumer behind one set of verbs.

Logs, groups and waits are tried on every kind of store; what is built on them in memory and on SQLite, and on
the others by `make proof`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.indexed import AsyncConsumer, AsyncProgress, Consumer, Progress
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import system_clock
from tests.indexed.tools import PATIENCE_S
from tests.stores import ONE_OF_EACH, here_and_in_proof, opener

ON_EVERY_STORE = {"test_group", "test_log", "test_waiting"}


def pytest_generate_tests(metafunc):
    """Run each test on the stores that its file asks for, unless the test says which."""
    folder, _, file = metafunc.module.__name__.rpartition(".")
    # Not where these tests are gathered to be run over gRPC.
    if "open_store" in metafunc.fixturenames and folder == "tests.indexed":
        here = ONE_OF_EACH if file in ON_EVERY_STORE else ONE_OF_EACH[:2]
        if not any(mark.args[0] == "open_store" for mark in metafunc.definition.iter_markers("parametrize")):
            metafunc.parametrize("open_store", here_and_in_proof(here, ONE_OF_EACH), indirect=True)


@pytest.fixture
def open_store(request):
    """Opens the store under test."""
    return opener(request, system_clock)


@pytest.fixture
def make_queue(open_store) -> Iterator[Callable[..., Queue]]:
    """Queues on one fresh store, each like a process of its own."""
    made: list[Queue] = []

    def make(**options: Any) -> Queue:
        made.append(Queue(open_store, url="the store under test", **options))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def queue(make_queue):
    """A queue on a fresh store."""
    return make_queue()


@pytest.fixture
def make_async_queue(open_store):
    """Queues for asyncio on the store of `queue`; whoever makes one closes it."""
    return lambda **options: AsyncQueue(open_store, url="the store under test", **options)


class Looped:
    """An `AsyncConsumer` in a loop of its own, with the verbs of a `Consumer`."""

    def __init__(self, queue: AsyncQueue, *args: Any, name: str, start: int = 0, **options: Any) -> None:
        self.queue = queue
        source, run = args
        self.inner: AsyncConsumer[Any] = AsyncConsumer(
            source, AsyncProgress(queue, name, start), run, **options
        )
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def start(self) -> None:
        self._wait(self.inner.start())

    def stop(self) -> None:
        self._wait(self.inner.stop())

    def done(self, job_id: str) -> int:
        return int(self._wait(self.inner.done(job_id)))

    def check(self) -> None:
        self.inner.check()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def close(self) -> None:
        self._wait(self.inner.stop())
        self._wait(self.queue.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def make_consumer(request, queue, make_async_queue):
    """Makes a consumer of either kind: (source, run, name=, start=, max_processing=, …)."""
    made: list[Any] = []

    def make(source: Any, run: Any, *, name: str = "c", start: int = 0, **options: Any) -> Any:
        if request.param == "threads":
            made.append(Consumer(source, Progress(queue, name, start), run, **options))
        else:
            made.append(Looped(make_async_queue(), source, run, name=name, start=start, **options))
        return made[-1]

    yield make
    for consumer in made:
        if isinstance(consumer, Looped):
            consumer.close()
        else:
            consumer.stop()
