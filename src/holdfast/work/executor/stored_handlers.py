"""Runs jobs of handlers that are kept in a store, in batches, in the threads of an executor.

a batch of one (tenant, task) ──▶ find its handler ──▶ runner ──▶ JobStarted, JobEnded for each job
                                      │ none                         │
                                      └── run again later            └── new jobs are committed first
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core import commands as c
from ...core.creating import body_of_line
from ...core.errors import HoldfastError, Unavailable
from ...core.handler import FindHandlers, Handler, KnownHandler
from ...core.job import Code, Job
from ...engine import joblog
from ...queue import tracing
from ...queue.definition import Handling
from ...queue.queue import ClaimedJob, Queue
from ...queue.running import as_error
from ..messages import Begin, ExecutorMessage, JobEnded, QueueInfo, RequestSize
from ..runners.records import CANCELLED, DEFAULT_OPTIONS, HandlerJob, RunEvents, RunResult
from .job_buffer import BufferedJob, StoredTask, make_returned

if TYPE_CHECKING:
    from ..runners.runner import HandlerRunner

# How often contexts are closed that were not used for long.
SWEEP_S = 5.0
# When a job is tried again whose handler was deleted after its claim.
NO_HANDLER_DELAY_MS = 1_000
NO_HANDLER = "there is no handler for this task"
# The index of a job's queue, and the job's id.
Key = tuple[int, int]
# Announces the start of a job; returns None if it may not start any more.
StartJob = Callable[[Key], ClaimedJob | None]
# Reports the end of a job that has started: its answer, and for how many seconds it ran.
EndJob = Callable[[Key, c.Answer | None, float], None]


def _open_runner(begin: Begin) -> "HandlerRunner":
    """The runner of this process, with the settings that its supervisor has named."""
    # Imported here, as most executors run no stored handlers.
    from ..runners.isolation import find_isolation
    from ..runners.runner import HandlerRunner
    from ..runners.settings import read_settings

    settings = read_settings(begin.runners, private_hosts=begin.private_hosts)
    return HandlerRunner(find_isolation(settings))


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
            return self._tasks.setdefault((job.tenant, job.task), StoredTask(DEFAULT_OPTIONS.batch_size))

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
                task = self._tasks.setdefault(pair, StoredTask(DEFAULT_OPTIONS.batch_size))
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


class HandlerContexts:
    """The stored handlers of an executor, one for each store, and the one runner of all of them."""

    def __init__(
        self,
        begin: Begin,
        start_jobs: Callable[[list[BufferedJob], list[ExecutorMessage]], Sequence[Any]],
        make_message: Callable[[Any, c.Answer | None, float], JobEnded],
    ) -> None:
        self._begin, self._start_jobs, self._make_message = begin, start_jobs, make_message
        self._runner: HandlerRunner | None = None
        self.stored: dict[int, StoredHandlers] = {}
        # The jobs of each batch that runs now and that have not started.
        self._unstarted: list[dict[Key, BufferedJob]] = []
        self._stopping = threading.Event()

    def open(self, queue: Any, queue_index: int) -> None:
        """Run the handlers of a store."""
        if self._runner is None:
            self._runner = _open_runner(self._begin)
            threading.Thread(target=self._sweep, name="contexts", daemon=True).start()
        self.stored[queue_index] = StoredHandlers(queue, queue_index, self._runner)

    def describe(self, queue_index: int) -> QueueInfo | None:
        """What the supervisor learns about stored handlers; None of another queue."""
        if queue_index not in self.stored:
            return None
        assert self._runner is not None
        text = f"{', '.join(self._runner.languages)}; {self._runner.description}"
        return QueueInfo(url=self.stored[queue_index].url, handlers=True, isolation=text)

    def run(self, taken: Sequence[BufferedJob], unsent: list[ExecutorMessage]) -> None:
        """Run jobs of one tenant's task. Messages that need not be sent at once are left in `unsent`."""
        unstarted: dict[Key, BufferedJob] = {}
        for item in taken:
            if item.key in unstarted:
                # The supervisor has taken it back, and delivered it again.
                unsent.append(make_returned([unstarted.pop(item.key)]))
            unstarted[item.key] = item
        running: dict[Key, ClaimedJob] = {}
        self._unstarted.append(unstarted)

        def start(key: Key) -> ClaimedJob | None:
            item = unstarted.pop(key, None)
            if item is None:
                # `drop_taken` has dropped it.
                return None
            unsent.extend(_new_size(item))
            started = self._start_jobs([item], unsent)
            if not started:
                return None
            running[key] = started[0]
            return running[key]

        def end(key: Key, answer: c.Answer | None, duration_s: float) -> None:
            unsent.append(self._make_message(running.pop(key), answer, duration_s))

        try:
            self.stored[taken[0].queue_index].run([item.claimed for item in unstarted.values()], start, end)
        except Exception as error:
            # Of the store, or ours: started jobs get it, the others are returned.
            _end_running(running, end, error)
            unsent.append(make_returned(unstarted.values()))
        finally:
            self._unstarted.remove(unstarted)

    def drop_taken(self, is_taken: Callable[[int], bool]) -> list[BufferedJob]:
        """Remove and return the jobs of batches that the supervisor has taken back. In any thread.

        They wait behind a job of the same task. Until they are dropped, the supervisor sends no other jobs.
        """
        dropped = []
        for unstarted in list(self._unstarted):
            for key, item in list(unstarted.items()):
                if is_taken(item.number) and unstarted.pop(key, None) is not None:
                    dropped.append(item)
        return dropped

    def cancel(self, key: Key) -> None:
        """End a job that runs in a context."""
        if self._runner is not None and key[0] in self.stored:
            self._runner.cancel(key)

    def _sweep(self) -> None:
        assert self._runner is not None
        while not self._stopping.wait(SWEEP_S):
            self._runner.close_idle()

    def close(self) -> None:
        """End all contexts."""
        self._stopping.set()
        if self._runner is not None:
            self._runner.close()


def _end_running(
    running: dict[Key, ClaimedJob], end: Callable[[Key, c.Answer | None, float], None], error: Exception
) -> None:
    """End jobs that have started with an error."""
    for key, job in list(running.items()):
        try:
            ask = job._conclude(as_error(error))
        except HoldfastError:
            ask = None
        answer: Any = None if ask is None else ask.asked
        end(key, answer, 0.0)


def _new_size(item: BufferedJob) -> list[ExecutorMessage]:
    """A message about the size of requests of a job's handler, if the supervisor does not know it yet."""
    job, task = item.claimed.job, item.task
    assert isinstance(task, StoredTask)
    if task.request_size == task.reported_size:
        return []
    task.reported_size = task.request_size
    return [RequestSize(tenant=job.tenant, task=job.task, size=task.request_size)]
