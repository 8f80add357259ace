"""Runs the handler of a job, in this thread or on this event loop, with its soft time limit.

An outcome is a result, or the exception that the handler raised or returned. A worker's executor and
`ClaimedJob.run` both come here, so that a handler cannot tell which of them it runs in.
"""

import asyncio
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, Token, copy_context
from functools import partial
from typing import Any

from ..core.errors import BadInput
from ..core.job import Job, trace_id_of
from ..engine import joblog
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import interruptible
from . import tracing
from .answers import RAISED, Failed, Retry, SoftTimeout, Suspended, trimmed
from .claimed import Holding
from .hooks import Around, run_around
from .task import Task
from .timers import TimerThread
from .tracing import RunSpan

# The record of the job, or the task name of a batch of several jobs.
_current: ContextVar[Job | str | None] = ContextVar("holdfast_job", default=None)
_NOTHING: Any = object()
# What a handler may raise without wanting to end its run: the group of what was raised in a task group.
STRAY = (asyncio.CancelledError, Suspended, BaseExceptionGroup)
Outcomes = list[Any]
# Runs an awaitable from a thread.
Await = Callable[[Awaitable[Any]], Any]


def run(task: Task[..., Any], jobs: Sequence[Holding], wait_for: Await | None = None) -> Outcomes:
    """Call a task's function in this thread, for one job or a batch; returns an outcome for each."""
    followed = [_follow(job) for job in jobs] if _wants_to_know(task) else ()
    token, span = begin(jobs)
    try:
        hooks = jobs[0]._queue.hooks
        if hooks is None:
            return _run(task, jobs, wait_for)
        wait = wait_for or hooks.loop.wait
        hooks.start(wait)
        return run_around(hooks.around_run, jobs, lambda: _run(task, jobs, wait), wait)
    except asyncio.CancelledError as error:
        # Of something that a hook awaited: a thread is not cancelled itself.
        return [as_error(error)] * len(jobs)
    finally:
        end(token, span)
        for unfollow in followed:
            unfollow()


def _run(task: Task[..., Any], jobs: Sequence[Holding], wait_for: Await | None) -> Outcomes:
    job = jobs[0]
    try:
        if task.handling.batch:
            return _run_batch(task, jobs, wait_for)
        outcome = _call(task, job, task.run, job, wait_for)
    except RAISED as error:
        outcome = trimmed(error)
    except STRAY as error:
        # Cancelled: something that the handler awaited. A thread is not cancelled itself.
        outcome = as_error(error)
    outcome = job.end_of_run or outcome
    if job.undoing is not None:
        undone = job.undoing.undo_if_over(outcome)
        outcome = (wait_for or wait_here)(undone) if inspect.isawaitable(undone) else undone
    return [outcome] * len(jobs)


async def run_async(task: Task[..., Any], job: Holding) -> Any:
    """Call a function on this loop and await its result; returns its outcome.

    A function that is not a coroutine function, and may wait for the store or has a limit, runs in a thread.
    """
    handling = task.handling
    if not handling.is_coroutine and (task.signature.context is not None or handling.soft_ms):
        return (await asyncio.to_thread(run, task, [job]))[0]
    unfollow = _follow(job) if _wants_to_know(task) else None
    token, span = begin([job])
    try:
        hooks = job._queue.hooks
        if hooks is None:
            return await _run_here(task, job)
        await hooks.start_async()

        async def call() -> Outcomes:
            return [await _run_here(task, job)]

        return (await Around(hooks.around_run, [job], None).call(call))[0]
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return as_error(error)
    finally:
        end(token, span)
        if unfollow is not None:
            unfollow()


async def _run_here(task: Task[..., Any], job: Holding) -> Any:
    try:
        if task.handling.batch:
            return (await _run_batch_async(task, [job]))[0]
        outcome = task.run(job)
        if inspect.isawaitable(outcome):
            outcome = await limited(task, job, outcome)
    except RAISED as error:
        outcome = trimmed(error)
    except STRAY as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        outcome = as_error(error)
    outcome = job.end_of_run or outcome
    return outcome if job.undoing is None else await job.undoing.undo_if_over(outcome)


