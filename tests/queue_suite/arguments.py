"""Data and results that do not fit: refused where the task is known, else FAILED at the first run."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from holdfast.core.bounds import DATA_BYTES
from holdfast.core.errors import BadInput, JobFailed
from holdfast.core.job import State
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.context import Context
from holdfast.queue.queue import Queue

from .aio import Story, taken
from .tools import take, unchanged

Attach = Callable[[Queue], Any]


@dataclass
class Picture:
    """Pixels, annotated as bytes, and something without a type of its own."""

    pixels: bytes
    extra: Any = None


def attach_resize(queue: Queue) -> Any:
    """A task of two parameters."""

    @queue.task
    def resize(path: str, width: int = 100) -> None:
        """Nothing."""

    return resize


def attach_double(queue: Queue) -> Any:
    """A task of one typed parameter."""

    @queue.task
    def double(n: int) -> int:
        return 2 * n

    return double


def attach_ship(queue: Queue) -> Any:
    """A batch task of one parameter."""

    @queue.task(batch=10)
    def ship(pictures: list[Picture]) -> list[int]:
        return [len(picture.pixels) for picture in pictures]

    return ship


# What does not fit, and what the error must name.
MISFITS = [
    pytest.param(attach_resize, {"path": "a", "hieght": 1, "colour": 2}, "hieght, colour", id="unknown"),
    pytest.param(attach_resize, {"hieght": 1}, "hieght", id="unknown instead of a required one"),
    pytest.param(attach_resize, {}, "path", id="missing"),
    pytest.param(attach_resize, {"path": 7}, "argument path", id="wrong type"),
    pytest.param(attach_resize, [1, 2], "object", id="no object"),
    pytest.param(attach_resize, b"\xff", "path, width", id="bytes for two parameters"),
    pytest.param(attach_double, b"\xff", "bytes", id="bytes for a number"),
    pytest.param(attach_double, b"7", "bytes", id="bytes that would be a number"),
    pytest.param(attach_double, "seven", "int", id="text for a number"),
    pytest.param(attach_ship, {"extra": 1}, "pixels", id="item"),
    pytest.param(attach_ship, b"\xff", "bytes", id="bytes for an item"),
]


@pytest.mark.parametrize(("attach", "data", "named"), MISFITS)
def test_data_by_name_is_checked_where_the_task_is_known(
    queue: Queue, attach: Attach, data: Any, named: str
) -> None:
    """As the task's own `add` checks its arguments, and by whatever verb it is added."""
    task = attach(queue)
    match = f"task {task.name}.*{named}|{named}.*task {task.name}"

    for add in (
        lambda: queue.add(task.name, data),
        lambda: queue.add(task, data),
        lambda: queue.add_many([(task.name, data)]),
        lambda: queue.schedule("nightly", task.name, data, cron="0 0 * * *"),
    ):
        with unchanged(queue), pytest.raises(BadInput, match=match):
            add()


@pytest.mark.parametrize(("attach", "data", "named"), MISFITS)
def test_data_that_does_not_fit_fails_at_its_first_run(
    queue: Queue, attach: Attach, data: Any, named: str
) -> None:
    """Permanently, with the reason: another run would find the same data."""
    added = queue.add(attach.__name__.removeprefix("attach_"), data)
    attach(queue)

    take(queue).run()

    job = added.get()
    assert (job.state, job.claim) == (State.FAILED, 1)
    with pytest.raises(JobFailed, match=named):
        added.result()


def test_the_error_of_a_call_names_the_argument(queue: Queue) -> None:
    """With the types, not with the values."""
    resize = attach_resize(queue)
    loose = queue.task("loose")(lambda given: given)

    for call, message in (
        (lambda: resize.add("a", "wide"), "argument width of task resize is of type str.* of type int"),
        (resize.add, "argument path of task resize is missing"),
        (lambda: resize.add("a", 1, 2, 3), r"too many positional arguments.* must be resize\(path, width"),
        (lambda: loose.add({"x": [1, object()]}), r"argument given.x\[1\] of task loose is of type object"),
    ):
        with unchanged(queue), pytest.raises(BadInput, match=message):
            call()


def test_paths_travel_as_text(queue: Queue) -> None:
    """As arguments, results and steps."""

    @queue.task
    def move(ctx: Context, path: Path, others: list[PurePosixPath]) -> Path:
        assert ctx.step("folder", folder) == Path("new")
        return ctx.step("folder", folder) / path / others[0]

    def folder() -> Path:
        return Path("new")

    job = move.add(Path("a"), [PurePosixPath("b")])
    take(queue).run()

    assert str(job.result()) == "new/a/b"


def test_the_children_of_a_job_are_checked_too(queue: Queue) -> None:
    """By the claimed job that adds them."""
    task = attach_resize(queue)
    queue.add("parent")
    parent = take(queue)

    for data in ({"path": "a", "hieght": 1}, None):
        with unchanged(queue), pytest.raises(BadInput, match="task resize"):
            parent.add(task, data)


def test_a_task_with_any_named_arguments_takes_unknown_ones(queue: Queue) -> None:
    """By name as by its own `add`."""

    @queue.task
    def gather(a: int, **rest: Any) -> Any:
        return {"a": a, **rest}

    added = queue.add("gather", {"a": 1, "b": 2})
    take(queue).run()

    assert added.result() == {"a": 1, "b": 2}


def test_a_handler_that_raises_bad_input_itself_is_retried(queue: Queue) -> None:
    """Only the job's own data and result are final."""

    @queue.task
    def raises() -> None:
        raise BadInput("colour", "mauve", needed="known")

    added = raises.add()
    take(queue).run()

    assert (added.get().state, added.get().attempts) == (State.QUEUED, 1)


