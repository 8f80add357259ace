"""Contexts that run handlers in child processes, and the pool that keeps them warm.

take ──▶ prepare (start, before, define) ──▶ before_each ──▶ run … run ──▶ after_each ──▶ give back
  ▲                                                            │                             │
  └── an idle context with the same key, stopped ◀─────────────┼── still good ◀──────────────┘
                                                               └── failed, used up, still busy: closed
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ...core.handler import Handler, RunnerOptions
from ...queue.timers import TimerThread
from ...store.common.clock import monotonic_s
from ..thread_pool import DaemonThreadPool
from .child import MEASURE_S, Allowance, ChildProcess, JobOutput
from .dialects import Dialect, Reply
from .isolation import MB, LaunchPlan
from .records import BAD_HANDLER, ERROR, Charge, ContextFailed, HandlerJob, RunResult

# What starting and preparing a context may take besides the limits of a job.
START_WALL_MS, START_CPU_MS = 30_000, 10_000
# How long a context is idle before it is stopped.
PAUSE_S = 0.05
# A job's own time limit ends this much earlier here, so that the supervisor need not kill the executor.
EARLY_MS = 1_500


class ContextKey(NamedTuple):
    """Handlers with the same key share contexts."""

    tenant: str
    # The `eid`, or the task, which cannot be taken for one another.
    group: tuple[str, str]
    lang: str
    before: str
    options: RunnerOptions


def key_of(handler: Handler, options: RunnerOptions) -> ContextKey:
    """The key of the contexts that a handler may run in."""
    group = ("eid", handler.eid) if handler.eid else ("task", handler.task)
    return ContextKey(handler.tenant, group, handler.lang, _digest(handler.before), options)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] if any(texts) else ""


class WarmContext:
    """An environment that runs the jobs of one key, one batch at a time."""

    def __init__(self, key: ContextKey) -> None:
        self.key, self._options = key, key.options
        # The ids of the versions of handlers that ran in it, by task.
        self._versions: dict[str, int] = {}
        # What starting it has used, and when it was last used.
        self.start_charge = Charge()
        self._started_s = self.used_s = monotonic_s()
        self._jobs = 0
        # Failed: cannot run another job. Suspect: may, but not in another batch.
        self._is_prepared = self._has_failed = self._is_suspect = False
        # Whether a job has left something that runs; and whether it is stopped.
        self.has_leftovers = self.is_paused = False

    def jobs_left(self) -> int:
        """How many more jobs it may run; 0: it must be closed."""
        is_old = (monotonic_s() - self._started_s) * 1000 > self._options.context_age_ms
        if is_old or self._has_failed or self._is_suspect or self.has_leftovers:
            return 0
        return self._options.context_jobs - self._jobs

    def accept(self, handler: Handler) -> bool:
        """Note a handler that runs in it now; returns False if another version of it has run in it."""
        return self._versions.setdefault(handler.task, handler.id) == handler.id

    def fail(self) -> None:
        """Have it closed instead of used again."""
        self._has_failed = True

    def is_clean(self) -> bool:
        """Whether it can run another job."""
        raise NotImplementedError

    def pause(self) -> bool:
        """Have it do nothing until `resume`, if `is_paused` still holds; False: it must be closed instead."""
        return True

    def resume(self) -> None:
        """Have it run again."""

    def prepare(self, handler: Handler) -> None:
        """Start it, if that has not been done, and define the handler; raises `ContextFailed`."""
        raise NotImplementedError

    def run_around(self, handler: Handler, script: str) -> Charge:
        """Run `before_each` or `after_each`; raises `ContextFailed` if that fails."""
        raise NotImplementedError

    def run_job(self, handler: Handler, job: HandlerJob) -> RunResult:
        """Run a job; errors are part of its result."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End the job that runs. Any thread may call it."""
        raise NotImplementedError

    def close(self) -> None:
        """End it."""
        raise NotImplementedError


