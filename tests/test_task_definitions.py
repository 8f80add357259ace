"""The decorator: what it takes, what it refuses, and when a task may be defined again."""

import asyncio
import importlib
import re
import sys
from typing import Optional

import pytest

import holdfast
from holdfast import AsyncContext, BadInput, Context, StoreMissing, testing
from holdfast.queue.definition import TaskOptions


@pytest.fixture
def queue():
    with holdfast.connect("memory://") as queue:
        yield queue


async_queue = holdfast.connect_async("memory://")

# ── one name, one function ───────────────────────────────────────────────────────────────────────


def line_of(function):
    return f"{__file__}:{function.__code__.co_firstlineno}"


def test_two_functions_with_one_task_name_are_refused_naming_both_places(queue):
    @queue.task(name="mail")
    def first() -> None: ...

    def second() -> None: ...

    with pytest.raises(BadInput) as refused:
        queue.task(name="mail")(second)

    assert "'mail'" in str(refused.value)
    assert line_of(first.function) in str(refused.value)
    assert line_of(second) in str(refused.value)
    assert queue.tasks["mail"] is first


def test_a_second_function_of_the_same_name_in_one_file_is_refused(queue):
    """The usual mistake: copied, and not renamed."""

    def register():
        @queue.task
        def resize() -> None: ...

        @queue.task  # type: ignore[no-redef]
        def resize() -> None: ...  # noqa: F811

    with pytest.raises(BadInput, match="resize"):
        register()


def test_two_functions_with_one_task_name_are_refused_by_an_async_queue():
    queue = holdfast.connect_async("memory://")
    queue.task("mail")(lambda: 1)

    with pytest.raises(BadInput, match="mail"):
        queue.task("mail")(lambda: 2)


def test_the_same_def_may_be_executed_again(queue):
    def register():
        @queue.task
        def resize() -> None: ...

        return resize

    first, second = register(), register()

    assert first is not second
    assert queue.tasks == {"resize": second}


