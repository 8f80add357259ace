"""What a type checker must say of tasks and queues. Nothing here runs: mypy reads it with the rest.

A line that must be refused has an `ignore` with its code; were it not refused, the ignore would be
unused, which is an error too.
"""

from datetime import datetime
from typing import Any, assert_type

import holdfast
from holdfast import (
    AsyncClaimedJob,
    AsyncContext,
    AsyncHandle,
    AsyncQueue,
    ClaimedJob,
    Context,
    Failed,
    Handle,
    Job,
    JobFailed,
    JobGroup,
    PreparedCall,
    Queue,
    Schedule,
    Task,
)
from holdfast.core.commands import NewJob
from holdfast.core.errors import ChildFailed
from holdfast.indexed import (
    Appended,
    Consumer,
    ConsumerGroup,
    IndexedJob,
    Items,
    Log,
    Pipeline,
    Progress,
    pipeline,
    stage,
)

queue = holdfast.connect("jobs.db")
assert_type(queue, Queue)


@queue.task
def resize(path: str, width: int = 100) -> bytes:
    """A task without options."""
    return path.encode() * width


@queue.task(attempts=5, timeout="2m", domain=str.lower)
def fetch(url: str, *, deep: bool = False) -> dict[str, int]:
    """A task with options."""
    return {url: deep}


@queue.task
def told(ctx: Context, path: str, *, deep: bool = False) -> int:
    """A task with a context, which no caller gives."""
    return ctx.step("size", len, path) + deep


@queue.task(timeout="2m", soft_timeout="100s")
def told_too(ctx: Context) -> list[int]:
    """The same with options."""
    return ctx.children()[0].claim * [ctx.attempt]


@queue.task(cancel="raise")
async def told_on_a_loop(ctx: AsyncContext, path: str) -> int:
    """A coroutine function."""

    async def size(of: str) -> int:
        return len(of)

    assert_type(await ctx.step("size", size, path), int)
    assert_type(await ctx.step("plain", str.upper, path), str)
    return await ctx.add("resize", priority=1)


@queue.task(batch=100)
def index(pages: list[str]) -> list[int]:
    """A batch."""
    return [len(page) for page in pages]


@queue.task(batch=100)
async def index_on_a_loop(pages: list[str]) -> list[int | Failed]:
    """A batch of a coroutine function."""
    return [len(page) or Failed("empty") for page in pages]


def contexts_and_batches(ctx: Context) -> None:
    """A context is no argument of `add`; a batch's jobs are its items."""
    assert_type(told.add("a", deep=True).result(), int)
    assert_type(told_too.add(), Handle[list[int]])
    assert_type(told_on_a_loop.add("a").result(wait=1), int)
    assert_type(told_on_a_loop.using(delay=1).add("a"), Handle[int])
    assert_type(told_on_a_loop.add_many([("a",)]), list[Handle[int]])
    assert_type(index.add("page"), Handle[int])
    assert_type(index_on_a_loop.add("page"), Handle[int | Failed])
    assert_type(ctx.deadline, datetime | None)
    told.add(ctx, "a")  # type: ignore[arg-type, call-arg]
    told.add(7)  # type: ignore[arg-type]
    told_too.add("a")  # type: ignore[call-arg]
    told_on_a_loop.add(7)  # type: ignore[call-overload]
    index.add(7)  # type: ignore[arg-type]
    queue.task(batch=5)(len)  # type: ignore[arg-type]
    ctx.step("size", len, 7)  # type: ignore[arg-type]
    ctx.progress("half")  # type: ignore[arg-type]
    queue.task(batch="many")  # type: ignore[call-overload]
    queue.task(cancel="perhaps")  # type: ignore[call-overload]


def tasks() -> None:
    """Arguments and results keep their types through `add`."""
    assert_type(resize("a", 1), bytes)
    assert_type(resize.add("a", 1), Handle[bytes])
    assert_type(resize.add("a"), Handle[bytes])
    assert_type(resize.add(path="a", width=1), Handle[bytes])
    assert_type(resize.add("a", 1).result(wait="10s"), bytes)
    assert_type(resize.using(delay="30s", priority=900).add("a", 1), Handle[bytes])
    assert_type(resize.call("a"), PreparedCall[bytes])
    prepared: NewJob = resize.call("a")
    queue.add_many([prepared])
    assert_type(resize.add_many([("a", 1), {"path": "b"}]), list[Handle[bytes]])
    assert_type(fetch.add("a", deep=True).result(), dict[str, int])


def refused_calls() -> None:
    """What the function would not take."""
    resize.add()  # type: ignore[call-arg]
    resize.add(1, 1)  # type: ignore[arg-type]
    resize.add("a", "wide")  # type: ignore[arg-type]
    resize.add("a", 1, 2)  # type: ignore[call-arg]
    resize.add("a", height=1)  # type: ignore[call-arg]
    resize.using().add("a", None)  # type: ignore[arg-type]
    resize("a", "wide")  # type: ignore[arg-type]
    fetch.add("a", True)  # type: ignore[call-arg]
    fetch.call(url=7)  # type: ignore[arg-type]


