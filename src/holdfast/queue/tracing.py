"""OpenTelemetry spans: `add TASK` around an add, `run TASK` around a handler; see docs/traces.md.

    the caller's span ─▶ add TASK ─▶ traceparent of the job ─▶ run TASK ─▶ the handler's spans, and its adds

OpenTelemetry is used if the program has imported it, which a program that exports spans has. It is never
imported before: callers look for `API` in `sys.modules`, so that without it neither an add nor a run calls
anything here.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core import commands as c
from ..core.checks import is_traceparent
from ..core.job import Code, Job
from ..engine import joblog
from .asks import QueueRequest

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

API = "opentelemetry.trace"
SYSTEM = "holdfast"
MESSAGE_ID, BATCH_SIZE = "messaging.message.id", "messaging.batch.message_count"
ATTEMPT, OUTCOME, TENANT = "holdfast.attempt", "holdfast.outcome", "holdfast.tenant"
STEP = "holdfast.step"


def current_traceparent() -> str:
    """The active span as a W3C traceparent; "" if there is none."""
    return traceparent_of(_api().get_current_span()) if API in sys.modules else ""


def traceparent_of(span: "Span") -> str:
    """A span as a W3C traceparent; "" if it is none."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def traceparent_for(header: str | None) -> str:
    """The active span, or the one in the W3C header of a request; W3C has malformed headers ignored."""
    return current_traceparent() or (header if header and is_traceparent(header) else "")


def mark(jobs: Iterable[c.NewJob], traceparent: str) -> tuple[c.NewJob, ...]:
    """The jobs, with the span that adds them; those that name one keep it."""
    if not traceparent:
        return tuple(jobs)
    return tuple(new if new.traceparent else replace(new, traceparent=traceparent) for new in jobs)


@contextmanager
def adding(ask: QueueRequest[list[int]], *, otherwise: str = "") -> Iterator[QueueRequest[list[int]]]:
    """A span around an add, if a span is active; yields the request with it, or with the span `otherwise`."""
    command = ask.asked
    assert isinstance(command, c.Add)
    if not current_traceparent():
        yield ask._replace(asked=replace(command, jobs=mark(command.jobs, otherwise)))
        return
    tasks = {new.task for new in command.jobs}
    task = tasks.pop() if len(tasks) == 1 else ""
    attributes = _attributes("add", "send", task, command.jobs[0].tenant)
    if command.count > 1:
        attributes[BATCH_SIZE] = command.count
    kind = _api().SpanKind.PRODUCER
    with _tracer().start_as_current_span(f"add {task}".strip(), kind=kind, attributes=attributes) as span:

        def read(ids: list[int]) -> list[int]:
            added = ask.read(ids)
            if len(added) == 1:
                span.set_attribute(MESSAGE_ID, str(added[0]))
            return added

        yield ask._replace(asked=replace(command, jobs=mark(command.jobs, traceparent_of(span))), read=read)


def step(name: str) -> AbstractContextManager[Any]:
    """A span around the function of a step, if a span is active."""
    if API not in sys.modules or not current_traceparent():
        return nullcontext()
    # With its exception, if it raises one.
    return _tracer().start_as_current_span(f"step {name}", attributes={STEP: name})


class RunSpan:
    """The span of one run, of a job or of a batch of several."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        first, api = jobs[0], _api()
        self._left, self._is_batch = len(jobs), len(jobs) > 1
        self._recorded: BaseException | None = None
        attributes = _attributes("run", "process", first.task, first.tenant)
        if not self._is_batch:
            attributes |= {MESSAGE_ID: str(first.id), ATTEMPT: first.attempts + 1}
        else:
            attributes[BATCH_SIZE] = len(jobs)
        origins = [origin for job in jobs if (origin := _origin(job)) is not None]
        context, links = None, list["Link"]()
        if self._is_batch or first.repeat:
            # A trace of its own: that of a repeating job would never end, and several have no common parent.
            context, links = api.set_span_in_context(api.INVALID_SPAN), [api.Link(one) for one in origins]
        elif origins:
            context = api.set_span_in_context(api.NonRecordingSpan(origins[0]))
        self._span: Span = _tracer().start_span(
            f"run {first.task}",
            context=context,
            kind=api.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        self._active: Any = None

    @property
    def traceparent(self) -> str:
        """The span, for jobs that its run adds."""
        return traceparent_of(self._span)

    def enter(self) -> None:
        """Make it the active span of this context."""
        use = _api().use_span
        self._active = use(self._span, record_exception=False, set_status_on_exception=False)
        self._active.__enter__()

    def leave(self) -> None:
        """Make the span that was active before the active one again; in the same context as `enter`."""
        self._active.__exit__(None, None, None)

    def end_answered(self, job: Job, answer: c.Answer, error: BaseException | None) -> None:
        """End it with the answer of a job's run."""
        has_failed = answer.code not in (Code.OK, Code.SUSPEND) and answer.counts
        self.end(joblog.event_of(job, answer), answer.error if has_failed else "", error)

    def end(self, outcome: str, text: str = "", error: BaseException | None = None) -> None:
        """End a job of it, which has failed if there is a text; with the last one the span ends."""
        self._left -= 1
        if not self._is_batch:
            self._span.set_attribute(OUTCOME, outcome)
        if text:
            self._span.set_attribute("error.type", type(error).__qualname__ if error else "_OTHER")
            self._span.set_status(_api().StatusCode.ERROR, text)
            if error is not None and error is not self._recorded:
                self._recorded = error
                self._span.record_exception(error)
        if not self._left:
            self._span.end()


def _attributes(name: str, kind: str, task: str, tenant: str) -> dict[str, str | int]:
    """The attributes of the messaging conventions, and the tenant."""
    found: dict[str, str | int] = {"messaging.system": SYSTEM, "messaging.operation.name": name}
    found["messaging.operation.type"] = kind
    if task:
        found["messaging.destination.name"] = task
    return found | {TENANT: tenant} if tenant else found


def _origin(job: Job) -> "SpanContext | None":
    """The span that added a job, which may have been in another process."""
    if not job.traceparent:
        return None
    _, trace_id, span_id, flags = job.traceparent.split("-")
    api = _api()
    origin: SpanContext = api.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=api.TraceFlags(int(flags, 16))
    )
    return origin


def _tracer() -> "Tracer":
    # Not once for all: the program may set its provider after the first job.
    return _tracer_of(_api().get_tracer_provider())


@lru_cache(maxsize=1)
def _tracer_of(provider: Any) -> "Tracer":
    """A provider's tracer, kept: to get it takes as long as to make a span."""
    tracer: Tracer = provider.get_tracer(SYSTEM)
    return tracer


def _api() -> Any:
    # Waits for an import that another thread has begun, which `sys.modules` does not.
    return importlib.import_module(API)
