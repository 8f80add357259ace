"""Tasks: functions whose calls can be queued, with arguments that travel by name along their annotations."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from holdfast.core.errors import BadInput
from holdfast.core.job import Job, State
from holdfast.queue.answers import Failed
from holdfast.queue.queue import Queue

from .fixtures import START_MS, MakeQueue
from .tools import MINUTE_MS, take, unchanged


class Colour(Enum):
    """One of two."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Size:
    """A record of one's own."""

    width: int
    height: int = 1


# ── calls ────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_called_or_queued(queue: Queue) -> None:
    """To call it just calls it; to add it queues the same call, and the result is what it returns."""

    @queue.task
    def join(first: str, second: str = "b", *, times: int = 1) -> str:
        return (first + second) * times

    assert join("a", times=2) == "abab"
    added = join.add("x", times=2)
    assert (queue.data(added), added.get().task) == ({"first": "x", "times": 2}, "join")
    take(queue).run()

    assert added.result() == "xbxb"


def test_a_call_by_name_is_the_same_job(queue: Queue) -> None:
    """So a job made elsewhere runs in Python, and the other way round."""

    @queue.task
    def join(first: str, second: str) -> str:
        return first + second

    by_name = queue.add("join", {"first": "a", "second": "b"})
    by_task = join.add(second="b", first="a")
    whole = queue.add(join, {"first": "a", "second": "b"})
    for _ in range(3):
        take(queue).run()

    assert [job.result() for job in (by_name, by_task, whole)] == ["ab"] * 3
    assert queue.data(by_name) == queue.data(by_task)


def test_arguments_keep_their_types(queue: Queue) -> None:
    """Dataclasses, enums, times, numbers and lists of them come back as what they were."""
    seen: list[Any] = []

    @queue.task
    def keep(size: Size, colour: Colour, at: datetime, key: UUID, sizes: list[Size]) -> Size:
        seen.extend([size, colour, at, key, sizes])
        return size

    given = (Size(1), Colour.BLUE, datetime(2026, 1, 1, tzinfo=UTC), UUID(int=7), [Size(2, 3)])
    added = keep.add(*given)
    take(queue).run()

    assert tuple(seen) == given
    assert queue.result(added) == Size(1)


def test_a_result_has_the_type_of_the_return_annotation(queue: Queue, make_queue: MakeQueue) -> None:
    """Of coroutines and of the items of a batch too; where the task is not known it is what JSON has."""
    when = datetime(2026, 11, 15, tzinfo=UTC)

    @queue.task
    def grow(size: Size) -> Size:
        return Size(size.width * 2)

    @queue.task
    async def ends() -> tuple[datetime, Colour] | Failed:
        return when, Colour.RED

    @queue.task(batch=10)
    def paint(names: list[str]) -> list[Colour | Failed]:
        return [Colour(name) for name in names]

    added = [grow.add(Size(4)), ends.add(), paint.add("blue")]
    for _ in added:
        take(queue).run()

    assert [job.result() for job in added] == [Size(8), (when, Colour.RED), Colour.BLUE]
    assert queue.result(added[0].id) == Size(8)
    assert make_queue().result(added[0].id) == {"width": 8, "height": 1}


def test_a_result_that_does_not_fit_the_annotation_is_what_json_has(queue: Queue) -> None:
    """As one of an older version of the task; one that cannot be read of JSON as well."""
    queue.task(name="late")(returning("soon", datetime))
    queue.task(name="count")(returning(Counter("aab"), Counter))
    queue.task(name="raw")(returning(b"\xff", str))

    jobs = [queue.add(name) for name in ("late", "count", "raw")]
    for _ in jobs:
        take(queue).run()

    assert [job.result() for job in jobs] == ["soon", {"a": 2, "b": 1}, b"\xff"]


def returning(value: Any, kind: type) -> Callable[[], Any]:
    """A function that returns a value under an annotation."""

    def function() -> Any:
        return value

    function.__annotations__["return"] = kind
    return function


def test_options_go_with_the_task_and_then_with_the_call(queue: Queue) -> None:
    """`using` goes before what the decorator says."""

    @queue.task(attempts=5, priority=100, timeout="2m")
    def work(n: int) -> int:
        return n

    plain, other = work.add(1).get(), work.using(priority=900, delay="1m").add(2).get()

    assert (plain.max_attempts, plain.priority, plain.timeout_ms) == (5, 100, 2 * MINUTE_MS)
    assert (other.max_attempts, other.priority, other.run_at) == (5, 900, START_MS + MINUTE_MS)


def test_the_jobs_of_a_task_are_listed_by_the_task_or_its_name(queue: Queue) -> None:
    """As they are claimed and paused."""

    @queue.task
    def resize() -> None: ...

    job = resize.add()
    queue.add("other")

    assert queue.jobs(task=resize) == queue.jobs(task="resize") == [job.get()]


def test_an_option_that_is_none_is_not_given(queue: Queue) -> None:
    """However the call is made, the job has what the decorator says."""

    @queue.task(priority=900, domain="cdn", unique_for="1m", unique="key", delay="1m", attempts=3)
    def resize() -> None: ...

    none: Any = dict.fromkeys(("priority", "domain", "unique_for", "unique", "delay", "attempts"))
    (many,) = queue.add_many([resize.call()], **none)
    jobs = [resize.using(**none).call(), queue.call("resize", **none)]

    assert jobs == [resize.call()] * 2
    assert [queue.add("resize", **none), *resize.add_many([()], **none)] == [many] * 2


