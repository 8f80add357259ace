"""What a function that goes on later asks of the store: steps, sleeps, signals and calls.

Each is a generator that yields requests and gets their replies, so that `Context` and `AsyncContext` share
it. A wait that is not over ends the run: it raises `Suspended`.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from ..core import commands as c
from ..core import queries as q
from ..core.bounds import STEPS_KEPT, UNDO_TRIES, WAKE_EARLY_MS
from ..core.checks import check_command
from ..core.commands import NewJob, Suspension
from ..core.errors import BadInput, ChildFailed, LeaseLost, NotFound, Timeout, Unquoted
from ..core.job import Body, Job, Outcome, State, StepKind, Unreadable, WaitKind
from ..core.notes import StepResult
from ..core.units import counted, duration_ms, moment_ms
from ..store.common.clock import monotonic_s
from . import tracing
from .answers import RAISED, Failed, Retry, Suspended
from .asks import QueueRequest, same
from .claimed import Holding
from .definition import readable_type, returned_type
from .encoding import decode, encode_result, from_json_type, reason_and_path
from .options import Duration
from .replay import FunctionChanged, Replay, changed, error_text, read_error

T = TypeVar("T")
Flow = Generator[QueueRequest[Any], Any, T]
# For `wait_for` without a default.
RAISE: Any = object()
OTHER_TYPE = Unquoted("of another type")


# The name of a step that undoes something, and its function.
Compensation = tuple[str, Callable[[], Any]]


class Function(Protocol):
    """The part of a context that is used here."""

    _job: Holding
    _queue: Any
    # What earlier runs have recorded; read on first use.
    _replay: Replay | None
    # What undoes the steps, in order; and whether that is being done.
    _compensations: list[Compensation]
    _is_undoing: bool
    # Whether the job was cancelled, or has failed, before this run, which is for undoing its steps.
    _only_undoes: bool

    @property
    def has_compensations(self) -> bool:
        """See `Running.has_compensations`."""


class SignalTimeout(Timeout, Failed):
    """A signal did not come in time: no other attempt would find it."""

    __module__, __qualname__ = "holdfast", "Timeout"


class PermanentBadInput(BadInput, Failed):
    """Bad input that each attempt would find again."""

    __module__, __qualname__ = "holdfast", "BadInput"


class CallEnd(msgspec.Struct, omit_defaults=True):
    """How a job ended that was called: its result, or why there is none."""

    id: int
    json: msgspec.Raw = msgspec.Raw(b"null")
    raw: bytes | None = None
    reason: str | None = None
    # Of its last run, without the traceback, which may be long.
    outcome: Outcome | None = None


def replay(run: Function) -> Flow[Replay]:
    """What earlier runs have recorded; ends the run again if it has ended, and its exception was caught."""
    job = run._job
    if job.end_of_run is not None:
        raise Suspended
    if run._replay is None:
        found, asked = job.take_steps(), None
        if len(found) != job.record.steps:
            found, asked = [], q.GetSteps(job_id=job.id)
        while asked is not None:
            page = yield QueueRequest(asked, same)
            found, asked = [*found, *page], asked.next_page(page)
        # Another thread or coroutine may have read them meanwhile.
        if run._replay is None:
            run._replay = Replay(job.record, found)
    return run._replay


def begin_step(run: Function, name: str) -> Flow[StepResult | None]:
    """The recorded end of a step; None: it is to be done now."""
    kept = yield from replay(run)
    entry = kept.step(name)
    if entry is None and _goes_back(run, kept):
        raise Suspended
    if entry is not None:
        return entry
    run._job._check_open("do a step of")
    if run._job.record.steps >= STEPS_KEPT and not run._is_undoing:
        raise Failed(
            f"step {name}: the job has {STEPS_KEPT:,} steps already; ctx.restart begins without them"
        )
    if run.has_compensations and not run._job.record.compensates:
        # The step may kill its process, each time: the store must know that there is something to undo.
        yield from _record(run, "", "")
    return None


def keep_step(
    run: Function, name: str, value: Any, took_ms: int, fn: Callable[..., Any] | None = None
) -> Flow[str]:
    """Record the result of a step, which `fn` has returned; returns it as JSON text."""
    text = encode_result(f"result of step {name}", value)
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    is_plain = fn is None or run._is_undoing or type(value) in _UNCHANGED
    if not is_plain and fn is not None and _is_changed(fn, value, text):
        needed = "what JSON keeps as it is, or that of a function whose annotation says what it returns"
        raise PermanentBadInput(f"result of step {name}", type(value).__name__, needed=needed)
    yield from _record(run, name, text, took_ms=took_ms)
    return text


def _record(
    run: Function, name: str, text: str, *, kind: StepKind = "step", took_ms: int = 0, number: int = 0
) -> Flow[None]:
    run._job._check_open("keep a step of")
    assert run._replay is not None
    before = run._replay.take_unrecorded()
    command = c.Step(
        hold=run._job._lease.hold,
        name=name,
        result=text,
        kind=kind,
        took_ms=took_ms,
        before=before,
        number=number,
        compensates=run.has_compensations,
        held=run._job.record if run._job.brings_record else None,
    )
    try:
        check_command(command)
        yield QueueRequest(command, run._job._renewed)
    except BadInput:
        run._replay.untake(before)
        raise


def gathered(found: list[Any], *, return_exceptions: bool) -> list[Any]:
    """The results of several calls; raises the first failure unless that is to be in the list."""
    failed = next((one for one in found if isinstance(one, ChildFailed)), None)
    if failed is not None and not return_exceptions:
        raise failed
    return found


def begin_undo(run: Function, outcome: Any) -> Flow[Any]:
    """How a run ends that is to undo the steps, as its outcome ends the job; None: it does not."""
    job = run._job
    end_of_run, job.end_of_run = job.end_of_run, None
    try:
        kept = yield from replay(run)
    finally:
        job.end_of_run = end_of_run
    if kept.undo is not None:
        kept.begin_undo()
        job.end_of_run = None
        error: Exception = Failed(str(read_error(kept.undo.result)))
        return Retry(0, counts=False, reason="cancelled") if job.record.cancel_requested else error
    if isinstance(outcome, FunctionChanged):
        return None
    outcome = _checked(outcome)
    if isinstance(outcome, Suspension) or run._only_undoes:
        is_ending = job.record.cancel_requested or job.record.undoes
        if not is_ending or (isinstance(outcome, Suspension) and outcome.kind == "restart"):
            return None
        if job.record.cancel_requested:
            outcome = Retry(0, counts=False, reason="cancelled")
        else:
            outcome = Failed(job.record.undoes)
    # How the job would end with its steps undone.
    run._is_undoing = True
    is_over = isinstance(outcome, RAISED) and job.fate_of(outcome) in ("failed", "cancelled")
    run._is_undoing = False
    if not is_over:
        return None
    job.end_of_run = None
    text = error_text(outcome)
    yield from _record(run, "undo", text, kind="undo")
    kept.undo, kept.undo_tries = StepResult(kind="undo", name="undo", result=text), 1
    kept.begin_undo()
    return outcome


def end_undo(run: Function, outcome: Any, failures: Sequence[str]) -> Flow[Any]:
    """How a run ends after its steps were undone, or could not all be: then it is tried again later."""
    if not failures or not isinstance(outcome, BaseException):
        return outcome
    assert run._replay is not None and run._replay.undo is not None
    most = min(run._job.record.max_attempts or UNDO_TRIES, UNDO_TRIES)
    left = ", ".join(failures)
    if run._replay.undo_tries >= most:
        return Failed(f"{str(outcome) or type(outcome).__name__}; not undone: {left}")
    try:
        yield from _record(run, "undo", run._replay.undo.result, kind="undo")
    except LeaseLost:
        return outcome
    # The job still has something to undo.
    run._is_undoing = False
    return Retry(counts=False, reason=f"not undone yet: {left}")


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a compensation: with a number if there is one of that name already."""
    named, count = name, 1
    while named in taken:
        count += 1
        named = f"{name} #{count}"
    return named


