"""A trace leads from the span that adds a job to its run, whichever process and store is between them."""

import asyncio
import json
import logging
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.checks import check_new
from holdfast.core.errors import BadInput
from holdfast.queue import tracing
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import system_clock
from tests.stores import opener

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TIMEOUT_S = 120.0


@pytest.fixture
def queue():
    with holdfast.connect("memory://") as queue:
        yield queue


def parent_of(span: Any) -> str:
    """The id of the span that a span is a child of."""
    return f"{span.parent.span_id:016x}" if span.parent else ""


def id_of(span: Any) -> str:
    return f"{span.context.span_id:016x}"


def trace_of(span: Any) -> str:
    return f"{span.context.trace_id:032x}"


def run_all(queue: Queue) -> None:
    holdfast.work(queue, until_empty=True)


def test_a_run_is_a_child_of_its_add_which_is_a_child_of_the_callers_span(queue, spans, tracer):
    """With the attributes of the messaging conventions."""

    @queue.task
    def double(n: int) -> int:
        return 2 * n

    with tracer.start_as_current_span("request") as request:
        job = double.add(4)
    run_all(queue)

    add, run = spans.one("add double"), spans.one("run double")
    assert parent_of(add) == f"{request.get_span_context().span_id:016x}"
    assert (parent_of(run), trace_of(run)) == (id_of(add), trace_of(add))
    common = {"messaging.system": "holdfast", "messaging.destination.name": "double"}
    common["messaging.message.id"] = str(job.id)
    assert dict(add.attributes) == common | {
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
    }
    assert dict(run.attributes) == common | {
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "holdfast.attempt": 1,
        "holdfast.outcome": "finished",
    }
    assert (add.kind.name, run.kind.name) == ("PRODUCER", "CONSUMER")
    assert job.get().traceparent[3:52] == f"{trace_of(add)}-{id_of(add)}"
    assert job.get().trace_id == trace_of(add)


def test_without_an_active_span_nothing_is_kept_and_a_run_is_a_trace_of_its_own(queue, spans, tracer):
    queue.task(name="plain")(lambda: None)

    job = queue.add("plain")
    run_all(queue)

    assert job.get().traceparent == ""
    assert [(span.name, span.parent) for span in spans.all] == [("run plain", None)]


def test_errors_and_each_attempt_are_told(queue, spans, tracer, caplog):
    """The lines about a run have its trace, too."""

    @queue.task(attempts=2, backoff=0)
    def broken() -> None:
        raise ValueError("no good")

    with tracer.start_as_current_span("request"):
        broken.add()
    run_all(queue)

    runs = spans.named("run broken")
    assert [run.attributes["holdfast.attempt"] for run in runs] == [1, 2]
    assert [run.attributes["holdfast.outcome"] for run in runs] == ["retry", "failed"]
    for run in runs:
        assert run.attributes["error.type"] == "ValueError"
        assert (run.status.status_code.name, run.status.description) == ("ERROR", "ValueError: no good")
        assert run.events[0].attributes["exception.message"] == "no good"
    lines = [record for record in caplog.records if record.name == "holdfast.job"]
    assert {line.trace_id for line in lines} == {trace_of(runs[0])}


def test_a_run_that_waits_for_something_has_not_failed(queue, spans, tracer):
    @queue.task
    def ready() -> None:
        raise holdfast.Retry(delay=60, counts=False)

    ready.add()
    queue.next().run()

    run = spans.one("run ready")
    assert run.attributes["holdfast.outcome"] == "retry"
    assert (run.status.status_code.name, run.events) == ("UNSET", ())


def test_the_jobs_that_a_handler_adds_continue_its_trace(queue, spans, tracer):
    """Children, other jobs, and those that follow by `then`."""

    @queue.task
    def parent(context: holdfast.Context) -> None:
        if not context.children():
            context.add("child")
            queue.add("other")

    for name in ("child", "other"):
        queue.task(name=name)(lambda: None)
    queue.task(name="after")(lambda result: None)

    with tracer.start_as_current_span("request"):
        parent.using(then=queue.call("after"), into="result").add()
    run_all(queue)

    assert len({trace_of(span) for span in spans.all}) == 1
    first = spans.named("run parent")[0]
    for name in ("child", "other"):
        assert parent_of(spans.one(f"add {name}")) == id_of(first)
        assert parent_of(spans.one(f"run {name}")) == id_of(spans.one(f"add {name}"))
    assert parent_of(spans.one("run after")) == id_of(spans.one("add parent"))


