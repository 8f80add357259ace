"""Runs jobs of handlers that are kept in a store, in the threads of an executor.

a batch of one (tenant, task) ──▶ find its handler ──▶ runner ──▶ JobStarted, JobEnded for each job
                                      │ none                         │
                                      └── run again later            └── new jobs are committed first
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core import commands as c
from ...core.errors import HoldfastError, Unavailable
from ...core.handler import FindHandlers, Handler, KnownHandler
from ...core.job import Code, Job
from ...core.lines import body_of_line
from ...engine import joblog
from ...queue import tracing
from ...queue.definition import Handling
from ...queue.queue import ClaimedJob, Queue
from ..runners.records import CANCELLED, DEFAULT_OPTIONS, HandlerJob, RunEvents, RunResult

if TYPE_CHECKING:
    from ..runners.runner import HandlerRunner

# The name by which a supervisor asks for the handlers of its first store, @handlers:0, and so on; and the
# variables that say which stores these are, as JSON, where the settings of runners are, their default of
# `private_hosts`, and how many jobs run at once.
HANDLERS_NAME = "@handlers"
STORES_VARIABLE, RUNNERS_VARIABLE = "HOLDFAST_HANDLERS_STORES", "HOLDFAST_HANDLERS_RUNNERS"
PRIVATE_VARIABLE, SLOTS_VARIABLE = "HOLDFAST_HANDLERS_PRIVATE_HOSTS", "HOLDFAST_HANDLERS_SLOTS"
# When a job is tried again whose handler was deleted after its claim.
NO_HANDLER_DELAY_MS = 1_000
NO_HANDLER = "there is no handler for this task"
# The index of a job's queue, and the job's id.
Key = tuple[int, int]
# Announces the start of a job; returns None if it may not start any more.
StartJob = Callable[[Key], ClaimedJob | None]
# Reports the end of a job that has started: its answer, and for how many seconds it ran.
EndJob = Callable[[Key, c.Answer | None, float], None]


class StoredTask:
    """A tenant's task with a handler in the store: its jobs run in batches."""

    def __init__(self) -> None:
        self.handling = Handling(batch=DEFAULT_OPTIONS.batch_size)
        # How many jobs one request takes, 0: each has its own; and what the supervisor knows of that.
        self.request_size = self.reported_size = 0


def handler_variables(stores: Sequence[str], runners: str, private_hosts: bool, slots: int) -> dict[str, str]:
    """The variables by which a supervisor tells its executors of stored handlers."""
    return {
        STORES_VARIABLE: json.dumps(stores),
        RUNNERS_VARIABLE: runners,
        PRIVATE_VARIABLE: "1" if private_hosts else "",
        SLOTS_VARIABLE: str(slots),
    }


def open_runner() -> "HandlerRunner":
    """The runner of this process, with the settings that its supervisor has named."""
    # Imported here, as most executors run no stored handlers.
    from ..runners.isolation import find_isolation
    from ..runners.runner import HandlerRunner
    from ..runners.settings import read_settings

    path, private_hosts = os.environ.get(RUNNERS_VARIABLE, ""), bool(os.environ.get(PRIVATE_VARIABLE))
    return HandlerRunner(find_isolation(read_settings(path, private_hosts=private_hosts)))