def _checked(outcome: Any) -> Any:
    """The outcome of a run; a result that cannot be written fails the job."""
    if outcome is not None and not isinstance(outcome, (Suspension, *RAISED)):
        try:
            encode_result("result", outcome)
        except BadInput as error:
            return Failed(str(error))
    return outcome


def _goes_back(run: Function, kept: Replay) -> bool:
    """Whether the run undoes its steps from here: an earlier one failed here, or the job was cancelled."""
    return not run._is_undoing and (kept.undo is not None or run._only_undoes)


def version(run: Function, name: str) -> Flow[bool]:
    """See `Context.version`."""
    return (yield from replay(run)).version(name)


def sleep(run: Function, how_long: Duration | datetime) -> Flow[float]:
    """See `Context.sleep`; returns for how many seconds this run must wait, as it was claimed early."""
    entry = yield from _known_wait(run, "sleep")
    if entry is None or not _is_past(run, entry):
        if isinstance(how_long, datetime):
            wait = Suspension(kind="sleep", until=max(moment_ms(how_long, name="sleep"), 1))
        else:
            wait = Suspension(kind="sleep", delay_ms=duration_ms(how_long, name="sleep"))
        _suspend(run, wait, entry)
    lease = run._job._lease
    early_ms = entry.until - lease.started_at - (lease.ran_ms or 0)
    return min(max(early_ms, 0), WAKE_EARLY_MS) / 1000