def begin(jobs: Sequence[Holding]) -> tuple[Token[Any], RunSpan | None]:
    """Set the jobs that run in this context, and their span; returns what `end` needs."""
    started_s, thread = monotonic_s(), threading.get_ident()
    for job in jobs:
        job.started_s, job.thread = started_s, thread
    span = None
    if tracing.API in sys.modules:
        span = tracing.RunSpan([job.record for job in jobs])
        span.enter()
        for job in jobs:
            job.span = span
    if joblog.LOG.isEnabledFor(joblog.STARTED):
        for job in jobs:
            joblog.started(job.record, trace_id=job.trace_id)
    return _current.set(jobs[0].record if len(jobs) == 1 else jobs[0].task), span


def end(token: Token[Any], span: RunSpan | None) -> None:
    """Set the jobs that ran in this context before; a job's span ends with its answer."""
    _current.reset(token)
    if span is not None:
        span.leave()


def _wants_to_know(task: Task[..., Any]) -> bool:
    """Whether a function can learn, while it runs, that its job was cancelled or lost."""
    return task.signature.context is not None or task.handling.raises


def _follow(job: Holding) -> Callable[[], None]:
    return job._queue.session.follow(job._lease)  # type: ignore[no-any-return]


def _nothing() -> None:
    """Do nothing."""


def _call(
    task: Task[..., Any], job: Holding, function: Callable[[Any], Any], argument: Any, wait_for: Await | None
) -> Any:
    soft_ms = task.handling.soft_ms
    if soft_ms and not task.handling.is_coroutine:
        result = SoftLimit(job._queue.session.timers, soft_ms).run(lambda: function(argument))
    else:
        # The limits of a coroutine are enforced on the event loop.
        result = function(argument)
    if result is not None and inspect.isawaitable(result):
        return (wait_for or wait_here)(limited(task, job, result))
    return result


def wait_here(result: Awaitable[Any]) -> Any:
    """Run an awaitable on a new event loop: in this thread, or in another if this one runs a loop already."""

    async def wait() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
        runs_loop = True
    except RuntimeError:
        # Not called in here: this error would be part of each traceback of the handler.
        runs_loop = False
    if not runs_loop:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()


# Batches: one call, an outcome for each


def _run_batch(task: Task[..., Any], jobs: Sequence[Holding], wait_for: Await | None) -> Outcomes:
    items = [_item(task, job) for job in jobs]
    good = [item for item in items if not isinstance(item, Failed)]
    try:
        function = partial(task.function, **task.provided()) if task.signature.provided else task.function
        results = _call(task, jobs[0], function, good, wait_for) if good else []
    except RAISED as error:
        results = trimmed(error)
    return _spread(task, items, results, len(good))


async def _run_batch_async(task: Task[..., Any], jobs: Sequence[Holding]) -> Outcomes:
    items = [_item(task, job) for job in jobs]
    good = [item for item in items if not isinstance(item, Failed)]
    try:
        results = task.function(good, **task.provided()) if good else []
        if inspect.isawaitable(results):
            results = await limited(task, jobs[0], results)
    except RAISED as error:
        results = trimmed(error)
    return _spread(task, items, results, len(good))


def _item(task: Task[..., Any], job: Holding) -> Any:
    """The item of a job in the batch; data that does not fit fails only this job, permanently."""
    try:
        return task.signature.decode(job.body)
    except BadInput as error:
        return Failed(str(error))


def _spread(task: Task[..., Any], items: list[Any], results: Any, count: int) -> Outcomes:
    """What the function returned or raised, for each item; an item that did not fit has its own error."""
    if not isinstance(results, (list, *RAISED)) or (isinstance(results, list) and len(results) != count):
        found = f"{len(results)} of them" if isinstance(results, list) else type(results).__name__
        results = BadInput(f"results of batch task {task.name}", found, needed=f"a list of {count}")
    left = iter(results if isinstance(results, list) else [results] * count)
    return [item if isinstance(item, Failed) else next(left) for item in items]


# Limits