def test_steps_are_spans_of_their_run_and_a_suspension_is_no_error(queue, spans, tracer):
    """A later run has no span of a step that was done before; the called job continues the trace."""

    @queue.task
    def size(path: str) -> int:
        return len(path)

    @queue.task
    def sums(ctx: holdfast.Context) -> Any:
        ctx.step("first", lambda: None)
        with suppress(ValueError):
            ctx.step("second", int, "x")
        return ctx.call(size, "a.png")

    with tracer.start_as_current_span("mine"):
        sums.add()
    for _ in range(3):
        queue.next().run()

    assert [span.name for span in spans.all] == [
        *("add sums", "mine", "step first", "step second", "run sums", "run size", "run sums")
    ]
    first, second, run, child, last = spans.all[2:]
    assert {parent_of(first), parent_of(second), parent_of(child)} == {id_of(run)}
    assert [span.status.status_code.name for span in (first, second, run, last)] == [
        *("UNSET", "ERROR", "UNSET", "UNSET")
    ]
    assert run.attributes["holdfast.outcome"] == "suspended"


def test_coroutines_and_threads_have_the_span_of_their_run(queue, spans, tracer):
    async def story() -> None:
        async with holdfast.connect_async("memory://") as queue:

            @queue.task
            async def outer() -> None:
                with tracer.start_as_current_span("inside"):
                    await inner.add()

            @queue.task
            async def inner() -> None: ...

            with tracer.start_as_current_span("request"):
                await outer.add()
            await holdfast.work_async(queue, until_empty=True, threads=2)

    asyncio.run(story())

    assert parent_of(spans.one("inside")) == id_of(spans.one("run outer"))
    assert parent_of(spans.one("add inner")) == id_of(spans.one("inside"))
    assert parent_of(spans.one("run inner")) == id_of(spans.one("add inner"))
    assert len({trace_of(span) for span in spans.all}) == 1


def test_many_jobs_are_added_in_one_span_and_run_as_its_children(queue, spans, tracer):
    queue.task(name="one")(lambda n: None)

    with tracer.start_as_current_span("request"):
        jobs = queue.add_many([("one", {"n": n}) for n in range(3)])
    run_all(queue)

    add = spans.one("add one")
    assert add.attributes["messaging.batch.message_count"] == 3
    assert {parent_of(run) for run in spans.named("run one")} == {id_of(add)}
    assert len({job.get().traceparent for job in jobs}) == 1


def test_a_batch_is_one_span_with_a_link_to_each_add(queue, spans, tracer):
    @queue.task(batch=10)
    def batch(items: list[int]) -> list[Any]:
        return [ValueError("no good") if item else None for item in items]

    with tracer.start_as_current_span("request"):
        batch.add(0)
        batch.add(1)
    jobs = queue.claim(limit=2)
    from holdfast.queue import running

    outcomes = running.run(queue.tasks["batch"], jobs)
    for job, outcome in zip(jobs, outcomes, strict=True):
        job._conclude(outcome)

    run = spans.one("run batch")
    assert run.parent is None
    assert [f"{link.context.span_id:016x}" for link in run.links] == list(
        map(id_of, spans.named("add batch"))
    )
    assert run.attributes["messaging.batch.message_count"] == 2
    assert run.status.status_code.name == "ERROR"


def test_each_run_of_a_job_that_repeats_is_a_trace_with_a_link(queue, spans, tracer):
    """The trace of its add would never end."""
    queue.task(name="tick")(lambda: None)

    with tracer.start_as_current_span("request"):
        queue.add("tick", repeat="FINISHED, +0 SECONDS")
    for _ in range(2):
        queue.next(wait=60).run()

    add, runs = spans.one("add tick"), spans.named("run tick")
    assert len({trace_of(span) for span in (add, *runs)}) == 3
    assert {f"{run.links[0].context.span_id:016x}" for run in runs} == {id_of(add)}


def test_an_add_that_is_refused_is_an_error_of_its_span(queue, spans, tracer):
    with tracer.start_as_current_span("request"), pytest.raises(holdfast.NotFound):
        queue._add_one(c.NewJob(task="lost", parent_id=5))

    add = spans.one("add lost")
    assert add.status.status_code.name == "ERROR"


def test_an_add_in_the_callers_transaction_keeps_the_trace(tmp_path, spans, tracer):
    import sqlite3

    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        queue.counts()
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        with tracer.start_as_current_span("request"):
            job = queue.add("mail", connection=connection)
        connection.execute("COMMIT")
        connection.close()

        assert job.get().trace_id == trace_of(spans.one("add mail"))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis", "sharded"])