@pytest.fixture
def tasks_module(tmp_path, monkeypatch, queue):
    """Writes a module that decorates with `queue`, and imports it or loads it again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(holdfast, "the_queue", queue, raising=False)

    def load(text):
        (tmp_path / "reloaded_tasks.py").write_text(f"from holdfast import the_queue as queue\n{text}")
        importlib.invalidate_caches()
        module = sys.modules.get("reloaded_tasks")
        return importlib.reload(module) if module else importlib.import_module("reloaded_tasks")

    yield load
    sys.modules.pop("reloaded_tasks", None)


def test_a_reloaded_module_may_define_its_tasks_again(queue, tasks_module):
    """Also where the function has moved to another line."""
    tasks_module("@queue.task\ndef resize(): return 1\n")
    tasks_module("# A line more.\n\n@queue.task\ndef resize(): return 2\n")

    assert queue.tasks["resize"]() == 2


def test_a_reloaded_module_with_one_name_twice_is_refused(queue, tasks_module):
    tasks_module("@queue.task\ndef resize(): return 1\n")

    with pytest.raises(BadInput, match=r"reloaded_tasks\.py:2.*reloaded_tasks\.py:4"):
        tasks_module("@queue.task\ndef resize(): return 2\n@queue.task\ndef resize(): return 3\n")


def test_a_notebook_may_define_a_task_again_in_a_later_cell(queue):
    space = {"__name__": "notebook_session", "queue": queue}
    for number in (1, 2):
        cell = f"# cell {number}\n" * number + f"@queue.task\ndef resize(): return {number}\n"
        exec(compile(cell, f"<cell {number}>", "exec"), space)

    assert queue.tasks["resize"]() == 2
    twice = compile("@queue.task\ndef resize(): ...\n" * 2, "<cell 3>", "exec")
    with pytest.raises(BadInput, match="<cell 3>:1"):
        exec(twice, space)


# ── what the decorator takes ─────────────────────────────────────────────────────────────────────


def test_a_task_is_named_by_the_first_argument(queue):
    @queue.task("mail/send", attempts=3)
    def send(to: str) -> None: ...

    @async_queue.task("mail/send")
    async def send_async(to: str) -> None: ...

    assert (send.name, queue.tasks) == ("mail/send", {"mail/send": send})
    assert queue.get(send.add("you")).max_attempts == 3
    assert send_async.name == "mail/send"
    with pytest.raises(BadInput, match="name"):
        queue.task("mail/send", name="other")


def test_an_async_queue_takes_a_bare_decorator():
    queue = holdfast.connect_async("memory://")

    @queue.task
    async def send(to: str) -> None: ...

    assert queue.tasks == {"send": send}


@pytest.mark.parametrize("thing", [int, 7, None, dict, object], ids=str)
def test_what_is_no_function_is_refused_by_the_decorator(queue, thing):
    with pytest.raises(BadInput, match=r"task.*a function, made by def or async def"):
        queue.task()(thing)
    assert queue.tasks == {}


def test_a_method_is_refused_unless_it_needs_no_object(queue):
    """So is `self` for the context, as Celery has it."""

    class Mailer:
        @staticmethod
        def send(to: str) -> None: ...

        def resend(self, to: str) -> None: ...

    with pytest.raises(BadInput, match=r"parameter self of task resend .* use ctx: Context"):
        queue.task(Mailer.resend)
    assert queue.task(Mailer.send).name == "send"
    assert queue.task(Mailer().resend).name == "resend"


def test_an_unknown_option_of_the_decorator_is_told_all_that_there_are(queue):
    for one, options in ((queue, TaskOptions), (async_queue, TaskOptions)):
        with pytest.raises(BadInput) as refused:
            one.task(prio=1)  # type: ignore[call-overload]
        listed = re.findall(r"\w+", str(refused.value).partition("one of")[2])
        assert set(listed) == {*options.__annotations__, "batch"}


def test_an_unknown_option_of_a_job_is_told_all_that_there_are(queue):
    for add in (queue.add, queue.call, lambda *_, **o: queue.add_many([("work", 1)], **o)):
        with pytest.raises(BadInput, match=r"'prio'.*at_most_once, attempts, .*, unique_for"):
            add("work", prio=1)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("retries", "attempts, as it is called here"),
        ("job_timeout", "timeout, as it is called here"),
        ("queueing_lock", "unique, as it is called here"),
        ("timout", "timeout, if you mistyped it"),
        ("prioritty", "priority, if you mistyped it"),
        ("zzz", "one of at_most_once"),
    ],
)
def test_an_option_of_another_queue_or_with_a_typing_error_is_told_what_it_is_here(queue, given, meant):
    with pytest.raises(BadInput, match=f"option is '{given}', and must be {meant}"):
        queue.task(**{given: 1})


def test_an_option_of_the_decorator_or_of_a_schedule_is_told_what_takes_it(queue):
    @queue.task
    def work(n: int) -> None: ...

    with pytest.raises(BadInput, match=r"'soft_timeout', .* only the decorator of the task can take it"):
        work.using(soft_timeout="5s")
    with pytest.raises(BadInput, match=r"'cron', .* only queue\.schedule, and the decorator of the task"):
        work.using(cron="@daily")


def test_a_task_with_a_cron_line_and_a_required_parameter_is_told_why_that_cannot_be(queue):
    def report(day: str, full: bool = True) -> None: ...

    with pytest.raises(BadInput, match=r"parameter day of task report is required, .* without arguments"):
        queue.task(cron="@daily")(report)
    assert queue.schedules() == []


def test_a_connection_is_refused_where_it_is_not_taken(queue):
    @queue.task
    def work(n: int) -> None: ...

    with pytest.raises(BadInput, match=r"absent: task\.using\(connection=…\)\.add\(…\), queue\.add and"):
        work.add(1, connection=None)


def test_a_context_may_be_optional(queue):
    seen = []

    @queue.task
    def union(ctx: Context | None = None, n: int = 0) -> None:
        seen.append((ctx, n))

    @queue.task
    def optional(n: int, ctx: Optional["Context"] = None) -> None:
        seen.append((ctx, n))

    union(n=1)
    union.add(n=2)
    optional.add(3)
    queue.next(renew=False).run()
    queue.next(renew=False).run()

    assert seen[0] == (None, 1)
    assert [type(ctx) for ctx, _ in seen[1:]] == [Context, Context]
    assert [n for _, n in seen] == [1, 2, 3]


def test_an_optional_context_is_known_by_its_name_where_annotations_cannot_be_resolved(queue):
    def union(ctx, n=1) -> None: ...
    def optional(ctx, n=1) -> None: ...

    union.__annotations__ = {"ctx": "holdfast.Context | None", "n": "Unknown"}
    optional.__annotations__ = {"ctx": "Optional[holdfast.Context]", "n": "Unknown"}

    for function in (union, optional):
        assert queue.task(function).signature.context == ("ctx", Context)


def test_a_context_of_the_wrong_kind_is_told_which_is_needed(queue):
    async def wrong(ctx: Context) -> None: ...
    def other(ctx: AsyncContext | None) -> None: ...

    with pytest.raises(BadInput, match="one AsyncContext, as its function is made by async def"):
        queue.task(wrong)
    with pytest.raises(BadInput, match="one Context, as its function is made by def"):
        queue.task(other)


# ── repr ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_shows_its_address_tenant_and_tasks_and_no_password():
    queue = holdfast.connect("postgresql://me:secret@db.example/jobs?password=secret2", tenant="acme")

    assert repr(queue) == "<Queue 'postgresql://me@db.example/jobs?password=…', tenant 'acme', 0 tasks>"
    queue.task("work")(lambda: None)
    assert repr(queue).endswith(", 1 task>")
    assert repr(holdfast.connect_async("memory://")) == "<AsyncQueue 'memory://', 0 tasks>"


# ── what modules declare ─────────────────────────────────────────────────────────────────────────

APP = """
import holdfast
queue = holdfast.connect({store!r})
queue.limit("api", rate="10/s")
queue.schedule("weekly", "sweep", cron="@weekly")