class ProcessContext(WarmContext):
    """A context in a child process."""

    def __init__(
        self, key: ContextKey, plan: LaunchPlan, dialect: Dialect, processes: int, starter: DaemonThreadPool
    ) -> None:
        super().__init__(key)
        self._dialect, self._processes = dialect, processes
        self._number = 0
        self._defined: set[str] = set()
        self._looked_s = 0.0
        self._child = ChildProcess(plan, starter)

    def is_clean(self) -> bool:
        """Whether it can run another job: it runs, and has written no reply that no request asked for."""
        return not self._has_failed and self._child.is_usable()

    def pause(self) -> bool:
        """Stop its processes; returns False if they use too much, or if jobs have left some that run."""
        return self._child.pause(self._options.memory_mb * MB, lambda: self.is_paused)

    def resume(self) -> None:
        """Have its processes run again."""
        self._child.resume()

    def prepare(self, handler: Handler) -> None:
        """Start it, if that has not been done, and define the handler; raises `ContextFailed`."""
        if not self._is_prepared:
            self._is_prepared = True
            if handler.before:
                self._prepare(self._dialect.before(self._next(), handler.before), "before")
        if (name := self._name_of(handler)) not in self._defined:
            self._prepare(self._dialect.define(self._next(), name, handler), "handler")
            self._defined.add(name)
            self._child.keep_processes(in_batch=False)

    def _prepare(self, requests: list[bytes], what: str) -> None:
        for request in requests:
            reply, charge, output = self._ask_script(request, START_WALL_MS)
            self.start_charge += charge
            if reply.error:
                raise ContextFailed(BAD_HANDLER, ": ".join((what, reply.error, *output.lines[-1:])))

    def run_around(self, handler: Handler, script: str) -> Charge:
        """Run `before_each` or `after_each`; raises `ContextFailed` if that fails."""
        if not getattr(handler, script):
            return Charge()
        request = self._dialect.around(self._next(), self._name_of(handler), script)
        reply, charge, output = self._ask_script(request, self._options.timeout_ms)
        if reply.error:
            name = {"before_each": "beforeEach", "after_each": "afterEach"}[script]
            raise ContextFailed(BAD_HANDLER, ": ".join((name, reply.error, *output.lines[-1:])))
        if script == "before_each":
            self._child.keep_processes(in_batch=True)
        return charge

    def run_job(self, handler: Handler, job: HandlerJob) -> RunResult:
        """Run a job; if it or its context fails, its result says so, and the context is not used again."""
        self._jobs += 1
        output = self._new_output()
        wall_ms = early_ms(job.timeout_ms, self._options.timeout_ms)
        request = self._dialect.run(self._next(), self._name_of(handler), job)
        started_s, usage = monotonic_s(), Charge()
        try:
            reply, usage, _ = self._ask(request, self._allowance(wall_ms), output)
        except ContextFailed as failed:
            self._has_failed = True
            self._child.drain(output)
            reply = Reply(ERROR, None, str(failed))
            usage = Charge(self._child.last_cpu_ms, (monotonic_s() - started_s) * 1000)
        self._is_suspect = self._is_suspect or reply.exit_code >= ERROR
        self._look_for_leftovers()
        return RunResult(
            exit_code=reply.exit_code,
            body=reply.body,
            error=reply.error,
            traceback=reply.traceback,
            lines=output.lines,
            new_jobs=output.new_jobs,
            cpu_ms=usage.cpu_ms,
            wall_ms=usage.wall_ms,
        )

    def _look_for_leftovers(self) -> None:
        """See whether a job has left something that runs; not after each of many short ones."""
        if (now_s := monotonic_s()) > self._looked_s + MEASURE_S and not self._has_failed:
            self._looked_s = now_s
            self.has_leftovers = self._child.has_leftovers() or self._child.is_busy()

    def _ask_script(self, request: bytes, wall_ms: float) -> tuple[Reply, Charge, JobOutput]:
        """Send the request for a script; if its context fails, the error has the last line of its output."""
        output = self._new_output()
        try:
            return self._ask(request, self._allowance(wall_ms, START_CPU_MS), output)
        except ContextFailed as failed:
            self._child.drain(output)
            last = ": ".join(output.lines[-1:])
            raise ContextFailed(failed.reason, f"{failed.text}{last and ': '}{last}") from None

    def _ask(
        self, request: bytes, allowance: Allowance, output: JobOutput
    ) -> tuple[Reply, Charge, JobOutput]:
        number = self._number
        reply, charge = self._child.exchange(
            request, lambda buffer, searched: self._dialect.read(number, buffer, searched), allowance, output
        )
        return reply, charge, output

    def _new_output(self) -> JobOutput:
        return JobOutput(self._options.output_kb * 1024)

    def _allowance(self, wall_ms: float, more_cpu_ms: float = 0.0) -> Allowance:
        return Allowance(
            wall_ms=wall_ms,
            cpu_ms=self._options.cpu_ms + more_cpu_ms,
            memory_bytes=self._options.memory_mb * MB,
            processes=self._processes,
        )

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _name_of(self, handler: Handler) -> str:
        return _digest(handler.body, handler.before_each, handler.after_each)

    def cancel(self) -> None:
        """Kill the process: the job that runs ends with it."""
        self._child.cancel()

    def close(self) -> None:
        """Kill the process and all its descendants."""
        self._child.close()