def wait_for(run: Function, name: str, *, timeout: Duration | None, kind: Any, default: Any) -> Flow[Any]:
    """See `Context.wait_for`."""
    limit_ms = None if timeout is None else duration_ms(timeout, name="timeout")
    wait = Suspension(kind="signal", name=name, delay_ms=limit_ms)
    entry = yield from _wait(run, wait)
    if entry.ended:
        try:
            return msgspec.json.decode(entry.result, type=kind, dec_hook=from_json_type)
        except msgspec.DecodeError as error:
            reason, _ = reason_and_path(error)
            needed = f"as the function waits for it: {reason}"
            raise PermanentBadInput(f"data of signal {name}", OTHER_TYPE, needed=needed) from None
    if not _is_past(run, entry):
        _suspend(run, wait, entry)
    if default is RAISE:
        raise SignalTimeout(f"signal {name!r} did not come within {timeout}")
    return default


def call(run: Function, news: Sequence[NewJob]) -> Flow[list[Any]]:
    """The results of called jobs in order, with a `ChildFailed` for each that has none."""
    if not news:
        return []
    wait = Suspension(kind="call", jobs=tuple(news))
    entry = yield from _wait(run, wait)
    if len(entry.jobs) != len(news):
        assert run._replay is not None
        run._replay.check_version()
        raise changed(entry.number, f"a call of {counted(len(entry.jobs), 'job')}", f"of {len(news):,}")
    if entry.ended:
        ends = msgspec.json.decode(entry.result, type=list[CallEnd])
    else:
        found = yield QueueRequest(q.LoadEnded(job_ids=entry.jobs), same)
        ended = {one.job.id: one for one in found}
        for job_id in entry.jobs:
            if job_id not in ended and (yield from _exists(job_id)):
                # Requeued, so that it runs again.
                _suspend(run, wait, entry)
        ends = [_end_of(job_id, ended.get(job_id)) for job_id in dict.fromkeys(entry.jobs)]
        text = msgspec.json.encode(ends).decode()
        yield from _record(run, "results", text, number=entry.number)
    by_id = {end.id: end for end in ends}
    return [_result(run, new.task, by_id[job_id]) for new, job_id in zip(news, entry.jobs, strict=True)]


