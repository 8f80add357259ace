"""Hooks: what runs once in a process, and around each add and each run."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.core.errors import BadInput, NotFound
from holdfast.core.job import State
from holdfast.queue.answers import Failed, Retry
from holdfast.queue.connect import connect, connect_async
from holdfast.queue.context import Context
from holdfast.queue.hooks import INJECTED
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.work.worker import work


@pytest.fixture
def queue() -> Iterator[Queue]:
    with connect("memory://") as queue:
        yield queue


def take(queue: Queue) -> ClaimedJob:
    """The next job, which must be there."""
    job = queue.next()
    assert job is not None
    return job


class Client:
    """Something that is opened once."""

    def __init__(self) -> None:
        self.is_open = True


def failure(job: ClaimedJob) -> str:
    """Run a job, which must fail; returns its error."""
    after = job.run()
    assert after.state == State.FAILED
    assert after.outcome is not None
    return after.outcome.error


# ── once in a process ────────────────────────────────────────────────────────────────────────────


def test_what_on_start_yields_is_injected_and_closed_at_the_end(queue: Queue) -> None:
    """Once for all jobs, by the type of the annotation; the parameter is no argument of the job."""
    made: list[Client] = []

    @queue.on_start
    def open_client() -> Iterator[Client]:
        client = Client()
        made.append(client)
        yield client
        client.is_open = False

    @queue.task
    def fetch(url: str, client: Client = INJECTED) -> bool:
        return client.is_open and client is made[0]

    handles = [fetch.add("a"), fetch.add("b")]
    assert queue.data(handles[0]) == {"url": "a"}
    assert not made
    assert [take(queue).run().state for _ in handles] == [State.FINISHED] * 2
    assert [handle.result() for handle in handles] == [True, True]
    assert [client.is_open for client in made] == [True]
    queue.close()
    assert not made[0].is_open


def test_coroutines_may_be_hooks_and_the_last_one_ends_first(queue: Queue) -> None:
    """`on_start` and `on_stop`, sync and async, in `holdfast.work`; a second call starts them again."""
    seen: list[str] = []

    @queue.on_start
    async def connect() -> AsyncIterator[Client]:
        seen.append("connect")
        yield Client()
        seen.append("disconnect")

    @queue.on_stop
    async def flush() -> None:
        seen.append("flush")

    @queue.on_start
    def warm() -> None:
        seen.append("warm")

    @queue.task
    async def fetch(client: Client) -> bool:
        seen.append("run")
        return client.is_open

    for _ in range(2):
        seen.clear()
        queue.add(fetch)
        assert work(queue, until_empty=True) == 1
        assert seen == ["connect", "warm", "run", "flush", "disconnect"]


def test_a_batch_gets_what_on_start_provides(queue: Queue) -> None:
    """Beside its items."""

    @queue.on_start
    def client() -> Client:
        return Client()

    @queue.task(batch=10)
    def fetch(urls: list[str], client: Client = INJECTED) -> list[bool]:
        return [client.is_open] * len(urls)

    handle = queue.add("fetch", "a")
    take(queue).run()
    assert queue.result(handle) is True


def test_a_failing_start_ends_what_was_started_and_runs_no_job(queue: Queue) -> None:
    """`holdfast.work` raises the error; the next call starts anew."""
    seen: list[str] = []

    @queue.on_start
    def first() -> Iterator[None]:
        seen.append("open")
        yield
        seen.append("close")

    @queue.on_start
    def second() -> None:
        if seen.count("open") == 1:
            raise OSError("no network")

    @queue.task
    def fetch() -> None:
        seen.append("run")

    fetch.add()
    with pytest.raises(OSError, match="no network"):
        work(queue, until_empty=True)
    assert seen == ["open", "close"]
    work(queue, until_empty=True)
    assert seen == ["open", "close", "open", "run", "close"]


def test_a_hook_that_is_declared_later_starts_alone(queue: Queue) -> None:
    """Before the next run; those that have run are not run again, and all end."""
    seen: list[str] = []

    def declare(name: str) -> None:
        @queue.on_start
        def start() -> Iterator[None]:
            seen.append(name)
            yield
            seen.append(f"{name} ended")

    queue.task("run")(lambda: None)
    for name in ("first", "second"):
        declare(name)
        queue.add("run")
        take(queue).run()

    queue.close()
    assert seen == ["first", "second", "second ended", "first ended"]


def test_mistakes_in_hooks_are_told(queue: Queue) -> None:
    """At the declaration where that is possible."""
    with pytest.raises(BadInput, match="parameter url"):
        queue.on_start(lambda url: None)
    with pytest.raises(BadInput, match="one parameter"):
        queue.around_run(lambda: None)

    def client() -> Client:
        return Client()

    queue.on_start(client)
    with pytest.raises(BadInput, match="no other on_start provides"):
        queue.on_start(client)

    @queue.around_run
    def plain(job: ClaimedJob) -> str:
        return "no context manager"

    queue.task("simple", attempts=1)(lambda: None)
    queue.add("simple")
    assert "context manager" in failure(take(queue))


# ── around a run ─────────────────────────────────────────────────────────────────────────────────


def test_hooks_around_a_run_see_job_result_and_exception_in_order(queue: Queue) -> None:
    """A generator gets the result from its `yield`; a context manager sees only exceptions."""
    seen: list[Any] = []

    @queue.around_run
    def outer(job: ClaimedJob) -> Iterator[None]:
        try:
            result = yield
            seen.append(("outer", job.task, job.attempt, result))
        except ValueError as error:
            seen.append(("outer", job.task, job.attempt, str(error)))
            raise

    @queue.around_run
    @contextmanager
    def inner(job: ClaimedJob) -> Iterator[None]:
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    @queue.task
    def double(n: int) -> int:
        return n * 2

    @queue.task(attempts=1)
    def broken() -> None:
        raise ValueError("no")

    double.add(4)
    assert take(queue).run().state == State.FINISHED
    assert seen == ["in", "out", ("outer", "double", 1, 8)]
    seen.clear()
    broken.add()
    assert "ValueError: no" in failure(take(queue))
    assert seen == ["in", "out", ("outer", "broken", 1, "no")]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_hook_may_turn_an_exception_into_another_end(queue: Queue, is_coroutine: bool) -> None:
    """For functions and coroutines, by sync and async hooks."""

    @queue.around_run
    async def turn(job: ClaimedJob) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        try:
            yield
        except KeyError as error:
            raise Failed(f"no {error}") from error
        except OSError:
            raise Retry("1h", counts=False) from None

    def run(kind: str) -> None:
        raise {"key": KeyError("k"), "os": OSError("net"), "other": ValueError("v")}[kind]

    async def run_async(kind: str) -> None:
        run(kind)

    queue.task("run", attempts=1)(run_async if is_coroutine else run)
    ends = {}
    for kind in ("key", "os", "other"):
        queue.add("run", {"kind": kind})
        after = take(queue).run()
        assert after.outcome is not None
        ends[kind] = (after.state, after.outcome.error)
    assert ends["key"] == (State.FAILED, "no 'k'")
    assert ends["os"][0] == State.QUEUED
    assert ends["other"] == (State.FAILED, "ValueError: v")


def test_a_hook_that_fails_before_the_run_fails_the_run(queue: Queue) -> None:
    """The handler is not called; hooks that were entered are left."""
    seen: list[str] = []

    @queue.around_run
    def outer(job: ClaimedJob) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            seen.append(str(error))
            raise

    @queue.around_run
    def inner(job: ClaimedJob) -> Iterator[None]:
        raise OSError("not now")
        yield

    @queue.task(attempts=1)
    def never() -> None:
        seen.append("ran")

    never.add()
    assert "not now" in failure(take(queue))
    assert seen == ["not now"]


# ── around an add ────────────────────────────────────────────────────────────────────────────────


def test_hooks_around_an_add_see_each_job_and_its_id(queue: Queue) -> None:
    """By tasks, names, `add_many` and the context of a run."""
    seen: list[Any] = []

    @queue.around_add
    def note(new: Any) -> Iterator[None]:
        job_id = yield
        seen.append((new.task, new.data, job_id))

    @queue.task
    def child(n: int) -> None: ...

    @queue.task
    def parent(ctx: Context) -> None:
        ctx.add(child, {"n": 5})

    handles = [child.add(1), queue.add("child", {"n": 2}), *child.add_many([(3,), (4,)])]
    assert seen == [("child", f'{{"n":{n}}}', handles[n - 1].id) for n in range(1, 5)]
    for handle in handles:
        handle.cancel()
    seen.clear()
    parent.add()
    take(queue).run()
    assert [task for task, _, _ in seen] == ["parent", "child"]


def test_a_hook_that_fails_adds_nothing_and_one_sees_a_refused_add(queue: Queue) -> None:
    """It cannot make an error of the add disappear."""
    errors: list[str] = []

    @queue.around_add
    def watch(new: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            errors.append(type(error).__name__)

    @queue.around_add
    def guard(new: Any) -> Iterator[None]:
        if new.task == "forbidden":
            raise PermissionError("not here")
        yield

    queue.task("forbidden")(lambda: None)
    queue.task("allowed")(lambda: None)
    with pytest.raises(PermissionError):
        queue.add("forbidden")
    assert queue.counts() == {}
    queue.add("allowed", unique="a")
    assert not queue.add("allowed", unique="a").is_new
    with pytest.raises(NotFound):
        queue.add("allowed", parent=12345)
    assert errors == ["PermissionError", "NotFound"]


def test_the_hooks_of_a_queue_for_asyncio() -> None:
    """The same, on an event loop."""
    aio, seen = connect_async("memory://"), list[Any]()

    @aio.on_start
    async def client() -> AsyncIterator[Client]:
        seen.append("open")
        yield Client()
        seen.append("close")

    @aio.around_run
    async def around(job: Any) -> AsyncIterator[None]:
        seen.append((yield))

    @aio.around_add
    async def adding(new: Any) -> AsyncIterator[None]:
        yield
        seen.append("added")

    @aio.task
    async def double(n: int, client: Client = INJECTED) -> int:
        assert client.is_open
        return n * 2

    async def main() -> None:
        await double.add(2)
        job = await aio.next()
        assert job is not None
        await job.run()
        await aio.close()

    asyncio.run(main())
    assert seen == ["added", "open", 4, "close"]
