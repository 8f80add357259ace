"""A claimed job: the commands of its holder, and the buffer of its log."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from msgspec.structs import replace

from ..core import commands as c
from ..core.checks import check_command
from ..core.errors import BadInput, LeaseLost, Refused
from ..core.job import VERB_OF, Body, Code, Job, trace_id_of
from ..core.notes import StepResult, lines_of
from ..core.units import duration_ms
from ..engine import joblog
from ..store.common.clock import monotonic_s
from . import asks, tracing
from .answers import RAISED, Failed, Retry, Suspended, described, storable
from .asks import QueueRequest
from .encoding import decode, encode_data, encode_result
from .lease import Lease
from .options import Duration, JobOptions
from .timers import Timer, TimerThread

# How long a log line waits in the buffer before it is sent.
SENDING_S = 0.5
# A buffer with this many lines is sent at once.
FULL_LINES = 500


class Holding:
    """What `ClaimedJob` and `AsyncClaimedJob` share: the job's fields, and the holder's commands."""

    _queue: Any
    _logbook: "Logbook | None" = None
    # Answered inside a caller's transaction, which may be rolled back.
    _tentative = False
    # When its handler was called, by the monotonic clock; 0: not in this process.
    started_s = 0.0
    # The thread that has called it; 0: none, or none that this process knows.
    thread = 0
    # Whether answers carry the record, which may save a read; not in executors, where the supervisor has it.
    brings_record = True
    # How its run ends that goes on later, whatever its handler does then; and the data to begin again with.
    end_of_run: c.Suspension | None = None
    _new_data: Body | None = None
    # The context of a run that has something to undo if the job fails.
    undoing: Any = None
    # The span of its run; None: nothing is traced.
    span: tracing.RunSpan | None = None

    def __init__(self, queue: Any, claimed: c.Claimed, lease_ms: int, *, renew: bool) -> None:
        self._queue, self._body, self._steps = queue, claimed.data, claimed.steps
        self._lease = Lease(claimed.job, lease_ms)
        if renew:
            queue.session.renewer.watch(self._lease)

    @property
    def id(self) -> int:
        """The job's id."""
        return self._lease.job.id

    @property
    def record(self) -> Job:
        """The job's last known record."""
        return self._lease.job

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._lease.job.task

    @property
    def data(self) -> Any:
        """What the task gets: the JSON value, or bytes."""
        return decode(self._body)

    @property
    def body(self) -> Body:
        """The encoded data: JSON text, or bytes."""
        return self._body

    def take_steps(self) -> list[StepResult]:
        """The steps that came with the claim, the first time: later there may be others."""
        found, self._steps = list(self._steps), ()
        return found

    @property
    def claim(self) -> int:
        """The claim number, which only grows: a fencing token for other systems."""
        return self._lease.job.claim

    @property
    def attempt(self) -> int:
        """Which run this is, from 1."""
        return self._lease.job.attempts + 1

    @property
    def trace_id(self) -> str:
        """The id of the trace of its run, or of the one that it was added in; "": of none."""
        return (trace_id_of(self.span.traceparent) if self.span else "") or self.record.trace_id

    @property
    def answered(self) -> bool:
        """Whether it was answered, or its claim is lost: then no more commands are possible."""
        return not self._lease.is_open

    @property
    def lost(self) -> bool:
        """Whether the claim is lost."""
        return self._lease.lost is not None

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop, as far as is known here: cancelled, or the claim is lost."""
        return self._lease.stopped

    def fate_of(self, error: BaseException) -> str:
        """What an exception of the handler does to the job: "retry", "failed" or "cancelled"."""
        answer = self._done(None, error, None).asked
        assert isinstance(answer, c.Answer)
        return joblog.event_of(self.record, answer)

    def log(self, text: str) -> None:
        """Append to the job's log; sent within half a second, and with the answer."""
        if self._logbook is None:
            self._logbook = Logbook(self._lease, self._queue.session)
        self._logbook.write(storable(str(text)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.task!r} claim {self.claim}>"

    def _check_open(self, verb: str) -> None:
        if self._lease.lost is not None:
            raise self._lease.lost
        if not self._lease.is_open and not self._tentative:
            raise Refused(verb, self.id, found="answered already", needed="claimed and not yet answered")

    def _answer(self, code: Code, **fields: Any) -> QueueRequest[Job]:
        lease, job = self._lease, self._lease.job
        if lease.lost is not None or not lease.is_open:
            self._check_open(VERB_OF[code])
        held = job if self.brings_record else None
        command = c.Answer(hold=c.hold_of(job), code=code, held=held, ran_ms=lease.ran_ms, **fields)
        if self.undoing is not None and code is not Code.OK and self.undoing.has_compensations:
            command = replace(command, compensates=True)
        if command.delay_ms is not None or command.suspend is not None:
            # All other limits were checked when the value was encoded.
            check_command(command)
        if self._logbook is not None:
            command = replace(command, lines=self._logbook.last())
        return QueueRequest(command, self._closed)

    def _closed(self, reply: Any) -> Job:
        self._lease.is_open = False
        if self._logbook is not None:
            self._logbook.close()
        return self._lease.job if not isinstance(reply, Job) else reply

    def _conclude(self, outcome: Any) -> QueueRequest[Job] | None:
        """The answer for its handler's outcome, which is also logged.

        None if the handler has answered the job itself, or the claim was lost.
        """
        error = outcome if isinstance(outcome, RAISED) else None
        if not self._lease.is_open:
            if error is not None and not self.lost:
                joblog.raised_late(self.record, error, trace_id=self.trace_id)
            if self.span is not None:
                self.span.end("lost" if self.lost else "answered", str(error or ""), error)
            return None
        try:
            if isinstance(outcome, c.Suspension):
                ask = self._answer(Code.SUSPEND, suspend=outcome, data=self._new_data)
            else:
                ask = self._done(None if error else outcome, error, None)
        except BadInput as unfit:
            # The result cannot be encoded: the next run would return the same.
            error = unfit.with_traceback(None)
            ask = self._fail(error)
        assert isinstance(ask.asked, c.Answer)
        # Successful runs are logged only at DEBUG: checked here to save a call.
        if error is not None or joblog.LOG.isEnabledFor(joblog.FINISHED):
            lasted_ms = round((monotonic_s() - self.started_s) * 1000, 1) if self.started_s else None
            joblog.ended(self.record, ask.asked, duration_ms=lasted_ms, error=error, trace_id=self.trace_id)
        if self.span is not None:
            self.span.end_answered(self.record, ask.asked, error)
        return ask

    def _end_of_answered(self, outcome: Any) -> Job:
        """The result of `run` for a job that its handler has answered or lost; may raise."""
        if isinstance(outcome, RAISED):
            raise outcome
        if self._lease.lost is not None:
            raise self._lease.lost
        return self.record

    def _done(self, result: Any, error: BaseException | str | None, data: Any) -> QueueRequest[Job]:
        written = None if data is None else encode_data("data", data)
        if error is None:
            body = None if result is None else encode_result("result", result)
            return self._answer(Code.OK, result=body, data=written)
        if isinstance(error, Failed):
            return self._fail(error)
        if isinstance(error, Retry):
            return self._retry(error.delay_ms, counts=error.counts, reason=str(error))
        task, delay_ms = self._queue.tasks.get(self.task), None
        if isinstance(error, BaseException) and task is not None and task.handling.fates is not None:
            if task.handling.fates.fails(error):
                return self._fail(error)
            delay_ms = task.handling.fates.delay_ms(self.attempt, error)
        text, trace = described(error)
        return self._answer(Code.ERROR, error=text, traceback=trace, data=written, delay_ms=delay_ms)

    def _fail(self, reason: BaseException | str) -> QueueRequest[Job]:
        text, trace = described(reason)
        return self._answer(Code.FAILED, error=text, traceback=trace)

    def _retry(self, delay_ms: int | None, *, counts: bool, reason: BaseException | str) -> QueueRequest[Job]:
        return self._answer(
            Code.RETRY, delay_ms=delay_ms, counts=bool(counts), error=storable(str(reason or ""))
        )

    def _suspend(self, suspension: c.Suspension, data: Body | None = None) -> NoReturn:
        """End the run; its job goes on later."""
        self._check_open("suspend")
        self.end_of_run, self._new_data = suspension, data
        raise Suspended

    def _release(self, *, begun: bool = False) -> QueueRequest[Job]:
        self._check_open("release")
        lost = begun or self._lease.ran_ms is not None
        return QueueRequest(c.Release(hold=self._lease.hold, lost=lost, crowd=0), self._closed)

    def _extend(self, lease: Duration | None) -> QueueRequest[None]:
        self._check_open("extend")
        if lease is not None:
            self._lease.lease_ms = asks.lease_ms_of(lease)
        return QueueRequest(self._lease.extension(), self._renewed)

    def _progress(self, fraction: float, note: str) -> QueueRequest[None]:
        self._check_open("report progress of")
        command = c.Report(hold=self._lease.hold, fraction=fraction, note=storable(note))
        check_command(command)
        # Of a bool or a number of NumPy too: messages have floats only.
        command = replace(command, fraction=float(fraction))
        return QueueRequest(command, self._renewed)

    def _update(self, data: Any) -> QueueRequest[None]:
        self._check_open("update")
        return QueueRequest(asks.update(self.id, data=data, hold=self._lease.hold).asked, self._renewed)

    def _adding(self, new: c.NewJob) -> AbstractContextManager[QueueRequest[list[int]]]:
        """The request for a child of this job, or with its parent as `parent` for a sibling, in its span."""
        (ask,) = asks.add([self._as_child(new)], self._lease.hold)
        return tracing.adding(ask, otherwise=self.record.traceparent)

    def _adding_many(self, jobs: Iterable[Any], options: JobOptions) -> Iterator[QueueRequest[list[int]]]:
        """The requests for children of this job."""
        children = (
            self._as_child(new) if isinstance(new, c.NewJob) else new
            for new in self._queue._each(jobs, options)
        )
        for ask in asks.add(children, self._lease.hold):
            with tracing.adding(ask, otherwise=self.record.traceparent) as traced:
                yield traced

    def _as_child(self, new: c.NewJob) -> c.NewJob:
        self._check_open("add a child to")
        new, job = self._queue._complete(new), self.record
        # A child on the job-command port has siblings only. The tenant may differ from that of the queue.
        parent_id = new.parent_id or (job.parent_id if job.strict else 0) or job.id
        return replace(new, parent_id=parent_id, tenant=job.tenant)

    def _renewed(self, job: Job) -> None:
        self._lease.renewed(job)

    def _lose_if(self, error: BaseException) -> None:
        if isinstance(error, LeaseLost):
            self._lease.lose(error)


def delay_ms_of(delay: Duration | None) -> int | None:
    """A delay in ms, or None for the backoff."""
    return None if delay is None else duration_ms(delay, name="delay")


class CommandSender(Protocol):
    """The part of a session that a logbook uses."""

    timers: TimerThread

    def send(self, command: c.Command) -> None:
        """Submit a command without waiting for its reply; errors are ignored."""


class Logbook:
    """Buffers the log lines of one run. Writing never waits for the store."""

    def __init__(self, lease: Lease, session: CommandSender) -> None:
        self._lease, self._session = lease, session
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._timer: Timer | None = None

    def write(self, text: str) -> None:
        """Append text, split into lines."""
        with self._lock:
            self._lines += lines_of(text)
            while len(self._lines) >= FULL_LINES:
                self._send(FULL_LINES)
            if self._lines and self._timer is None:
                self._timer = self._session.timers.after(SENDING_S, self._on_timer)

    def last(self) -> tuple[str, ...]:
        """Stop the timer and return the unsent lines, which go with the answer."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return tuple(self._lines)

    def close(self) -> None:
        """Drop the lines: the answer that carries them was committed."""
        with self._lock:
            self._lines.clear()

    def _on_timer(self) -> None:
        with self._lock:
            # Unless cancelled just now: then the lines go with the answer.
            if self._timer is not None:
                self._timer = None
                self._send(FULL_LINES)

    def _send(self, most: int) -> None:
        lines, self._lines = tuple(self._lines[:most]), self._lines[most:]
        if lines and self._lease.is_open:
            self._session.send(c.WriteLog(hold=self._lease.hold, lines=lines))