def prepared(run: Function, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    """The call that a function makes: a prepared one, a task with its arguments, or a name with its data."""
    if isinstance(task, NewJob):
        if args or kwargs:
            raise BadInput("arguments", "given", needed="absent: the prepared call has them")
        return complete(run, task)
    if not isinstance(task, str) and hasattr(task, "call"):
        return complete(run, task.call(*args, **kwargs))
    return complete(run, run._queue.call(task, *args, **kwargs))


def complete(run: Function, new: NewJob) -> NewJob:
    """A call with the defaults of its task, of the tenant of the job."""
    if not isinstance(new, NewJob):
        raise BadInput("call", type(new).__name__, needed="a prepared call, such as resize.call('a.png')")
    done: NewJob = run._queue._complete(new)
    record = run._job.record
    span = done.traceparent or tracing.current_traceparent() or record.traceparent
    return replace(done, tenant=record.tenant, traceparent=span)


def restart(run: Function, data: Any) -> Flow[None]:
    """See `Context.restart`."""
    yield from replay(run)
    body: Body | None = None
    if data is not None:
        task = run._job.task
        body = run._queue.call(task, data).data
    run._job._suspend(Suspension(kind="restart"), body)


def _wait(run: Function, wait: Suspension) -> Flow[StepResult]:
    """The entry of a wait; a new one ends the run."""
    assert wait.kind != "restart"
    entry = yield from _known_wait(run, wait.kind, wait.name)
    if entry is None:
        _suspend(run, wait)
    return entry


def _known_wait(run: Function, kind: WaitKind, name: str = "") -> Flow[StepResult | None]:
    """The entry of the next wait, if an earlier run came to it."""
    kept = yield from replay(run)
    entry = kept.wait(kind, name)
    if entry is None and _goes_back(run, kept):
        raise Suspended
    return entry


def _suspend(run: Function, wait: Suspension, entry: StepResult | None = None) -> NoReturn:
    assert run._replay is not None
    steps = run._replay.take_unrecorded()
    if entry is not None:
        wait = Suspension(kind=wait.kind, name=wait.name, step=entry.number)
    run._job._suspend(replace(wait, steps=steps))


def _is_past(run: Function, entry: StepResult) -> bool:
    """Whether a wait has ended by time: by the store's clock, at which the job was due or has started."""
    job: Job = run._job.record
    return 0 < entry.until <= max(job.run_at, job.started_at)


def _exists(job_id: int) -> Flow[bool]:
    try:
        yield QueueRequest(q.GetJob(job_id=job_id), same)
    except NotFound:
        return False
    return True


def _end_of(job_id: int, ended: c.Ended | None) -> CallEnd:
    if ended is None:
        return CallEnd(job_id, reason="it was deleted")
    if ended.job.ended is not State.FINISHED:
        outcome = ended.job.outcome and replace(ended.job.outcome, traceback="")
        return CallEnd(job_id, reason=ended.job.reason or str(ended.job.ended).lower(), outcome=outcome)
    result = ended.result
    if isinstance(result, Unreadable):
        return CallEnd(job_id, reason="its result is damaged")
    if isinstance(result, bytes):
        return CallEnd(job_id, raw=result)
    return CallEnd(job_id) if result is None else CallEnd(job_id, json=msgspec.Raw(result.encode()))


def _result(run: Function, task: str, end: CallEnd) -> Any:
    if end.reason is not None:
        return ChildFailed(end.id, end.reason, end.outcome)
    body: Body = bytes(end.json).decode() if end.raw is None else end.raw
    known = run._queue.tasks.get(task)
    return decode(body) if known is None else known.read_result(body)


def read_json(what: str, text: str, kind: Any, *, needed: str) -> Any:
    """Decode JSON text by a type, or raise `BadInput`."""
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=from_json_type)
    except msgspec.DecodeError as error:
        reason, _ = reason_and_path(error)
        raise BadInput(what, OTHER_TYPE, needed=f"{needed} ({reason})") from None


def read_step(name: str, fn: Callable[..., Any], text: str) -> Any:
    """A stored result, converted to the function's return type."""
    return read_json(f"result of step {name}", text, _kind_of(fn), needed="such as its function returns")


def _is_changed(fn: Callable[..., Any], value: Any, text: str) -> bool:
    """Whether a result is read as something else than it was, and no annotation says as what."""
    while isinstance(fn, partial):
        fn = fn.func
    is_annotated = _kind_of(fn) is not Any or "return" in getattr(fn, "__annotations__", {})
    return not is_annotated and bool(msgspec.json.decode(text) != value)


_UNCHANGED = (str, int, float, bool, type(None))


def _kind_of(fn: Callable[..., Any]) -> Any:
    """What the result of a function is read as; kept, as to look at annotations takes long."""
    try:
        return _kinds[fn]
    except (KeyError, TypeError):
        kind = readable_type(returned_type(fn))
    # Some objects that can be called can be no keys.
    with suppress(TypeError):
        _kinds[fn] = kind
    return kind


_kinds: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()


def took_ms(began_s: float) -> int:
    """The time since then, in whole milliseconds."""
    return round((monotonic_s() - began_s) * 1000)