def test_every_store_keeps_the_span_of_a_job_and_of_what_follows_it(kind, request):
    """While it lives, and in the archive; no OpenTelemetry is needed for it."""
    request.param = kind
    with Queue(opener(request, system_clock), url=kind) as queue:
        new = c.NewJob(task="first", traceparent=PARENT, then=c.NewJob(task="second"))
        first = queue._add_one(new)
        assert first.get().traceparent == PARENT
        for job in queue.claim(["first"]):
            job.done()

        assert first.get().traceparent == PARENT
        second = queue.next(["second"], wait=60)
        assert second is not None
        assert second.record.traceparent == PARENT


@pytest.mark.parametrize(
    "text",
    [PARENT.upper(), PARENT[:-1], f"ff{PARENT[2:]}", PARENT.replace(TRACE_ID, "0" * 32), f"{PARENT}\n", "x"],
)
def test_what_is_no_traceparent_is_refused_in_a_job_and_ignored_in_a_header(text):
    with pytest.raises(BadInput, match="traceparent"):
        check_new(c.NewJob(task="t", traceparent=text))
    assert tracing.traceparent_for(text) == ""
    assert tracing.traceparent_for(PARENT) == PARENT


OFF = """
import sys, holdfast

with holdfast.connect("memory://") as queue:
    @queue.task
    def work() -> None: ...

    work.add()
    assert holdfast.work(queue, until_empty=True) == 1
    found = [name for name in sys.modules if name.startswith("opentelemetry")]
    assert not found, found
"""


def test_without_it_nothing_of_opentelemetry_is_imported():
    """Though it is installed."""
    subprocess.run([sys.executable, "-c", OFF], check=True, timeout=TIMEOUT_S)


APP = """
import logging
import holdfast
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
exporter = ConsoleSpanExporter(
    out=open("spans.jsonl", "a", buffering=1), formatter=lambda span: span.to_json(indent=None) + "\\n"
)
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
queue = holdfast.connect("jobs.db")

@queue.task
def function(context: holdfast.Context) -> None:
    logging.getLogger("app").warning("here")
    context.log("here")
    queue.add("coroutine")

@queue.task
async def coroutine() -> None: ...
"""


def test_a_worker_continues_the_trace_in_its_executors(tmp_path, spans, tracer):
    """Another process, in a function and a coroutine; each line of its log has the trace."""
    (tmp_path / "app.py").write_text(APP)
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue, tracer.start_as_current_span("request"):
        queue.add("function")

    worker = [sys.executable, "-m", "holdfast", "worker", "app:queue", "--until-empty", "-v", "--json"]
    done = subprocess.run(worker, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)

    assert done.returncode == 0, done.stderr
    trace_id = trace_of(spans.one("add function"))
    found = {one["name"]: one for one in map(json.loads, (tmp_path / "spans.jsonl").read_text().splitlines())}
    assert set(found) == {"run function", "add coroutine", "run coroutine"}
    assert {one["context"]["trace_id"] for one in found.values()} == {f"0x{trace_id}"}
    assert found["run function"]["parent_id"] == f"0x{id_of(spans.one('add function'))}"
    assert found["run coroutine"]["parent_id"] == found["add coroutine"]["context"]["span_id"]
    lines = [json.loads(line) for line in done.stderr.splitlines() + done.stdout.splitlines()]
    said = [line for line in lines if "job_id" in line]
    assert {line["logger"] for line in said} == {"app", "holdfast.job"}
    assert {line["trace_id"] for line in said} == {trace_id}


class Kept(logging.Handler):
    """Keeps all records."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


def test_the_trace_is_on_the_lines_of_other_loggers(queue, spans, tracer):
    """By `JobLogFilter`; outside a run too, where a span is active."""
    handler = Kept()
    handler.addFilter(holdfast.JobLogFilter())
    log = logging.getLogger("traced")
    log.addHandler(handler)
    queue.task(name="plain")(lambda: log.warning("inside"))

    queue.add("plain")
    run_all(queue)
    with tracer.start_as_current_span("request"):
        log.warning("outside")
    log.warning("no span")
    log.removeHandler(handler)

    expected = [trace_of(spans.one("run plain")), trace_of(spans.one("request")), None]
    assert [record.trace_id for record in handler.seen] == expected