class StoredHandlers:
    """The handlers of one store."""

    def __init__(self, queue: Queue, queue_index: int, runner: "HandlerRunner") -> None:
        self._queue, self._queue_index, self._runner = queue, queue_index, runner
        self.url = queue.url
        # The newest versions that were seen; a version is known by its id.
        self._known: dict[tuple[str, str], Handler] = {}
        self._tasks: dict[tuple[str, str], StoredTask] = {}
        self._lock = threading.Lock()

    def task_of(self, job: Job) -> StoredTask:
        """What the jobs of a tenant's task are grouped by."""
        with self._lock:
            return self._tasks.setdefault((job.tenant, job.task), StoredTask())

    def run(self, jobs: Sequence[c.Claimed], start: StartJob, end: EndJob) -> None:
        """Run jobs of one tenant's task; each that starts ends, without an answer if it lost its claim."""
        every = [self._as_run(one) for one in jobs]
        reason = NO_HANDLER
        try:
            handler = self._find_handler(jobs[0].job)
        except Unavailable as error:
            # It is in a shard that is down, where it cannot be changed either: the last one is the newest.
            handler, reason = self._known.get((jobs[0].job.tenant, jobs[0].job.task)), str(error)
        if handler is None:
            for job in every:
                if (claimed := start(job.key)) is not None:
                    end(job.key, _no_handler(claimed, reason), 0.0)
            return
        running: dict[Key, ClaimedJob] = {}

        def on_started(job: HandlerJob) -> bool:
            if (claimed := start(job.key)) is None:
                return False
            running[job.key] = claimed
            if tracing.API in sys.modules:
                claimed.span = tracing.RunSpan([claimed.record])
            if joblog.LOG.isEnabledFor(joblog.STARTED):
                joblog.started(claimed.record, trace_id=claimed.trace_id)
            return True

        def on_ended(job: HandlerJob, result: RunResult) -> None:
            end(job.key, self._answer(running.pop(job.key), result), result.wall_ms / 1000)

        size = self._runner.batch_size(handler)
        for first in range(0, len(every), size):
            self._runner.run(handler, every[first : first + size], RunEvents(on_started, on_ended))

    def _as_run(self, claimed: c.Claimed) -> HandlerJob:
        job, data = claimed.job, claimed.data
        return HandlerJob(
            id=job.id,
            task=job.task,
            payload=data if isinstance(data, bytes) else data.encode(),
            attempt=job.attempts + 1,
            timeout_ms=job.timeout_ms,
            queue_index=self._queue_index,
        )

    def _find_handler(self, job: Job) -> Handler | None:
        """The newest version of a job's handler. Its scripts are read only if it is not known yet."""
        pair = (job.tenant, job.task)
        known = self._known.get(pair)
        asked = FindHandlers(pairs=(KnownHandler(*pair, known.id if known else 0),))
        reply: list[Handler] = self._queue.session.connection.ask(asked)
        found = reply[0] if reply else None
        with self._lock:
            if found is None:
                self._known.pop(pair, None)
            elif known is None or found.id != known.id:
                self._known[pair] = known = found
                size = self._runner.batch_size(found)
                task = self._tasks.setdefault(pair, StoredTask())
                task.handling, task.request_size = Handling(batch=size), self._runner.request_size(found)
        return None if found is None else known

    def _answer(self, claimed: ClaimedJob, result: RunResult) -> c.Answer | None:
        """The answer for a result, after its new jobs are committed."""
        code, error = result.code, result.error
        if result.new_jobs:
            try:
                self._add_new_jobs(claimed, result)
            except HoldfastError as refused:
                code, error = Code.ERROR, f"its new jobs were refused: {refused}"
        fields: dict[str, Any] = {
            "result": result.body,
            "exit_code": result.exit_code if code is result.code else 0,
            "error": error or ("" if code is Code.OK else f"exit code {result.exit_code}"),
            "traceback": result.traceback,
            "lines": result.lines,
            "cpu_ms": result.cpu_ms,
            "wall_ms": result.wall_ms,
        }
        if error.startswith(CANCELLED):
            fields |= {"delay_ms": 0, "counts": False, "exit_code": 0}
            code = Code.RETRY
        return _conclude(claimed, code, fields, result.wall_ms)

    def _add_new_jobs(self, claimed: ClaimedJob, result: RunResult) -> None:
        jobs = (
            # Data that is empty or looks like a comment is data all the same.
            c.NewJob(tenant=claimed.record.tenant, task=task, data=body_of_line(data) or data)
            for task, data in result.new_jobs
        )
        span = (claimed.span.traceparent if claimed.span else "") or claimed.record.traceparent
        self._queue.session.connection.ask(c.Add(jobs=tracing.mark(jobs, span)))


def _no_handler(claimed: ClaimedJob, reason: str) -> c.Answer | None:
    """The answer for a job whose handler cannot be had: it waits, without counting an attempt."""
    fields = {"error": reason, "delay_ms": NO_HANDLER_DELAY_MS, "counts": False}
    return _conclude(claimed, Code.RETRY, fields, 0.0)


def _conclude(claimed: ClaimedJob, code: Code, fields: dict[str, Any], wall_ms: float) -> c.Answer | None:
    try:
        asked = claimed._answer(code, **fields).asked
    except HoldfastError:
        if claimed.span is not None:
            claimed.span.end("lost")
        return None  # the claim was lost just now
    assert isinstance(asked, c.Answer)
    if code is not Code.OK or joblog.LOG.isEnabledFor(joblog.FINISHED):
        joblog.ended(claimed.record, asked, duration_ms=round(wall_ms, 1), trace_id=claimed.trace_id)
    if claimed.span is not None:
        claimed.span.end_answered(claimed.record, asked, None)
    return asked
