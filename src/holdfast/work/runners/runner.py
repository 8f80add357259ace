"""Runs the jobs of stored handlers: a batch of one handler in a warm context, the rest in the next."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from ...core.errors import BadInput
from ...core.handler import Handler
from ...queue.timers import TimerThread
from ..thread_pool import DaemonThreadPool
from .contexts import ContextKey, ContextPool, ProcessContext, WarmContext, key_of
from .dialects import Dialect, JsonDialect, ShellDialect
from .isolation import Isolation, plan_launch
from .records import (
    BAD_HANDLER,
    CANCELLED,
    ERROR,
    Charge,
    ContextFailed,
    HandlerJob,
    RunEvents,
    RunResult,
    effective_options,
    with_charge,
)
from .settings import HTTP, NODE, PYTHON, SHELL

if TYPE_CHECKING:
    from .http import HttpContext

# The arguments of each interpreter with a bootstrap, and the bootstrap.
PYTHON_ARGUMENTS = ("-I", "-B", "-X", "utf8")
BOOTSTRAPS = {PYTHON: "{children}/python_context.py", NODE: "{children}/node_context.js"}
SHELL_BOOTSTRAP = "{children}/shell_context.sh"
NOT_RUN = RunResult(exit_code=ERROR, error=f"{CANCELLED}: the job was cancelled before it ran")


class HandlerRunner:
    """All contexts of a process. Any number of threads may run batches at the same time."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation, self._settings = isolation, isolation.settings
        self._interpreters = isolation.interpreters
        # Which walls there are, for the log of a worker.
        self.description = isolation.describe()
        self._timers = TimerThread()
        self._contexts = ContextPool(self._settings.idle_contexts, self._settings.idle_s, self._timers)
        self._starter = DaemonThreadPool(1, "holdfast-start")
        # The contexts that jobs run in, and jobs that were cancelled while their contexts were prepared.
        self._running: dict[tuple[int, int], WarmContext] = {}
        self._cancelled: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    @property
    def languages(self) -> list[str]:
        """The languages that can run here."""
        return sorted({*self._interpreters, HTTP})

    def batch_size(self, handler: Handler) -> int:
        """How many jobs of a handler make a batch at most."""
        return effective_options(handler.options, self._settings.limits).batch_size

    def request_size(self, handler: Handler) -> int:
        """How many jobs of a handler are one request, and so start and end together; 0: each by itself."""
        return self.batch_size(handler) if handler.lang == HTTP and handler.options.batch else 0

    def run(self, handler: Handler, jobs: Sequence[HandlerJob], events: RunEvents) -> None:
        """Run jobs in order. Each is started once and ended once, whatever happens to its context."""
        rest, events = list(jobs), _start_once(events)
        while rest:
            # Before its context starts, which may take long: a job that waits goes to another executor.
            if not events.on_started(rest[0]):
                del rest[0]
                continue
            try:
                context = self._take(handler)
            except (ContextFailed, BadInput) as failed:
                _end_all(rest, str(failed), events)
                return
            try:
                rest = self._run_batch(context, handler, rest, events)
            finally:
                self._contexts.give_back(context)
        with self._lock:
            self._cancelled.difference_update(job.key for job in jobs)

    def _take(self, handler: Handler) -> WarmContext:
        key = key_of(handler, effective_options(handler.options, self._settings.limits))
        return self._contexts.take(key, handler, lambda: self._make(key))

    def _make(self, key: ContextKey) -> WarmContext:
        if key.lang == HTTP:
            # Slow to import.
            from .http import HttpContext

            return HttpContext(key, self._settings, self._timers)
        command = self._interpreters.get(key.lang)
        if command is None:
            known = ", ".join(self.languages)
            raise ContextFailed(BAD_HANDLER, f"there is no runner for {key.lang} here, only for {known}")
        interpreter, bootstrap, dialect = self._bootstrap(key.lang, command)
        plan = plan_launch(
            self._isolation,
            tenant=key.tenant,
            interpreter=interpreter,
            bootstrap=bootstrap,
            options=key.options,
        )
        return ProcessContext(key, plan, dialect, self._settings.processes, self._starter)

    def _bootstrap(
        self, lang: str, command: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...], Dialect]:
        """The interpreter with its arguments, the program that it runs, and how to talk to that."""
        if lang == PYTHON:
            return (*command, *PYTHON_ARGUMENTS), (BOOTSTRAPS[lang],), JsonDialect()
        if lang == NODE:
            return command, (BOOTSTRAPS[lang],), JsonDialect()
        if SHELL not in self._interpreters:
            raise ContextFailed(BAD_HANDLER, f"{lang} needs a shell, and there is none")
        inner = () if lang == SHELL else command
        return self._interpreters[SHELL], (SHELL_BOOTSTRAP, *inner), ShellDialect()

    def _run_batch(
        self, context: WarmContext, handler: Handler, jobs: Sequence[HandlerJob], events: RunEvents
    ) -> list[HandlerJob]:
        """Run as many jobs as the context can; returns those that are left for another one."""
        batch = list(jobs[: context.jobs_left()])
        try:
            context.prepare(handler)
            each = context.run_around(handler, "before_each").share(len(batch))
        except ContextFailed as failed:
            context.fail()
            _end_all(jobs, str(failed), events)
            return []
        each += context.start_charge.share(context.key.options.context_jobs)
        # Without `after_each` a result is complete when its job has ended.
        held: list[tuple[HandlerJob, RunResult]] = []
        done = 0
        for job, result in self._results(context, handler, batch, events):
            done += 1
            if result is None:
                continue
            if handler.after_each:
                held.append((job, with_charge(result, each)))
            else:
                events.on_ended(job, with_charge(result, each))
        if held:
            after = _clean_up(context, handler).share(len(held))
            for job, result in held:
                events.on_ended(job, with_charge(result, after))
        return list(jobs[done:])

    def _results(
        self, context: WarmContext, handler: Handler, batch: Sequence[HandlerJob], events: RunEvents
    ) -> Iterator[tuple[HandlerJob, RunResult | None]]:
        """The jobs of a batch with their results, until the context cannot run another one.

        A job that may not start any more has no result.
        """
        if handler.lang == HTTP and handler.options.batch:
            sender = cast("HttpContext", context)
            with self._cancellable(context, batch):
                started = [job for job in batch if events.on_started(job)]
                results = dict(zip(started, sender.run_batch(handler, started), strict=True))
            yield from ((job, results.get(job)) for job in batch)
            return
        for number, job in enumerate(batch):
            if number and context.has_leftovers:
                return
            if number and not context.is_clean():
                context.fail()
                return
            if not events.on_started(job):
                yield job, None
                continue
            with self._cancellable(context, [job]):
                result = NOT_RUN if job.key in self._cancelled else context.run_job(handler, job)
            yield job, result

    @contextmanager
    def _cancellable(self, context: WarmContext, jobs: Sequence[HandlerJob]) -> Iterator[None]:
        keys = [job.key for job in jobs]
        with self._lock:
            self._running.update(dict.fromkeys(keys, context))
        try:
            yield
        finally:
            with self._lock:
                for key in keys:
                    self._running.pop(key, None)

    def cancel(self, key: tuple[int, int]) -> None:
        """End a job that has started, and with it its context; one that does not run yet will not."""
        with self._lock:
            if (context := self._running.get(key)) is not None:
                context.cancel()
            else:
                self._cancelled.add(key)

    def close_idle(self) -> None:
        """Close contexts that were not used for too long."""
        self._contexts.close_idle()

    def close(self) -> None:
        """Close all contexts; jobs that run are ended."""
        self._contexts.close()
        self._starter.close()
        self._timers.close()