@pytest.mark.parametrize(
    "result",
    [object(), {"a": object()}, "\ud800", "x" * DATA_BYTES],
    ids=["object", "nested", "surrogate", "large"],
)
def test_a_result_that_cannot_be_written_fails_the_job_at_once(queue: Queue, result: Any) -> None:
    """It would be as it is after each of ten runs."""

    @queue.task
    def strange() -> Any:
        return result

    added = strange.add()
    take(queue).run()

    job = added.get()
    assert (job.state, job.claim) == (State.FAILED, 1)
    assert "result" in job.reason


def test_data_and_results_are_checked_by_asyncio_too(tell: Callable[[Story], None]) -> None:
    """The same refusals and the same permanent failures."""

    async def story(queue: AsyncQueue) -> None:
        early = await queue.add("resize", {"path": "a", "hieght": 1})

        @queue.task()
        async def resize(path: str) -> Any:
            return {"path": path, "handle": object()}

        for data in ({"path": "a", "hieght": 1}, {"path": math.nan}, None):
            with pytest.raises(BadInput, match="task resize"):
                await queue.add("resize", data)
        late = await resize.add("a")
        for _ in range(2):
            await (await taken(queue)).run()
        jobs = [await early.get(), await late.get()]
        assert [(job.state, job.claim) for job in jobs] == [(State.FAILED, 1)] * 2
        assert "hieght" in jobs[0].reason
        assert "result" in jobs[1].reason

    tell(story)


# ── what JSON cannot hold ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused_by_the_argument(queue: Queue, number: float) -> None:
    """They were written as null; for a task that is known and for any other."""

    @queue.task
    def scale(path: str, factor: float | None = None, rest: Any = None) -> None:
        """Nothing."""

    for add, named in (
        (lambda: scale.add("a", number), "factor"),
        (lambda: scale.add("a", rest={"of": [1.5, None, number]}), r"rest\.of\[2\]"),
        (lambda: queue.add("scale", {"path": "a", "factor": number}), "factor"),
        (lambda: queue.add("unknown", {"a": {"b": (1, number)}}), r"a\.b\[1\]"),
        (lambda: queue.add_many([("unknown", {"a": 1}), ("unknown", {"a": number})]), "a in"),
        (lambda: queue.add("unknown", number), "data"),
    ):
        with unchanged(queue), pytest.raises(BadInput, match=f"{named}.*(nan|inf).*finite number"):
            add()


def test_bytes_without_annotation_are_refused_by_the_argument(queue: Queue) -> None:
    """They would come back as base64 text; annotated as bytes they come back as they were."""

    @queue.task
    def store(picture: Picture, name: str = "", raw: bytes | None = None, extra: Any = None) -> int:
        return len(picture.pixels) + len(raw or b"") + bool(name or extra)

    for add, named in (
        (lambda: store.add(Picture(b"\xff"), extra=b"\xff"), "extra"),
        (lambda: store.add(Picture(b"\xff", extra=[b"\xff"])), r"picture\.extra\[0\]"),
        (lambda: store.add(Picture(b"\xff"), name=b"name"), "name"),  # type: ignore[arg-type]
        (lambda: queue.add("store", {"picture": {"pixels": b"\xff", "extra": b"\xff"}}), "picture.extra"),
        (lambda: queue.add("unknown", {"a": [b"\xff"]}), r"a\[0\]"),
    ):
        with unchanged(queue), pytest.raises(BadInput, match=f"{named}.*bytes"):
            add()
    for added in (
        store.add(Picture(b"\xff"), raw=b"\xff\xfe"),
        queue.add("store", {"picture": {"pixels": b"\xff"}, "raw": b"\xff\xfe"}),
    ):
        take(queue).run()
        assert added.result() == 3


def test_an_item_of_a_batch_is_checked_for_what_json_cannot_hold(queue: Queue) -> None:
    """As the arguments of a call are."""
    ship = attach_ship(queue)

    for extra in (math.nan, b"\xff"):
        with unchanged(queue), pytest.raises(BadInput, match="extra in the item of task ship"):
            ship.add(Picture(b"\xff", extra=extra))
    added = ship.add(Picture(b"\xff"))
    take(queue).run()

    assert added.result() == 1


@pytest.mark.parametrize("tenant", [0, b"", (), []])
def test_a_tenant_that_is_no_text_is_refused(queue: Queue, tenant: Any) -> None:
    """Also one that counts as false."""
    with unchanged(queue), pytest.raises(BadInput, match="tenant is"):
        queue.add("work", tenant=tenant)


def test_a_parent_that_was_not_added_is_refused(queue: Queue) -> None:
    """What `call` returns is no job yet."""
    with unchanged(queue), pytest.raises(BadInput, match="parent is 'a job that was not added'"):
        queue.add("work", parent=queue.call("parent"))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_result_that_json_would_change_fails_its_job(queue: Queue, number: float) -> None:
    """As data is refused that has such a number."""
    queue.add("work")

    with pytest.raises(BadInput, match=r"a\[0\] in the result.*finite number"):
        take(queue).done({"a": [number]})


def test_a_burst_without_a_rate_removes_no_limit(queue: Queue) -> None:
    """It is said of a limit that is there, or is to be."""
    queue.limit("d", rate=1, concurrency=2)

    with unchanged(queue), pytest.raises(BadInput, match="burst is 3"):
        queue.limit("d", burst=3)