@queue.task(cron="@daily")
def sweep() -> None: ...

aio = holdfast.connect_async({store!r}, tenant="aio")

@aio.task(every="10m")
async def poll() -> None: ...
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    store = tmp_path / "jobs.db"
    (tmp_path / "declaring_app.py").write_text(APP.format(store=str(store)))
    monkeypatch.syspath_prepend(tmp_path)
    app = importlib.import_module("declaring_app")
    yield app
    app.queue.close()
    asyncio.run(app.aio.close())
    del sys.modules["declaring_app"]


def test_nothing_is_written_when_a_module_is_imported(app, tmp_path):
    """A claim writes what it has declared, and so does `sync`."""
    assert not (tmp_path / "jobs.db").exists()
    with pytest.raises(StoreMissing), holdfast.connect(app.queue.url, create=False) as other:
        other.schedules()

    assert app.queue.next() is None
    assert [one.name for one in app.queue.schedules()] == ["sweep", "weekly"]
    assert [*app.queue.limits()] == [b"api"]
    asyncio.run(app.aio.sync())
    with holdfast.connect(app.queue.url, tenant="aio") as other:
        assert [one.name for one in other.schedules()] == ["poll"]


def test_what_is_declared_is_written_once_by_a_process(app):
    """What an operator changes later stays, until the program declares something else."""
    app.queue.sync()
    with holdfast.connect(app.queue.url) as operator:
        operator.unschedule("weekly")
        operator.limit("api", rate="1/s")
        app.queue.next()
        app.queue.sync()
        assert [one.name for one in operator.schedules()] == ["sweep"]
        assert operator.limits()[b"api"].rate == 1

    with testing.in_memory(app.queue):
        app.queue.sync()
        assert [one.name for one in app.queue.schedules()] == ["sweep", "weekly"]