def test_a_domain_may_be_a_function_of_the_arguments(queue: Queue) -> None:
    """None is none."""

    def host(url: str, deep: bool = False) -> str | None:
        return None if deep else url.partition("/")[0]

    @queue.task(domain=host)
    def fetch(url: str, deep: bool = False) -> None:
        """Nothing."""

    assert fetch.add("example.com/a").get().domain == b"example.com"
    assert fetch.add("example.com/a", deep=True).get().domain is None
    assert fetch.using(domain="other").add("example.com/a").get().domain == b"other"


def test_many_calls_are_added_at_once(queue: Queue) -> None:
    """As tuples or as dicts."""

    @queue.task
    def add(a: int, b: int = 10) -> int:
        return a + b

    added = add.add_many([(1,), (1, 2), {"a": 5}])
    for _ in range(3):
        take(queue).run()

    assert [job.result() for job in added] == [11, 3, 15]


def test_a_task_may_want_the_whole_job(queue: Queue) -> None:
    """A parameter annotated `Job` gets it, with its data, whatever that is."""
    seen: list[Any] = []

    @queue.task
    def whole(job: Job) -> None:
        seen.append(job)

    added = queue.add("whole", [1, 2])
    take(queue).run()

    assert (seen[0].id, seen[0].data) == (added.id, [1, 2])


@pytest.mark.parametrize("data", [7, "text", [1, 2], b"\xff"], ids=repr)
def test_data_that_is_no_object_goes_to_the_only_parameter(queue: Queue, data: Any) -> None:
    """As it is."""

    @queue.task
    def echo(value: Any) -> Any:
        return value

    added = queue.add("echo", data)
    take(queue).run()

    assert added.result() == data


def test_a_task_may_take_any_named_arguments(queue: Queue) -> None:
    """Beside those that it names."""

    @queue.task
    def gather(a: int, **rest: Any) -> Any:
        return {"a": a, **rest}

    added = gather.add(1, b=2, c=[3])
    take(queue).run()

    assert added.result() == {"a": 1, "b": 2, "c": [3]}


def test_a_task_may_have_another_name(queue: Queue) -> None:
    """By which its jobs go."""

    @queue.task(name="mail/send v2")
    def send(to: str) -> str:
        return to

    added = send.add("you")

    assert (added.get().task, repr(send)) == ("mail/send v2", "<Task 'mail/send v2'>")
    take(queue, "mail/send v2").run()
    assert added.result() == "you"


def test_a_task_may_be_named_by_a_member_of_an_enum_of_texts(queue: Queue) -> None:
    """By its value, wherever a name is taken: a job of the task "Tasks.RESIZE" would never run."""

    class Tasks(str, Enum):  # noqa: UP042 - `str()` of a StrEnum is its value
        RESIZE = "resize"

    @queue.task(Tasks.RESIZE)
    def resize(width: int) -> int:
        return width

    jobs = [resize.add(1), queue.add(Tasks.RESIZE, {"width": 2})]
    jobs += queue.add_many([(Tasks.RESIZE, {"width": 3}), queue.call(Tasks.RESIZE, {"width": 4})])
    for _ in jobs:
        claimed = queue.next([Tasks.RESIZE])
        assert claimed is not None
        claimed.run()

    assert [job.result() for job in jobs] == [1, 2, 3, 4]
    assert list(queue.counts()) == ["resize"]


def test_a_task_follows_another(queue: Queue) -> None:
    """`then=` takes a task, and its only parameter gets the result."""

    @queue.task
    def shout(text: str) -> str:
        return text.upper()

    @queue.task(then=shout)
    def greet(name: str) -> str:
        return f"hello {name}"

    greet.add("you")
    take(queue).run()
    job = take(queue, "shout")
    job.run()

    assert queue.result(job.id) == "HELLO YOU"


def test_a_task_may_answer_for_its_job_itself(queue: Queue) -> None:
    """Where it has it; then that is the answer."""

    @queue.task
    def impatient(job: Job) -> None:
        held: Any = job
        held.retry("1m", counts=False)

    added = queue.add("impatient")
    take(queue).run()

    assert (added.get().state, added.get().run_at) == (State.QUEUED, START_MS + MINUTE_MS)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def test_a_call_that_the_function_would_not_take_is_not_queued(queue: Queue) -> None:
    """Missing, too many, unknown or of the wrong type: refused by the producer, by the task's name."""

    @queue.task
    def resize(path: str, width: int) -> None:
        """Nothing."""

    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("a",), {}),
        (("a", 1, 2), {}),
        (("a", 1), {"height": 2}),
        (("a", "wide"), {}),
        ((1, 1), {}),
        (("a", None), {}),
        (("a", object()), {}),
    ]
    add: Callable[..., Any] = resize.add
    for args, kwargs in bad:
        with unchanged(queue), pytest.raises(BadInput, match="task resize"):
            add(*args, **kwargs)


def test_functions_whose_arguments_have_no_names_are_no_tasks(queue: Queue) -> None:
    """`*args` and positional-only parameters are refused at the decorator, by name."""

    def star(*paths: str) -> None:
        """Nothing."""

    def only(path: str, /) -> None:
        """Nothing."""

    for function, name in ((star, r"\*paths"), (only, "path")):
        with pytest.raises(BadInput, match=f"parameter {name} of task {function.__name__}"):
            queue.task(function)
    assert queue.tasks == {}


def test_bad_options_of_a_task_are_refused_where_they_are_written(queue: Queue) -> None:
    """Not at the first call."""
    for options in ({"attempts": -1}, {"timeout": "soon"}, {"prio": 1}, {"priority": 2_000}):
        with pytest.raises(BadInput, match=next(iter(options))):
            queue.task(**options)(lambda: None)
    with pytest.raises(BadInput, match="task"):
        queue.task(name="a\nb")(lambda: None)
