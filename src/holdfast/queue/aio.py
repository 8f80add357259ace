"""The queue for asyncio: the methods of `Queue` as coroutines. What both decide is in `base` and `asks`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from ..core import commands as c
from ..core import queries as q
from ..core.errors import HoldfastError, Timeout
from ..core.job import Body, Job
from ..core.limits import Limit
from ..core.notes import LogLine, StepResult
from ..core.schedule import Schedule
from ..core.worker import Worker
from ..store.common.clock import monotonic_s
from . import asks, group, running, tracing
from .aio_task import AsyncBatchDecorator, AsyncDecorator, AsyncHandle, AsyncTask
from .answers import RAISED
from .asks import QueueRequest
from .base import BaseQueue
from .claimed import Holding, delay_ms_of
from .definition import TaskOptions, take_name
from .handlers import AsyncHandlers
from .options import Duration, FiringOptions, Follower, JobOptions, JobRef, Key, Moment, TaskRef
from .task import BaseHandle

if TYPE_CHECKING:
    from .context import AnyContext
    from .options import HasCall, PreparedCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncClaimedJob(Holding):
    """A job that this process holds; see `ClaimedJob`."""

    _queue: "AsyncQueue"

    async def _say(self, ask: QueueRequest[T], connection: Any = None) -> T:
        try:
            return await self._queue._ask(ask, connection)
        except Exception as error:
            self._lose_if(error)
            raise

    async def done(
        self,
        result: Any = None,
        *,
        error: BaseException | str | None = None,
        data: Any = None,
        connection: Any = None,
    ) -> Job:
        """Finish the job with this result; with `error`, retry it after its backoff instead.

        `connection` does it inside your own transaction: if you roll that back, answer again.
        """
        job = await self._say(self._done(result, error, data), connection)
        self._tentative = connection is not None
        return job

    async def fail(self, reason: BaseException | str = "failed") -> Job:
        """Mark the job as permanently failed."""
        return await self._say(self._fail(reason))

    async def retry(
        self, delay: Duration | None = None, *, counts: bool = True, reason: BaseException | str = ""
    ) -> Job:
        """Run the job again after `delay`, or after its backoff."""
        return await self._say(self._retry(delay_ms_of(delay), counts=counts, reason=reason))

    async def release(self) -> Job:
        """Release the job for other workers; see `ClaimedJob.release`."""
        return await self._say(self._release())

    async def extend(self, lease: Duration | None = None) -> None:
        """Extend the lease."""
        await self._say(self._extend(lease))

    async def progress(self, fraction: float, note: str = "") -> None:
        """Report progress, from 0 to 1."""
        await self._say(self._progress(fraction, note))

    async def update(self, data: Any) -> None:
        """Replace the job's data, for a later run."""
        await self._say(self._update(data))

    async def add(self, task: TaskRef, data: Any = None, **options: Unpack[JobOptions]) -> AsyncHandle[Any]:
        """Add a child; see `ClaimedJob.add`."""
        with self._adding(self._queue.call(task, data, **options)) as ask:
            return AsyncHandle(self._queue, (await self._queue._send_add(ask, self._say))[0])

    async def children(self, *, after: JobRef | None = None, limit: int | None = None) -> list[Job]:
        """The children of this job's previous run, with their outcomes: all, or the first `limit`."""
        found: list[Job] = []
        for ask in asks.children(self, found, after=after, limit=limit):
            found += await self._queue._ask(ask)
        return found

    async def run(self) -> Job:
        """Run the job with this queue's task, and answer with its outcome."""
        outcome = await self._run_handler()
        ask = self._conclude(outcome)
        return self._end_of_answered(outcome) if ask is None else await self._say(ask)

    async def _run_handler(self) -> Any:
        """Run the handler; returns its outcome."""
        return await running.run_async(self._queue._find_task(self.task), self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.answered:
            return
        if error is not None and not isinstance(error, RAISED):
            await asyncio.shield(self._say(self._release(begun=True)))
        else:
            await self.done(error=error)


class AsyncQueue(BaseQueue):
    """A durable job queue for asyncio. Made by `holdfast.connect_async`."""

    async def _ask(self, ask: QueueRequest[T], connection: Any = None) -> T:
        if connection is not None:
            assert isinstance(ask.asked, c.Command)
            return ask.read(await self.session.connection.ask_in_async(connection, ask.asked))
        if isinstance(ask.asked, q.PagedQuery):
            return ask.read(await q.ask_all_async(self.session.connection.ask_async, ask.asked))
        return ask.read(await self.session.connection.ask_async(ask.asked, wait_s=ask.wait_s))

    @overload
    async def add(
        self,
        task: "HasCall[..., T]",
        data: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> AsyncHandle[T]: ...

    @overload
    async def add(
        self, task: TaskRef, data: Any = None, *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> AsyncHandle[Any]: ...

    async def add(
        self, task: Any, data: Any = None, *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> AsyncHandle[Any]:
        """Add a job by the name of its task; returns after the commit.

        With `connection`, the job is written inside your own transaction on that connection.
        """
        return await self._add_one(self._new(task, data, options), connection)

    @overload
    async def add_many(
        self, jobs: "Iterable[PreparedCall[T]]", *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[T]]: ...

    @overload
    async def add_many(
        self, jobs: Iterable[Any], *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[Any]]: ...

    async def add_many(
        self, jobs: Iterable[Any], *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[Any]]:
        """Add prepared calls or (task, data) pairs; all or none of each 10,000. `connection`: see `add`."""
        return await self._add_each(self._each(jobs, options), connection)

    @overload
    async def gather(
        self,
        calls: "Iterable[PreparedCall[T]]",
        *,
        when_done: Follower | None = None,
        **options: Unpack[JobOptions],
    ) -> group.AsyncJobGroup[T]: ...

    @overload
    async def gather(
        self, calls: Iterable[Any], *, when_done: Follower | None = None, **options: Unpack[JobOptions]
    ) -> group.AsyncJobGroup[Any]: ...

    async def gather(
        self, calls: Iterable[Any], *, when_done: Follower | None = None, **options: Unpack[JobOptions]
    ) -> group.AsyncJobGroup[Any]:
        """Add jobs, and return them as a group to wait for; see `Queue.gather`."""
        jobs = self._each(calls, options)
        if when_done is None:
            return group.AsyncJobGroup(await self._add_each(jobs), None)
        follower, waited_for = group.check_follower(self._follower(when_done)), [*jobs]
        bare = await self._ask(group.reserve(waited_for))
        with tracing.adding(group.add(waited_for, follower, bare)) as traced:
            first, *ids = await self._send_add(traced, self._ask)
        return group.AsyncJobGroup([AsyncHandle(self, job_id) for job_id in ids], AsyncHandle(self, first))

    async def _add_one(self, new: c.NewJob, connection: Any = None) -> AsyncHandle[Any]:
        """Add a job whose options and data were checked."""
        hooks = self.hooks
        if (hooks and hooks.around_add) or (tracing.API in sys.modules and tracing.current_traceparent()):
            return (await self._add_each([new], connection))[0]
        store, command = self.session.connection, c.Add(jobs=(new,), mark_existing=new.unique is not None)
        if connection is None:
            ids = await store.ask_async(command)
        else:
            ids = await store.ask_in_async(connection, command)
        return AsyncHandle(self, ids[0]) if ids[0] > 0 else AsyncHandle(self, -ids[0], False)

    async def _add_each(
        self, jobs: Iterable[c.NewJob | Body], connection: Any = None
    ) -> list[AsyncHandle[Any]]:
        """Add jobs; an item that is data alone is a job like the one before it."""
        handles: list[AsyncHandle[Any]] = []
        for ask in asks.add_and_mark(jobs):
            with tracing.adding(ask) as traced:
                ids = await self._send_add(traced, lambda ask: self._ask(ask, connection))
                handles += [
                    AsyncHandle(self, one) if one.__class__ is int else AsyncHandle(self, int(one), False)
                    for one in ids
                ]
        return handles

    async def _send_add(
        self, ask: QueueRequest[list[int]], send: Callable[[QueueRequest[list[int]]], Awaitable[list[int]]]
    ) -> list[int]:
        hooks = self.hooks
        return await hooks.add_async(ask, send) if hooks and hooks.around_add else await send(ask)

    async def next(
        self,
        tasks: Iterable[TaskRef] | None = None,
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        renew: bool = True,
        until_empty: bool = False,
    ) -> AsyncClaimedJob | None:
        """Claim the next job, or None when `wait` has passed; see `Queue.next`."""
        deadline_s = None if wait is None else monotonic_s() + asks.wait_s_of(wait)
        while True:
            pause = 0.1 if until_empty and deadline_s is None else wait
            found = await self.claim(tasks, limit=1, lease=lease, wait=pause, renew=renew)
            if found:
                return found[0]
            late = deadline_s is not None and monotonic_s() >= deadline_s
            if not until_empty or late or not await self._ask(asks.has_unfinished(self.tenant, tasks)):
                return None

    async def claim(
        self,
        tasks: Iterable[TaskRef] | None = None,
        *,
        limit: int = 1,
        lease: Duration | None = None,
        wait: Duration | None = None,
        renew: bool = True,
    ) -> list[AsyncClaimedJob]:
        """Claim up to `limit` jobs at once."""
        length = self.lease if lease is None else lease
        if self.publisher.has_changes(self.task_defaults, self.declared):
            await self.sync()
        lease_ms = asks.lease_ms_of(length)
        ask = asks.claim(tasks, tenant=self.tenant, limit=limit, lease_ms=lease_ms, wait=wait)
        return [AsyncClaimedJob(self, claimed, lease_ms, renew=renew) for claimed in await self._ask(ask)]

    async def get(self, job: JobRef) -> Job:
        """A job's record, live or archived."""
        return await self._ask(asks.get(job))

    async def data(self, job: JobRef) -> Any:
        """A job's data."""
        return await self._ask(asks.data(job))

    @overload
    async def result(self, job: BaseHandle[T], wait: Duration | None = None) -> T: ...

    @overload
    async def result(self, job: JobRef, wait: Duration | None = None) -> Any: ...

    async def result(self, job: JobRef, wait: Duration | None = None) -> Any:
        """What a job returned; see `Queue.result`."""
        try:
            return await self._ask(asks.result(job, wait, self._read_result))
        except Timeout as error:
            if wait:
                # Not if that fails, as for a job that is still in a journal.
                with suppress(HoldfastError):
                    error.args = (f"{error}: {await self.why(job)}",)
            raise

    async def jobs(
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
        """Jobs that match, oldest first; see `Queue.jobs`."""
        fields = {"task": task, "state": state, "domain": domain, "parent_id": parent, "schedule": schedule}
        asked = asks.jobs(self.tenant, after=after, limit=limit, archived=archived, **fields)
        return asks.first_jobs([await self._ask(one) for one in asked], limit)

    async def counts(self) -> dict[str, dict[str, int]]:
        """The number of jobs of each task in each state."""
        return await self._ask(asks.counts(self.tenant))

    async def steps(self, job: JobRef) -> dict[str, Any]:
        """The results of a job's steps so far, by name."""
        return await self._ask(asks.steps(job))

    @overload
    async def find(
        self, task: "HasCall[..., T]", *, unique: Key, domain: Key | None = None
    ) -> AsyncHandle[T] | None: ...

    @overload
    async def find(
        self, task: TaskRef, *, unique: Key, domain: Key | None = None
    ) -> AsyncHandle[Any] | None: ...

    async def find(self, task: Any, *, unique: Key, domain: Key | None = None) -> AsyncHandle[Any] | None:
        """The job that holds a unique key; see `Queue.find`."""
        found = await self._ask(asks.find(task, unique, domain, tenant=self.tenant))
        return AsyncHandle(self, found, False) if found else None

    async def timeline(self, job: JobRef) -> list[StepResult]:
        """What a job has done, and what it waits for; see `Queue.timeline`."""
        return await self._ask(asks.timeline(job))

    async def signal(self, job: JobRef, name: str, data: Any = None, *, key: str = "") -> None:
        """Send a signal to a job; see `Queue.signal`."""
        await self._ask(asks.signal(job, name, data, key))

    async def log(self, job: JobRef) -> list[LogLine]:
        """The last lines of a job's log."""
        return await self._ask(asks.log(job))

    async def why(self, job: JobRef) -> str:
        """Why a job is not running."""
        return await self._ask(asks.why(job))

    async def cancel(self, job: JobRef, *, force: bool = False) -> Job:
        """Cancel a job; see `Queue.cancel`."""
        return await self._ask(asks.cancel(job, force=force))

    async def requeue(
        self,
        job: JobRef,
        *,
        run_at: Moment | None = None,
        unless_running: bool = False,
        from_step: str | int = "",
    ) -> Job:
        """Requeue a job; see `Queue.requeue`."""
        ask = asks.requeue(job, run_at=run_at, unless_running=unless_running, from_step=from_step)
        return await self._ask(ask)

    async def update(
        self,
        job: JobRef,
        *,
        data: Any = None,
        priority: int | None = None,
        run_at: Moment | None = None,
        repeat: str | None = None,
    ) -> Job:
        """Change fields of a job."""
        return await self._ask(asks.update(job, data=data, priority=priority, run_at=run_at, repeat=repeat))

    async def delete(self, job: JobRef) -> None:
        """Delete a job."""
        await self._ask(asks.delete(job))

    async def purge(self, *, before: Moment) -> int:
        """Delete archived jobs that ended before a time; returns how many."""
        total = 0
        while gone := await self._ask(asks.purge(before, tenant=self.tenant)):
            total += gone
        return total

    async def limit(
        self, domain: Key, *, rate: float | str | None = None, burst: int = 1, concurrency: int | None = None
    ) -> None:
        """Limit a domain; see `Queue.limit`."""
        await self._ask(
            asks.limit(domain, tenant=self.tenant, rate=rate, burst=burst, concurrency=concurrency)
        )

    async def limits(self) -> dict[bytes, Limit]:
        """All limits."""
        return await self._ask(asks.limits(self.tenant))

    async def pause(self, task: TaskRef | None = None, *, domain: Key | None = None) -> None:
        """Pause claims of a task, of a domain, or of this tenant."""
        await self._ask(asks.pause(task, domain, tenant=self.tenant, on=True))

    async def resume(self, task: TaskRef | None = None, *, domain: Key | None = None) -> None:
        """Resume what `pause` has paused."""
        await self._ask(asks.pause(task, domain, tenant=self.tenant, on=False))

    async def pauses(self) -> list[q.Paused]:
        """What is paused: tenant, task and domain of each pause, None where it is for all of them."""
        return await self._ask(asks.pauses(self.tenant))

    async def schedule(
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
        """Add a job at each of these times."""
        when: dict[str, Any] = {"cron": cron, "every": every, "repeat": repeat, "tz": tz}
        when |= {"catch_up": catch_up, "overlap": overlap, "jitter": jitter}
        return await self._ask(self._schedule_ask(name, task, data, when, cast(JobOptions, options)))

    async def sync(self) -> None:
        """Write what the program has declared; see `Queue.sync`."""
        await self.publisher.publish_async(self.session.connection, self.task_defaults, self.declared)

    async def schedules(self) -> list[Schedule]:
        """All schedules."""
        return await self._ask(asks.schedules(self.tenant))

    @property
    def handlers(self) -> AsyncHandlers:
        """The stored handlers of this tenant's tasks."""
        return AsyncHandlers(self._ask, self.tenant)

    async def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        await self._ask(asks.unschedule(name, tenant=self.tenant))

    async def pause_schedule(self, name: str, *, on: bool = True) -> Schedule:
        """Pause a schedule, or resume it."""
        return await self._ask(asks.pause_schedule(name, tenant=self.tenant, on=on))

    async def run_schedule(self, name: str) -> AsyncHandle[Any]:
        """Add the job of a schedule now; its times stay as they are."""
        (job_id,) = await self._ask(asks.run_schedule(name, tenant=self.tenant))
        return AsyncHandle(self, job_id)

    async def workers(self) -> list[Worker]:
        """The workers that are alive, of all tenants."""
        return await self._ask(asks.workers())

    async def stop_worker(self, name: str) -> None:
        """Ask a worker to finish what it runs and to end; it reads this with its next heartbeat."""
        await self._ask(asks.stop_worker(name))

    async def retention(self) -> timedelta:
        """How long the store keeps ended jobs."""
        return await self._ask(asks.retention())

    async def set_retention(self, retention: Duration) -> None:
        """Keep ended jobs so long, for all tenants; 0: not at all."""
        await self._ask(asks.set_retention(retention))

    @overload
    def task(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, name: str | None = None, /, **options: Unpack[TaskOptions]) -> AsyncDecorator: ...

    @overload
    def task(
        self, name: str | None = None, /, *, batch: int, **options: Unpack[TaskOptions]
    ) -> AsyncBatchDecorator: ...

    def task(self, function: Callable[..., Any] | str | None = None, /, **options: Any) -> Any:
        """Make a function or coroutine function a task of this queue; see `Queue.task`."""
        function, options = take_name(function, options, known=TaskOptions.__annotations__)

        def decorate(function: Callable[..., Any]) -> Any:
            return self._make_task(AsyncTask, function, options)

        return decorate if function is None else decorate(function)

    async def close(self) -> None:
        """Close the queue; see `Queue.close`."""
        if self.hooks is not None:
            await self.hooks.stop_async()
        session = self._detach_session()
        if session is not None:
            await asyncio.to_thread(session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
