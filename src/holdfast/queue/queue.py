"""The queue. Each method sends one command or query; a command returns after its commit."""

import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from ..core import commands as c
from ..core import queries as q
from ..core.errors import HoldfastError, Timeout
from ..core.job import Body, Job
from ..core.limits import Limit
from ..core.notes import LogLine, StepResult
from ..core.schedule import Schedule
from ..core.worker import Worker
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import check_not_in_turn
from . import asks, tracing
from .answers import RAISED
from .asks import QueueRequest
from .base import BaseQueue, is_importing
from .claimed import Holding, delay_ms_of
from .definition import TaskOptions, take_name
from .options import Duration, FiringOptions, Follower, JobOptions, JobRef, Key, Moment, TaskRef
from .task import BaseHandle, BatchDecorator, Decorator, Handle, Task

if TYPE_CHECKING:
    from .context import AnyContext
    from .group import JobGroup
    from .handlers import Handlers
    from .options import HasCall, PreparedCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ClaimedJob(Holding):
    """A job that this process has claimed: answer it once, or use it in a `with` block, which answers it.

    Its lease is renewed from a thread until it is answered, dropped or the queue is closed.
    """

    _queue: "Queue"

    def _say(self, ask: QueueRequest[T], connection: Any = None) -> T:
        try:
            return self._queue._ask(ask, connection)
        except Exception as error:
            self._lose_if(error)
            raise

    def done(
        self,
        result: Any = None,
        *,
        error: BaseException | str | None = None,
        data: Any = None,
        connection: Any = None,
    ) -> Job:
        """Finish the job with this result; with `error`, retry it after its backoff instead.

        `data` replaces the job's data, for its next run if it repeats. `connection` does it inside
        your own transaction: if you roll that back, answer again.
        """
        job = self._say(self._done(result, error, data), connection)
        self._tentative = connection is not None
        return job

    def fail(self, reason: BaseException | str = "failed") -> Job:
        """Mark the job as permanently failed."""
        return self._say(self._fail(reason))

    def retry(
        self, delay: Duration | None = None, *, counts: bool = True, reason: BaseException | str = ""
    ) -> Job:
        """Retry the job after `delay`, or after its backoff; `counts=False` spends no attempt."""
        return self._say(self._retry(delay_ms_of(delay), counts=counts, reason=reason))

    def release(self) -> Job:
        """Release the job for other workers, without spending an attempt."""
        return self._say(self._release())

    def extend(self, lease: Duration | None = None) -> None:
        """Extend the lease by its length from now."""
        self._say(self._extend(lease))

    def progress(self, fraction: float, note: str = "") -> None:
        """Report progress, from 0 to 1."""
        self._say(self._progress(fraction, note))

    def update(self, data: Any) -> None:
        """Replace the job's data, for a later run."""
        self._say(self._update(data))

    def add(self, task: TaskRef, data: Any = None, **options: Unpack[JobOptions]) -> Handle[Any]:
        """Add a child job, which waits until this job is done; with its parent as `parent` a sibling."""
        with self._adding(self._queue.call(task, data, **options)) as ask:
            return Handle(self._queue, self._queue._send_add(ask, self._say)[0])

    def children(self, *, after: JobRef | None = None, limit: int | None = None) -> list[Job]:
        """The children of this job's previous run, with their outcomes: all, or the first `limit`."""
        found: list[Job] = []
        for ask in asks.children(self, found, after=after, limit=limit):
            found += self._queue._ask(ask)
        return found

    def run(self) -> Job:
        """Run the job with this queue's task, and answer with its outcome."""
        outcome = self._run_handler()
        ask = self._conclude(outcome)
        return self._end_of_answered(outcome) if ask is None else self._say(ask)

    def _run_handler(self) -> Any:
        """Run the handler; returns its outcome."""
        from . import running

        (outcome,) = running.run(self._queue._find_task(self.task), [self], self._await)
        return outcome

    def _await(self, work: Awaitable[Any]) -> Any:
        """Run an awaitable of a handler to its end; workers override this to use their event loop."""
        from . import running

        hooks = self._queue.hooks
        return running.wait_here(work) if hooks is None else hooks.loop.wait(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.answered:
            return
        if error is not None and not isinstance(error, RAISED):
            # Interrupted, not failed: release it for another worker.
            self._say(self._release(begun=True))
        else:
            self.done(error=error)


class Queue(BaseQueue):
    """A durable job queue. Made by `holdfast.connect`; opens the store on first use."""

    def _ask(self, ask: QueueRequest[T], connection: Any = None) -> T:
        if connection is not None:
            assert isinstance(ask.asked, c.Command)
            return ask.read(self.session.connection.ask_in(connection, ask.asked))
        if isinstance(ask.asked, q.PagedQuery):
            return ask.read(q.ask_all(self.session.connection.ask, ask.asked))
        return ask.read(self.session.connection.ask(ask.asked, wait_s=ask.wait_s))

    @overload
    def add(
        self,
        task: "HasCall[..., T]",
        data: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> Handle[T]: ...

    @overload
    def add(
        self, task: TaskRef, data: Any = None, *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> Handle[Any]: ...

    def add(
        self, task: Any, data: Any = None, *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> Handle[Any]:
        """Add a job by the name of its task; returns after the commit.

        With `connection`, the job is written inside your own transaction on that connection.
        """
        return self._add_one(self._new(task, data, options), connection)

    @overload
    def add_many(
        self, jobs: "Iterable[PreparedCall[T]]", *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[Handle[T]]: ...

    @overload
    def add_many(
        self, jobs: Iterable[Any], *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[Handle[Any]]: ...

    def add_many(
        self, jobs: Iterable[Any], *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[Handle[Any]]:
        """Add prepared calls or (task, data) pairs; all or none of each 10,000. `connection`: see `add`."""
        return self._add_each(self._each(jobs, options), connection)

    @overload
    def gather(
        self,
        calls: "Iterable[PreparedCall[T]]",
        *,
        when_done: Follower | None = None,
        **options: Unpack[JobOptions],
    ) -> "JobGroup[T]": ...

    @overload
    def gather(
        self, calls: Iterable[Any], *, when_done: Follower | None = None, **options: Unpack[JobOptions]
    ) -> "JobGroup[Any]": ...

    def gather(
        self, calls: Iterable[Any], *, when_done: Follower | None = None, **options: Unpack[JobOptions]
    ) -> "JobGroup[Any]":
        """Add jobs as `add_many` does, and return them as a group to wait for.

        The job of `when_done` runs when all of them have ended, whether they succeeded or not; it is their
        parent. With it there are at most 9,999 of them, added all or none.
        """
        from . import group

        jobs = self._each(calls, options)
        if when_done is None:
            return group.JobGroup(self._add_each(jobs), None)
        follower, waited_for = group.check_follower(self._follower(when_done)), [*jobs]
        with tracing.adding(group.add(waited_for, follower, self._ask(group.reserve(waited_for)))) as traced:
            first, *ids = self._send_add(traced, self._ask)
        return group.JobGroup([Handle(self, job_id) for job_id in ids], Handle(self, first))

    def _add_one(self, new: c.NewJob, connection: Any = None) -> Handle[Any]:
        """Add a job whose options and data were checked."""
        hooks = self.hooks
        if (hooks and hooks.around_add) or (tracing.API in sys.modules and tracing.current_traceparent()):
            return self._add_each([new], connection)[0]
        ours, command = self.session.connection, c.Add(jobs=(new,), mark_existing=new.unique is not None)
        ids = ours.ask(command) if connection is None else ours.ask_in(connection, command)
        return Handle(self, ids[0]) if ids[0] > 0 else Handle(self, -ids[0], False)

    def _add_each(self, jobs: Iterable[c.NewJob | Body], connection: Any = None) -> list[Handle[Any]]:
        """Add jobs; an item that is data alone is a job like the one before it."""
        handles: list[Handle[Any]] = []
        for ask in asks.add_and_mark(jobs):
            with tracing.adding(ask) as traced:
                ids = self._send_add(traced, lambda ask: self._ask(ask, connection))
                handles += [
                    Handle(self, one) if one.__class__ is int else Handle(self, int(one), False)
                    for one in ids
                ]
        return handles

    def _send_add(
        self, ask: QueueRequest[list[int]], send: Callable[[QueueRequest[list[int]]], list[int]]
    ) -> list[int]:
        hooks = self.hooks
        return hooks.add(ask, send) if hooks and hooks.around_add else send(ask)

    def next(
        self,
        tasks: Iterable[TaskRef] | None = None,
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        renew: bool = True,
        until_empty: bool = False,
    ) -> ClaimedJob | None:
        """Claim the next job, or None when `wait` has passed.

        With `until_empty` it waits while any job is unfinished, and then returns None.
        """
        deadline_s = None if wait is None else monotonic_s() + asks.wait_s_of(wait)
        while True:
            pause = 0.1 if until_empty and deadline_s is None else wait
            found = self.claim(tasks, limit=1, lease=lease, wait=pause, renew=renew)
            if found:
                return found[0]
            late = deadline_s is not None and monotonic_s() >= deadline_s
            if not until_empty or late or not self._ask(asks.has_unfinished(self.tenant, tasks)):
                return None

    def claim(
        self,
        tasks: Iterable[TaskRef] | None = None,
        *,
        limit: int = 1,
        lease: Duration | None = None,
        wait: Duration | None = None,
        renew: bool = True,
    ) -> list[ClaimedJob]:
        """Claim up to `limit` jobs at once; an empty list when `wait` has passed."""
        length = self.lease if lease is None else lease
        if self.publisher.has_changes(self.task_defaults, self.declared):
            self.sync()
        lease_ms = asks.lease_ms_of(length)
        ask = asks.claim(tasks, tenant=self.tenant, limit=limit, lease_ms=lease_ms, wait=wait)
        return [ClaimedJob(self, claimed, lease_ms, renew=renew) for claimed in self._ask(ask)]

    def get(self, job: JobRef) -> Job:
        """A job's record, live or archived; `NotFound` when there is none."""
        return self._ask(asks.get(job))

    def data(self, job: JobRef) -> Any:
        """A job's data: the JSON value, or bytes."""
        return self._ask(asks.data(job))

    @overload
    def result(self, job: BaseHandle[T], wait: Duration | None = None) -> T: ...

    @overload
    def result(self, job: JobRef, wait: Duration | None = None) -> Any: ...

    def result(self, job: JobRef, wait: Duration | None = None) -> Any:
        """What a job returned; raises `JobFailed` with its outcome, or `Timeout` with the reason.

        It has the type of the return annotation if its task is known here, else it is the JSON value.
        """
        try:
            return self._ask(asks.result(job, wait, self._read_result))
        except Timeout as error:
            if wait:
                # Not if that fails, as for a job that is still in a journal.
                with suppress(HoldfastError):
                    error.args = (f"{error}: {self.why(job)}",)
            raise

    def jobs(
        self,
        *,
        task: TaskRef | None = None,
        state: str | None = None,
        domain: Key | None = None,
        parent: JobRef | None = None,
        schedule: str | None = None,
        archived: bool | None = None,
        after: JobRef | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """The first `limit` jobs that match, up to 1,000, oldest first; the next ones are `after` the last.

        Jobs that are FINISHED or CANCELLED are in the archive, unless their parent still runs: you get them
        with `archived=True`, or by one of these states.
        """
        fields = {"task": task, "state": state, "domain": domain, "parent_id": parent, "schedule": schedule}
        asked = asks.jobs(self.tenant, after=after, limit=limit, archived=archived, **fields)
        return asks.first_jobs([self._ask(one) for one in asked], limit)

    def counts(self) -> dict[str, dict[str, int]]:
        """The number of jobs of each task in each state."""
        return self._ask(asks.counts(self.tenant))

    def steps(self, job: JobRef) -> dict[str, Any]:
        """The results of a job's steps so far, by name."""
        return self._ask(asks.steps(job))

    @overload
    def find(
        self, task: "HasCall[..., T]", *, unique: Key, domain: Key | None = None
    ) -> Handle[T] | None: ...

    @overload
    def find(self, task: TaskRef, *, unique: Key, domain: Key | None = None) -> Handle[Any] | None: ...

    def find(self, task: Any, *, unique: Key, domain: Key | None = None) -> Handle[Any] | None:
        """The live job of a task that holds a unique key, in its domain if it has one; None: it has ended."""
        found = self._ask(asks.find(task, unique, domain, tenant=self.tenant))
        return Handle(self, found, False) if found else None

    def timeline(self, job: JobRef) -> list[StepResult]:
        """What a job has done, and what it waits for: steps, sleeps, signals and calls, in order."""
        return self._ask(asks.timeline(job))

    def signal(self, job: JobRef, name: str, data: Any = None, *, key: str = "") -> None:
        """Send a signal to a job; it is kept until the job waits for it (`ctx.wait_for`) or ends.

        Of several with one `key` within a day only the first is sent.
        """
        self._ask(asks.signal(job, name, data, key))

    def log(self, job: JobRef) -> list[LogLine]:
        """The last lines of a job's log, live or archived."""
        return self._ask(asks.log(job))

    def why(self, job: JobRef) -> str:
        """Why a job is not running, in a sentence."""
        return self._ask(asks.why(job))

    def cancel(self, job: JobRef, *, force: bool = False) -> Job:
        """Cancel a job. A running one is asked to stop; with `force` it loses its claim.

        A job that has ended stays as it is, but a FAILED one becomes CANCELLED.
        """
        return self._ask(asks.cancel(job, force=force))

    def requeue(
        self,
        job: JobRef,
        *,
        run_at: Moment | None = None,
        unless_running: bool = False,
        from_step: str | int = "",
    ) -> Job:
        """Requeue a job in any state but archived, with its attempts reset.

        A job that runs may then run a second time beside itself; `unless_running` refuses it. `from_step`:
        this step, by name or number, and all after it are done again.
        """
        ask = asks.requeue(job, run_at=run_at, unless_running=unless_running, from_step=from_step)
        return self._ask(ask)

    def update(
        self,
        job: JobRef,
        *,
        data: Any = None,
        priority: int | None = None,
        run_at: Moment | None = None,
        repeat: str | None = None,
    ) -> Job:
        """Change the data, priority, time or repeat of a job, in any state but archived; others stay."""
        return self._ask(asks.update(job, data=data, priority=priority, run_at=run_at, repeat=repeat))

    def delete(self, job: JobRef) -> None:
        """Delete a job that neither runs nor waits for its family."""
        self._ask(asks.delete(job))

    def purge(self, *, before: Moment) -> int:
        """Delete archived jobs that ended before a time; returns how many."""
        return sum(iter(lambda: self._ask(asks.purge(before, tenant=self.tenant)), 0))

    def limit(
        self, domain: Key, *, rate: float | str | None = None, burst: int = 1, concurrency: int | None = None
    ) -> None:
        """Limit a domain, or all that match a pattern; without rate and concurrency, remove the limit.

        `rate`: how many jobs start in a second, or text such as "100/m". `burst`: how many of them may start
        at once after a time without any. `concurrency`: how many run at once; 0: none.

        While a module is imported, the limit is only declared: workers and `sync` write it.
        """
        ask = asks.limit(domain, tenant=self.tenant, rate=rate, burst=burst, concurrency=concurrency)
        if is_importing():
            self._declare(ask)
        else:
            self._ask(ask)

    def limits(self) -> dict[bytes, Limit]:
        """All limits, by domain or pattern."""
        return self._ask(asks.limits(self.tenant))

    def pause(self, task: TaskRef | None = None, *, domain: Key | None = None) -> None:
        """Pause claims of a task, of a domain, or (with neither) of this tenant, until `resume`.

        No job changes its state, and running jobs go on.
        """
        self._ask(asks.pause(task, domain, tenant=self.tenant, on=True))

    def resume(self, task: TaskRef | None = None, *, domain: Key | None = None) -> None:
        """Resume what `pause` has paused."""
        self._ask(asks.pause(task, domain, tenant=self.tenant, on=False))

    def pauses(self) -> list[q.Paused]:
        """What is paused: tenant, task and domain of each pause, None where it is for all of them."""
        return self._ask(asks.pauses(self.tenant))

    def schedule(
        self,
        name: str,
        task: TaskRef | c.NewJob,
        data: Any = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        repeat: str | None = None,
        tz: str | None = None,
        catch_up: Literal["none", "one", "all"] | None = None,
        overlap: Literal["skip", "wait", "allow"] | None = None,
        jitter: Duration | None = None,
        **options: Unpack[FiringOptions],
    ) -> Schedule:
        """Create or change a schedule, which adds a job at each of these times. Idempotent.

        While a module is imported, the schedule is only declared: workers and `sync` write it.
        """
        when: dict[str, Any] = {"cron": cron, "every": every, "repeat": repeat, "tz": tz}
        when |= {"catch_up": catch_up, "overlap": overlap, "jitter": jitter}
        ask = self._schedule_ask(name, task, data, when, cast(JobOptions, options))
        declared: Schedule = self._declare(ask) if is_importing() else self._ask(ask)
        return declared

    def sync(self) -> None:
        """Write what the program has declared: the defaults of its tasks, schedules and limits.

        Workers and claims do so by themselves.
        """
        self.publisher.publish(self.session.connection, self.task_defaults, self.declared)

    def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return self._ask(asks.schedules(self.tenant))

    @property
    def handlers(self) -> "Handlers":
        """The stored handlers of this tenant's tasks."""
        from .handlers import Handlers

        return Handlers(self._ask, self.tenant)

    def unschedule(self, name: str) -> None:
        """Delete a schedule; jobs that it has added stay."""
        self._ask(asks.unschedule(name, tenant=self.tenant))

    def pause_schedule(self, name: str, *, on: bool = True) -> Schedule:
        """Pause a schedule, or (`on=False`) resume it."""
        return self._ask(asks.pause_schedule(name, tenant=self.tenant, on=on))

    def run_schedule(self, name: str) -> Handle[Any]:
        """Add the job of a schedule now; its times stay as they are."""
        (job_id,) = self._ask(asks.run_schedule(name, tenant=self.tenant))
        return Handle(self, job_id)

    def workers(self) -> list[Worker]:
        """The workers that are alive, of all tenants."""
        return self._ask(asks.workers())

    def stop_worker(self, name: str) -> None:
        """Ask a worker to finish what it runs and to end; it reads this with its next heartbeat."""
        self._ask(asks.stop_worker(name))

    def retention(self) -> timedelta:
        """How long the store keeps ended jobs."""
        return self._ask(asks.retention())

    def set_retention(self, retention: Duration) -> None:
        """Keep ended jobs so long, for all tenants; 0: not at all."""
        self._ask(asks.set_retention(retention))

    @overload
    def task(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, name: str | None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...

    @overload
    def task(
        self, name: str | None = None, /, *, batch: int, **options: Unpack[TaskOptions]
    ) -> BatchDecorator: ...

    def task(self, function: Callable[..., Any] | str | None = None, /, **options: Any) -> Any:
        """Make a function a task of this queue; with `cron` or `every` workers also schedule it.

        Its name is that of the function, unless another is given: `@queue.task("resize")`. A name that
        another function already has is refused. A parameter annotated `Context` gets the context and is not
        part of the job. It takes the options of jobs, and also `soft_timeout`, `cancel="raise"` and `batch`
        (see docs/handlers.md).
        """
        function, options = take_name(function, options, known=TaskOptions.__annotations__)

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = self._make_task(Task, function, options)
            return task

        return decorate if function is None else decorate(function)

    def close(self) -> None:
        """Close the queue; claimed jobs without an answer are claimable again when their leases expire."""
        check_not_in_turn()
        if self.hooks is not None:
            self.hooks.close()
        session = self._detach_session()
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
