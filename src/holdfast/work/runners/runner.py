"""Runs the jobs of stored handlers: a batch of one handler in a warm context, the rest in the next."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...core.errors import BadInput
from ...core.handler import Handler
from ...queue.timers import TimerThread
from ..thread_pool import DaemonThreadPool
from .contexts import ContextKey, ContextPool, ProcessContext, WarmContext, key_of
from .dialects import Dialect, JsonDialect, ShellDialect
from .http import HttpContext
from .isolation import Isolation, plan_launch
from .records import (
    BAD_HANDLER,
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

# The arguments of each interpreter with a bootstrap, and the bootstrap.
PYTHON_ARGUMENTS = ("-I", "-B", "-X", "utf8")
BOOTSTRAPS = {PYTHON: "{children}/python_context.py", NODE: "{children}/node_context.js"}
SHELL_BOOTSTRAP = "{children}/shell_context.sh"


class HandlerRunner:
    """All contexts of a process. Any number of threads may run batches at the same time."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation, self._settings = isolation, isolation.settings
        self._interpreters = isolation.interpreters
        self._contexts = ContextPool(self._settings.idle_contexts, self._settings.idle_s)
        self._starter = DaemonThreadPool(1, "holdfast-start")
        self._timers = TimerThread()
        # The contexts that jobs run in.
        self._running: dict[tuple[int, int], WarmContext] = {}
        self._lock = threading.Lock()

    @property
    def languages(self) -> list[str]:
        """The languages that can run here."""
        return sorted({*self._interpreters, HTTP})

    def batch_size(self, handler: Handler) -> int:
        """How many jobs of a handler make a batch at most."""
        return effective_options(handler.options, self._settings.limits).batch_size

    def run(self, handler: Handler, jobs: Sequence[HandlerJob], events: RunEvents) -> None:
        """Run jobs in order. Each is started once and ended once, whatever happens to its context."""
        rest = list(jobs)
        while rest:
            try:
                context = self._take(handler)
            except (ContextFailed, BadInput) as failed:
                _end_all(rest, str(failed), events)
                return
            try:
                rest = self._run_batch(context, handler, rest, events)
            finally:
                self._contexts.give_back(context)

    def _take(self, handler: Handler) -> WarmContext:
        key = key_of(handler, effective_options(handler.options, self._settings.limits))
        return self._contexts.take(key, lambda: self._make(key))

    def _make(self, key: ContextKey) -> WarmContext:
        if key.lang == HTTP:
            return HttpContext(key, self._settings.hosts, self._timers)
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
            users_taken=self._contexts.users(),
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
            if handler.after_each:
                held.append((job, with_charge(result, each)))
            else:
                events.on_ended(job, with_charge(result, each))
        after = _clean_up(context, handler).share(done) if done and handler.after_each else Charge()
        for job, result in held:
            events.on_ended(job, with_charge(result, after))
        return list(jobs[done:])

    def _results(
        self, context: WarmContext, handler: Handler, batch: Sequence[HandlerJob], events: RunEvents
    ) -> Iterator[tuple[HandlerJob, RunResult]]:
        """The jobs of a batch with their results, until the context cannot run another one."""
        if isinstance(context, HttpContext) and handler.options.batch:
            with self._cancellable(context, batch):
                for job in batch:
                    events.on_started(job)
                results = context.run_batch(handler, batch)
            yield from zip(batch, results, strict=True)
            return
        for number, job in enumerate(batch):
            if number and not context.is_clean():
                context.fail()
                return
            with self._cancellable(context, [job]):
                events.on_started(job)
                result = context.run_job(handler, job)
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
        """End a job that runs, and with it its context. Does nothing if it does not run."""
        with self._lock:
            if (context := self._running.get(key)) is not None:
                context.cancel()

    def close_idle(self) -> None:
        """Close contexts that were not used for too long."""
        self._contexts.close_idle()

    def close(self) -> None:
        """Close all contexts; jobs that run are ended."""
        self._contexts.close()
        self._starter.close()
        self._timers.close()


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
        events.on_started(job)
        events.on_ended(job, RunResult(exit_code=ERROR, error=error))