def early_ms(timeout_ms: int, most_ms: float) -> float:
    """How long a job may run here: a little less than its own time limit, and at most that of its handler."""
    return min(most_ms, max(timeout_ms - EARLY_MS, timeout_ms / 2) or most_ms)


class ContextPool:
    """The contexts of a process that no job runs in, by their keys; the least recently used are closed."""

    def __init__(self, most_idle: int, idle_s: float, timers: TimerThread) -> None:
        self._most_idle, self._idle_s, self._timers = most_idle, idle_s, timers
        self._has_timer = False
        self._idle: OrderedDict[int, WarmContext] = OrderedDict()
        self._by_key: dict[ContextKey, list[WarmContext]] = {}
        self._busy: set[WarmContext] = set()
        self._lock = threading.Lock()

    def take(self, key: ContextKey, handler: Handler, make: Callable[[], WarmContext]) -> WarmContext:
        """Remove and return a warm context, the last used; or make one.

        Those that cannot be used are closed: their process may have ended since, or have written something,
        or another version of the handler has run there.
        """
        while (context := self._take_idle(key)) is not None:
            if context.is_paused:
                context.is_paused = False
                context.resume()
            if context.jobs_left() > 0 and context.is_clean() and context.accept(handler):
                return context
            self._drop(context)
        made = make()
        made.accept(handler)
        with self._lock:
            self._busy.add(made)
        return made

    def _take_idle(self, key: ContextKey) -> WarmContext | None:
        with self._lock:
            context = self._by_key[key][-1] if key in self._by_key else None
            if context is not None:
                self._remove(context)
                self._busy.add(context)
        return context

    def give_back(self, context: WarmContext) -> None:
        """Keep a context for the next batch, or close it."""
        if context.jobs_left() <= 0:
            self._drop(context)
            return
        context.used_s = monotonic_s()
        with self._lock:
            self._busy.discard(context)
            self._idle[id(context)] = context
            self._by_key.setdefault(context.key, []).append(context)
            self._start_timer()
        self.close_idle()

    def _start_timer(self) -> None:
        """Have idle contexts stopped in a moment, not between two batches that follow each other."""
        if not self._has_timer:
            self._has_timer = True
            self._timers.after(PAUSE_S, self._pause_idle)

    def _pause_idle(self) -> None:
        late_s = monotonic_s() - PAUSE_S
        with self._lock:
            self._has_timer = False
            running = [one for one in self._idle.values() if not one.is_paused]
            late = [one for one in running if one.used_s <= late_s]
            for context in late:
                context.is_paused = True
            if len(late) < len(running):
                self._start_timer()
        for context in late:
            if not context.pause():
                with self._lock:
                    is_idle = id(context) in self._idle
                    if is_idle:
                        self._remove(context)
                if is_idle:
                    context.close()

    def _drop(self, context: WarmContext) -> None:
        with self._lock:
            self._busy.discard(context)
        context.close()

    def _remove(self, context: WarmContext) -> None:
        del self._idle[id(context)]
        same = self._by_key[context.key]
        same.remove(context)
        if not same:
            del self._by_key[context.key]

    def close_idle(self) -> None:
        """Close the contexts that are too many, or were not used for too long."""
        late_s = monotonic_s() - self._idle_s
        with self._lock:
            late = [one for one in self._idle.values() if one.used_s < late_s or one.jobs_left() <= 0]
            for context in late:
                self._remove(context)
            while len(self._idle) > self._most_idle:
                late.append(next(iter(self._idle.values())))
                self._remove(late[-1])
        for context in late:
            context.close()

    def close(self) -> None:
        """Close all contexts. Jobs that run in one are ended, and its thread closes it."""
        with self._lock:
            idle, busy = list(self._idle.values()), list(self._busy)
            self._idle.clear()
            self._by_key.clear()
        for context in busy:
            context.cancel()
        for context in idle:
            context.close()
