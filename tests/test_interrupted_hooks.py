"""Hooks of what is interrupted: each that was entered is left once, the last one first."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from holdfast.core.job import State
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.answers import Failed
from holdfast.queue.connect import connect, connect_async
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing import run_due
from holdfast.work.worker import work, work_async

INTERRUPTIONS = [KeyboardInterrupt, SystemExit, GeneratorExit]


@pytest.fixture
def queue() -> Iterator[Queue]:
    with connect("memory://") as queue:
        yield queue


@pytest.fixture
def aio() -> AsyncQueue:
    return connect_async("memory://")


class Journal:
    """Hooks that write down how they are entered and left; the last two hide or change what is raised."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def note(self, name: str, error: BaseException | None) -> None:
        """Write down the end of a hook."""
        self.seen.append(f"{name} {type(error).__name__ if error else 'ok'}")

    def hooks(self, *, is_async: bool = True) -> list[Callable[[Any], Any]]:
        """The hooks, in the order in which they are to be declared."""

        def outer(_: Any) -> Iterator[None]:
            self.seen.append("outer")
            try:
                yield
            except BaseException as error:
                self.note("outer", error)
                raise
            self.note("outer", None)

        @contextmanager
        def hiding(_: Any) -> Iterator[None]:
            self.seen.append("hiding")
            try:
                yield
            except BaseException as error:
                self.note("hiding", error)
            else:
                self.note("hiding", None)

        @asynccontextmanager
        async def changing(_: Any) -> AsyncIterator[None]:
            self.seen.append("changing")
            await asyncio.sleep(0)
            try:
                yield
            except BaseException as error:
                self.note("changing", error)
                raise Failed("changed") from error
            self.note("changing", None)

        return [outer, hiding, changing] if is_async else [outer, hiding]

    def check(self, error: type[BaseException], *, is_async: bool = True) -> None:
        """All were entered, and left in the reverse order with the exception."""
        names = ["outer", "hiding", "changing"] if is_async else ["outer", "hiding"]
        assert self.seen == [*names, *(f"{name} {error.__name__}" for name in reversed(names))]


def surround(queue: Queue | AsyncQueue, hooks: list[Callable[[Any], Any]], *, what: str = "run") -> None:
    """Declare hooks."""
    for hook in hooks:
        (queue.around_run if what == "run" else queue.around_add)(hook)


def take(queue: Queue) -> ClaimedJob:
    """The next job, which must be there."""
    job = queue.next()
    assert job is not None
    return job


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", INTERRUPTIONS)
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_an_interrupted_run_leaves_its_hooks(
    queue: Queue, error: type[BaseException], is_coroutine: bool
) -> None:
    """`job.run()` raises the interruption, whatever a hook makes of it, and the job was not answered."""
    journal = Journal()
    surround(queue, journal.hooks())

    def run() -> None:
        raise error

    async def run_async() -> None:
        raise error

    queue.task("run")(run_async if is_coroutine else run)
    queue.add("run")
    job = take(queue)
    with pytest.raises(error):
        job.run()
    journal.check(error)
    assert not job.answered


def test_the_helpers_for_tests_leave_the_hooks(queue: Queue) -> None:
    """`run_due` runs a job as `job.run()` does."""
    journal = Journal()
    surround(queue, journal.hooks())

    @queue.task
    def stop() -> None:
        raise KeyboardInterrupt

    stop.add()
    with pytest.raises(KeyboardInterrupt):
        run_due(queue)
    journal.check(KeyboardInterrupt)


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_handler_that_exits_leaves_its_hooks_in_work(queue: Queue, is_coroutine: bool) -> None:
    """The worker goes on; the job has failed."""
    journal = Journal()
    surround(queue, journal.hooks())

    def run() -> None:
        raise SystemExit(3)

    async def run_async() -> None:
        run()

    queue.task("run", attempts=1)(run_async if is_coroutine else run)
    job = queue.add("run")
    assert work(queue, until_empty=True) == 1
    journal.check(SystemExit)
    assert queue.get(job).state == State.FAILED