def refused_jobs_and_tasks() -> None:
    """What names no job, and what names no task."""
    queue.get(None)  # type: ignore[arg-type]
    queue.cancel(1.5)  # type: ignore[arg-type]
    queue.add("resize", parent=resize)  # type: ignore[call-overload]
    queue.add(len)  # type: ignore[call-overload]
    queue.next([7])  # type: ignore[list-item]
    queue.add(7)  # type: ignore[call-overload]


def options_that_are_none(priority: int | None, then: Task[[bytes], None] | None) -> None:
    """They count as not given."""
    resize.using(priority=priority, then=then, delay=None)
    queue.add("resize", priority=priority, domain=None)


def functions_that_go_on(ctx: Context) -> None:
    """What is called has the type that its task returns, and a signal the one that is asked for."""
    assert_type(ctx.call(resize, "a", width=1), bytes)
    assert_type(ctx.call(told_on_a_loop, "a"), int)
    assert_type(ctx.call(resize.call("a")), bytes)
    assert_type(ctx.call(told_on_a_loop.using(delay=1).call("a")), int)
    assert_type(ctx.gather(*[resize.call(path) for path in "ab"]), list[bytes])
    assert_type(ctx.gather(told_on_a_loop.call("a")), list[int])
    assert_type(ctx.gather(resize.call("a"), return_exceptions=True), list[bytes | ChildFailed])
    assert_type(ctx.wait_for("go", type=Schedule), Schedule)
    assert_type(ctx.wait_for("go", type=Schedule, timeout="1h", default=None), Schedule | None)
    children = ctx.add_many([resize.call("a")])
    assert_type([resize.handle(child).result() for child in children], list[bytes])
    ctx.call(resize, 7)  # type: ignore[call-overload]


async def coroutines_that_go_on(ctx: AsyncContext) -> None:
    """The same in asyncio."""
    assert_type(await ctx.call(resize, "a"), bytes)
    assert_type(await ctx.call(told_on_a_loop, "a"), int)
    assert_type(await ctx.gather(*[told_on_a_loop.call(path) for path in "ab"]), list[int])
    assert_type(await ctx.wait_for("go", type=Schedule), Schedule)
    assert_type(await ctx.version("v2"), bool)
    await ctx.sleep("3 days")


def accepted_jobs_and_tasks(handle: Handle[int], job: Job, claimed: ClaimedJob, ctx: Context) -> None:
    """A job by its id, its text, its handle or its record; a task by its name or itself."""
    assert_type([queue.get(one) for one in (7, "7", handle, job, claimed)], list[Job])
    queue.add("resize", {"path": "a"}, parent=handle, then=(fetch, {"url": "b"}))
    queue.add_many([("resize", {"path": "a"}), (resize, {"path": "b"}), resize.call("c")])
    queue.next([resize, "fetch"])
    ctx.add(resize.call("a"))
    claimed.retry(1, reason=ValueError("no"))


def failed(error: JobFailed) -> str:
    """The error of a job has the outcome of its last run."""
    return error.outcome.traceback if error.outcome else ""


def refused_options() -> None:
    """What no job has, and what is of the wrong type."""
    queue.add("resize", prio=1)  # type: ignore[call-overload]
    queue.add("resize", priority="high")  # type: ignore[call-overload]
    queue.add("resize", on_conflict="overwrite")  # type: ignore[call-overload]
    resize.using(when_child_fails="panic")  # type: ignore[arg-type]
    resize.using(prio=1)  # type: ignore[call-arg]
    queue.call("resize", {}, prio=1)  # type: ignore[call-overload]
    queue.add("resize", then=7)  # type: ignore[call-overload]
    queue.schedule("s", resize, every=60, catch_up="some")  # type: ignore[arg-type]
    queue.task(attempts="five")  # type: ignore[call-overload]
    queue.schedule("s", resize, every=60, repeats="DAILY")  # type: ignore[call-arg]