async def limited(task: Task[..., Any], job: Holding, result: Awaitable[Any]) -> Any:
    """Await a handler, within its soft limit and, with `cancel="raise"`, until its job is cancelled.

    Both cancel it at its next `await`, as `asyncio.timeout` does, so that task groups clean up as usual.
    """
    if not task.handling.soft_ms and not task.handling.raises:
        return await result
    loop, inner = asyncio.get_running_loop(), asyncio.ensure_future(guarded(result))
    why: BaseException | None = None

    def end(reason: BaseException) -> None:
        nonlocal why
        if not inner.done():
            why = why or reason
            inner.cancel()

    soft_ms, lease = task.handling.soft_ms, job._lease
    timer = loop.call_later(soft_ms / 1000, end, SoftTimeout()) if soft_ms else None
    if task.handling.raises:
        stop = Retry(0, counts=False, reason="cancelled while it ran")
        lease.on_stop = lambda: _safely(loop, end, stop)
        if lease.stopped:
            end(stop)
    try:
        return await inner
    except asyncio.CancelledError as error:
        if why is None:
            raise
        # Where the handler was.
        raise why.with_traceback(error.__traceback__) from None
    finally:
        lease.on_stop = None
        if timer is not None:
            timer.cancel()


async def guarded(result: Awaitable[Any]) -> Any:
    """Await in a separate asyncio task, in which `sys.exit` must not end the loop with all others on it."""
    try:
        return await result
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_error(error) from error


def _safely(
    loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None], why: BaseException
) -> None:
    try:
        loop.call_soon_threadsafe(end, why)
    except RuntimeError:  # the loop, and so the run, has just ended
        pass


def is_cancelled() -> bool:
    """Whether the running asyncio task was cancelled itself, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def as_error(error: BaseException) -> Exception:
    """Convert what a handler should not raise, such as SystemExit, to an ordinary error."""
    told = RuntimeError(f"the handler raised {''.join(traceback.format_exception_only(error)).strip()}")
    told.__cause__ = trimmed(error)
    return told


class SoftLimit:
    """Raises `SoftTimeout` in the thread that runs a function, once, and never after the function has ended.

    Python delivers such an exception at the next instruction of the thread, perhaps in the code that cancels
    the limit: then the function had ended, and its result counts.
    """

    def __init__(self, timers: TimerThread, soft_ms: int) -> None:
        self._timers, self._soft_ms = timers, soft_ms
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._armed = True

    def run(self, function: Callable[[], Any]) -> Any:
        """Call the function; returns its result or its exception."""
        result = _NOTHING
        timer = self._timers.after(self._soft_ms / 1000, self._on_timer)
        try:
            try:
                with interruptible():
                    result = function()
            finally:
                timer.cancel()
                self._disarm()
        except SoftTimeout:
            if result is _NOTHING:
                raise
        return result

    def _on_timer(self) -> None:
        with self._lock:
            if self._armed:
                self._armed = False
                _raise_in(self._thread, SoftTimeout)

    def _disarm(self) -> None:
        with self._lock:
            was_raised, self._armed = not self._armed, False
        if was_raised:
            # A pending exception is delivered in this call, not later. It is not withdrawn: that would make
            # threads of Python 3.11 hang when they are profiled or traced.
            _nothing()


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


# The running job, for log records


def current_job_id() -> int | None:
    """The id of the job whose handler runs in this context; None outside of handlers and in batches.

    It is inherited by coroutines, `asyncio.create_task` and `asyncio.to_thread`; a thread that the handler
    starts itself has none, unless it runs in a copy of the context.
    """
    job = _current.get()
    return job.id if isinstance(job, Job) else None


def job_of_task(task: "asyncio.Task[Any]") -> Job | str | None:
    """The job whose handler has made an asyncio task, or the task name of a batch; None if not known."""
    # Since Python 3.12.
    get_context = getattr(task, "get_context", None)
    return get_context().get(_current) if get_context is not None else None


class JobLogFilter(logging.Filter):
    """Sets `job_id`, `task`, `attempt`, `tenant` and `trace_id` of the running job in log records, or None.

    `trace_id` is that of the active span, if there is one.

    Add it to a logging handler, so that it gets the records of all loggers. It drops none.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the fields that the record does not have yet."""
        found = _fields(_current.get())
        if traceparent := tracing.current_traceparent():
            found["trace_id"] = trace_id_of(traceparent)
        for name, value in found.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def _fields(job: Job | str | None) -> dict[str, object]:
    if isinstance(job, Job):
        found = {"job_id": job.id, "task": job.task, "attempt": job.attempts + 1, "tenant": job.tenant}
        return found | {"trace_id": job.trace_id or None}
    return {"job_id": None, "task": job, "attempt": None, "tenant": None, "trace_id": None}