def test_a_cancelled_run_leaves_its_hooks(aio: AsyncQueue) -> None:
    """`job.run()` of a coroutine is cancelled, and so are its hooks; none can make it a result."""
    journal = Journal()
    surround(aio, journal.hooks())
    started = asyncio.Event()

    @aio.task
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    async def main() -> None:
        await wait.add()
        job = await aio.next()
        assert job is not None
        run = asyncio.create_task(job.run())
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert not job.answered
        await aio.close()

    asyncio.run(main())
    journal.check(asyncio.CancelledError)


def test_work_async_that_is_cancelled_ends_runs_before_the_process(aio: AsyncQueue) -> None:
    """`on_stop` comes when the hooks of cancelled runs have done what they wait for."""
    seen: list[str] = []
    started = asyncio.Event()

    @aio.on_stop
    async def stop() -> None:
        seen.append("stop")

    @aio.around_run
    async def slow(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0.05)
            seen.append("left")

    @aio.task(timeout="1m")
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    async def main() -> None:
        job = await wait.add()
        working = asyncio.create_task(work_async(aio))
        await started.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert seen == ["left", "stop"]
        assert (await job.get()).state == State.QUEUED
        await aio.close()

    asyncio.run(main())


def test_a_soft_limit_leaves_the_hooks_of_a_run_and_of_an_add_in_it(queue: Queue) -> None:
    """The add was waiting in a hook when the limit of the handler ended."""
    seen: list[str] = []

    @queue.around_run
    def around(_: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(f"run {type(error).__name__}")
            raise

    @queue.around_add
    def note(new: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(f"add {type(error).__name__}")
            raise

    @queue.around_add
    def slow(new: Any) -> Iterator[None]:
        if new.task == "child":
            while True:
                threading.Event().wait(0.01)
        yield

    @queue.task(soft_timeout="0.1s", timeout="1m", attempts=1)
    def run() -> None:
        queue.add("child")

    queue.task("child")(lambda: None)
    run.add()
    take(queue).run()
    assert seen == ["add SoftTimeout", "run SoftTimeout"]


# ── hooks that are interrupted themselves ────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", INTERRUPTIONS)
@pytest.mark.parametrize("entering", [False, True])
@pytest.mark.parametrize("what", ["run", "add"])
def test_the_hooks_before_an_interrupted_one_are_left(
    queue: Queue, error: type[BaseException], entering: bool, what: str
) -> None:
    """Whether it was being entered or left."""
    journal = Journal()
    queue.task("run")(lambda: None)
    if what == "run":
        queue.add("run")
    surround(queue, journal.hooks(), what=what)

    async def interrupted(_: Any) -> AsyncIterator[None]:
        if not entering:
            yield
        raise error

    surround(queue, [interrupted], what=what)
    with pytest.raises(error):
        take(queue).run() if what == "run" else queue.add("run")
    journal.check(error)


def test_a_signal_while_a_thread_waits_for_a_hook_leaves_all(queue: Queue) -> None:
    """The hook runs on an event loop elsewhere; it has ended when the others are left."""
    journal = Journal()
    surround(queue, journal.hooks(), what="add")

    async def waiting(_: Any) -> AsyncIterator[None]:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
            yield
        finally:
            await asyncio.sleep(0.05)
            journal.seen.append("ended")

    surround(queue, [waiting], what="add")
    queue.task("run")(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        queue.add("run")
    journal.seen.remove("ended")
    journal.check(KeyboardInterrupt)


def test_a_cancelled_add_leaves_its_hooks(aio: AsyncQueue) -> None:
    """The last of its hooks waits when it is cancelled."""
    journal = Journal()
    surround(aio, journal.hooks(), what="add")
    waits = asyncio.Event()

    @aio.around_add
    async def slow(_: Any) -> AsyncIterator[None]:
        waits.set()
        await asyncio.Event().wait()
        yield

    async def main() -> None:
        aio.task("run")(lambda: None)
        add = asyncio.create_task(aio.add("run"))
        await waits.wait()
        add.cancel()
        with pytest.raises(asyncio.CancelledError):
            await add
        journal.check(asyncio.CancelledError)
        await aio.close()

    asyncio.run(main())


def test_a_closed_add_leaves_its_hooks(aio: AsyncQueue) -> None:
    """A coroutine that waits for the commit gets GeneratorExit."""
    journal = Journal()
    surround(aio, journal.hooks(is_async=False), what="add")

    async def main() -> None:
        aio.task("run")(lambda: None)
        add = aio.add("run")
        add.send(None)
        add.close()
        journal.check(GeneratorExit, is_async=False)
        await aio.close()

    asyncio.run(main())


# ── once in a process ────────────────────────────────────────────────────────────────────────────


def test_a_start_that_is_cancelled_ends_what_was_started(aio: AsyncQueue) -> None:
    """Also a plain hook, whose thread cannot be cancelled. One that raises when it ends stops none."""
    seen: list[str] = []
    opening, go_on = threading.Event(), threading.Event()

    def opened(name: str) -> Callable[[], Any]:
        async def open_() -> AsyncIterator[None]:
            seen.append(name)
            yield
            seen.append(f"{name} closed")

        return open_

    @aio.on_stop
    async def interrupted() -> None:
        raise asyncio.CancelledError

    aio.on_start(opened("first"))

    @aio.on_start
    def in_thread() -> Iterator[None]:
        opening.set()
        assert go_on.wait(60)
        seen.append("thread")
        yield
        seen.append("thread closed")

    aio.on_start(opened("never"))
    aio.task("run")(lambda: None)

    async def main() -> None:
        working = asyncio.create_task(work_async(aio))
        await asyncio.to_thread(opening.wait)
        working.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await working
        await aio.close()

    asyncio.run(main())
    assert seen == ["first", "thread", "thread closed", "first closed"]


def test_a_cancelled_end_ends_the_rest(aio: AsyncQueue) -> None:
    """The hook that waits is interrupted, those before it are not."""
    seen: list[str] = []
    waits = asyncio.Event()

    @aio.on_stop
    async def first() -> None:
        seen.append("first")

    @aio.on_stop
    async def slow() -> None:
        waits.set()
        await asyncio.Event().wait()

    aio.task("run")(lambda: None)

    async def main() -> None:
        working = asyncio.create_task(work_async(aio, until_empty=True))
        await waits.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert seen == ["first"]
        await aio.close()

    asyncio.run(main())


def test_runs_and_workers_that_begin_at_once_start_once(aio: AsyncQueue) -> None:
    """Coroutines of one loop, and two workers, of which the second needs what the first has started."""
    seen: list[str] = []
    workers: list[asyncio.Task[int]] = []

    @aio.on_start
    async def client() -> AsyncIterator[None]:
        await asyncio.sleep(0.02)
        seen.append("open")
        yield
        seen.append("close")

    @aio.task
    async def short() -> None:
        await asyncio.sleep(0)

    @aio.task
    async def long() -> None:
        await asyncio.wait(workers[:1])
        seen.append("long")

    async def main() -> None:
        handles = [await short.add() for _ in range(10)]
        jobs = await aio.claim(limit=10)
        await asyncio.gather(*(job.run() for job in jobs))
        assert len(handles) == len(jobs)
        assert seen == ["open"]
        await short.add()
        await long.add()
        for task in ("short", "long"):
            workers.append(asyncio.create_task(work_async(aio, tasks=[task], until_empty=True)))
        await asyncio.gather(*workers)
        assert seen == ["open", "long", "close"]
        await aio.close()

    asyncio.run(main())


def test_threads_and_loops_that_begin_at_once_start_once(queue: Queue) -> None:
    """One that has seen nothing started does not start again after another has done it."""
    opened: list[int] = []
    queue.on_start(lambda: opened.append(1))
    hooks: Any = queue.hooks
    acquire = hooks._lock.acquire

    class Late:
        """Another thread starts just before the lock is taken."""

        def acquire(self, *, blocking: bool) -> Any:
            hooks._lock = lock
            thread = threading.Thread(target=hooks.start, args=(hooks.loop.wait,))
            thread.start()
            thread.join()
            return acquire(blocking=blocking)

    lock, hooks._lock = hooks._lock, Late()
    asyncio.run(hooks.start_async())
    assert opened == [1]