def _start_once(events: RunEvents) -> RunEvents:
    """The same events, with the start of each job announced once."""
    started: dict[tuple[int, int], bool] = {}

    def on_started(job: HandlerJob) -> bool:
        if job.key not in started:
            started[job.key] = events.on_started(job)
        return started[job.key]

    return RunEvents(on_started, events.on_ended)


def _clean_up(context: WarmContext, handler: Handler) -> Charge:
    """Run `after_each`. If that fails, the results stand, and the context is not used again."""
    if not context.is_clean():
        return Charge()
    try:
        return context.run_around(handler, "after_each")
    except ContextFailed:
        context.fail()
        return Charge()


def _end_all(jobs: Sequence[HandlerJob], error: str, events: RunEvents) -> None:
    """End jobs that cannot run, with 500."""
    for job in jobs:
        if events.on_started(job):
            events.on_ended(job, RunResult(exit_code=ERROR, error=error))


def run_once(handler: Handler, payload: bytes, isolation: Isolation) -> RunResult:
    """Run a handler once with sample data, in a context of its own, without a job."""
    results: list[RunResult] = []
    runner = HandlerRunner(isolation)
    try:
        events = RunEvents(lambda _job: True, lambda _job, result: results.append(result))
        job = HandlerJob(id=1, task=handler.task, payload=payload)
        runner.run(handler, [job], events)
    finally:
        runner.close()
    return results[0]