def by_hand(job: ClaimedJob) -> None:
    """The verbs of queues and of claimed jobs."""
    assert_type(queue.add("resize", {"path": "a"}), Handle[Any])
    assert_type(queue.find(resize, unique="a"), Handle[bytes] | None)
    assert_type(queue.find("resize", unique="a"), Handle[Any] | None)
    assert_type(resize.handle(7), Handle[bytes])
    assert_type(told_on_a_loop.handle(queue.get(7)).result(), int)
    assert_type(queue.gather([told_on_a_loop.call(path) for path in "ab"]).results(), list[int])
    assert_type(queue.gather([resize.call("a")], when_done=fetch).follower, Handle[Any])
    assert_type(resize.handle(queue.gather([resize.call("a")], when_done=fetch).follower), Handle[bytes])
    assert_type(queue.gather([resize.call("a")]).results(failures="return"), list[bytes | JobFailed])
    assert_type(queue.gather([("resize", {"path": "a"})]), JobGroup[Any])
    assert_type(queue.add_many([resize.call("a")]), list[Handle[bytes]])
    assert_type(queue.add_many([("resize", {"path": "a"})]), list[Handle[Any]])
    assert_type(queue.add(resize, {"path": "a"}), Handle[bytes])
    assert_type(queue.add(told_on_a_loop, {"path": "a"}), Handle[int])
    assert_type(queue.call(resize, {"path": "a"}), PreparedCall[bytes])
    assert_type(queue.result(resize.add("a")), bytes)
    assert_type(queue.result(7, wait=1), Any)
    assert_type(queue.next(["resize"], wait=5), ClaimedJob | None)
    assert_type(queue.claim([resize, "fetch"], limit=10), list[ClaimedJob])
    assert_type(queue.get(7), Job)
    assert_type(queue.counts(), dict[str, dict[str, int]])
    assert_type(queue.schedule("s", resize.call("a"), cron="0 4 * * *"), Schedule)
    assert_type(job.done(1), Job)
    assert_type(job.add("child"), Handle[Any])
    assert_type(job.children(), list[Job])
    job.retry(delay=[1])  # type: ignore[arg-type]
    job.progress("half")  # type: ignore[arg-type]


def worked(queue: Queue) -> None:
    """The room that can be called has the types of the function."""
    assert_type(holdfast.work(queue, tasks=[resize], threads=2, seconds="1m"), int)
    holdfast.work(queue, threads="two")  # type: ignore[arg-type]
    holdfast.work("jobs.db")  # type: ignore[arg-type]
    holdfast.enqueue(queue)  # type: ignore[attr-defined]


def wants_a_task(task: Task[[str, int], bytes]) -> Handle[bytes]:
    """A task can be passed on with its types."""
    return task.add("a", 1)


async def awaited(queue: AsyncQueue, job: AsyncClaimedJob) -> None:
    """The same in asyncio."""

    @queue.task(attempts=2)
    async def crop(path: str) -> int:
        return len(path)

    assert_type(await crop("a"), int)
    assert_type(await queue.find(crop, unique="a"), AsyncHandle[int] | None)
    assert_type(await crop.handle("7").result(), int)
    assert_type(await queue.add_many([crop.call("a")]), list[AsyncHandle[int]])
    group = await queue.gather([crop.call("a")], when_done=crop.call("b"))
    assert_type(await group.results(), list[int])
    assert_type(await group.results(failures="return"), list[int | JobFailed])
    assert_type(crop.handle(group.follower), AsyncHandle[int])

    @queue.task(batch=2)
    async def sizes(paths: list[str]) -> list[int]:
        return [len(path) for path in paths]

    @queue.task
    def shout(text: str) -> bytes:
        return text.upper().encode()

    assert_type(await crop.add("a"), AsyncHandle[int])
    assert_type(await crop.using(delay=1).add("a"), AsyncHandle[int])
    assert_type(await crop.add_many([("a",)]), list[AsyncHandle[int]])
    assert_type(await sizes.add("a"), AsyncHandle[int])
    assert_type(await (await shout.add("a")).result(wait=1), bytes)
    assert_type(await queue.add(crop, {"path": "a"}), AsyncHandle[int])
    assert_type(await queue.result(await crop.add("a")), int)
    await crop.add(7)  # type: ignore[call-overload]
    await sizes.add(7)  # type: ignore[arg-type]
    assert_type(await queue.next(), AsyncClaimedJob | None)
    assert_type(await queue.get(7), Job)
    assert_type(await job.done(1), Job)
    assert_type(await holdfast.work_async(queue, until_empty=True), int)


def indexed(log: Log[int], progress: Progress) -> None:
    """Items keep their type from the log to the worker."""

    def run(job: IndexedJob[int]) -> None:
        assert_type(job.item, int)

    def other(job: IndexedJob[str]) -> None:
        assert_type(job.item, str)

    assert_type(log.append(5), Appended)
    assert_type(log.at(1), IndexedJob[int])
    assert_type(Items(str).to_job("a"), IndexedJob[str])
    assert_type(pipeline(log, stage(run), queue=queue), Pipeline)
    assert_type(Consumer(log, progress, run).progress, Progress)
    Consumer(log, progress, other)  # type: ignore[arg-type]
    ConsumerGroup(log, progress, run)
    ConsumerGroup(log, progress, other)  # type: ignore[arg-type]
    log.append("five")  # type: ignore[arg-type]
