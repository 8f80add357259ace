"""The `Context` of a running job: what a handler can read and report.

The worker passes it for a parameter annotated `Context` (in a coroutine function `AsyncContext`). It is
neither part of the job's data nor an argument of `add`.
"""

import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, overload

from ..core import commands as c
from ..core.checks import check_name
from ..core.errors import BadInput, ChildFailed, LeaseLost, Unquoted
from ..core.job import Job
from ..store.common.clock import monotonic_s
from . import asks, durable, tracing
from .answers import Failed, Retry, Suspended, is_failure
from .asks import QueueRequest
from .claimed import Holding
from .durable import RAISE, Flow
from .options import Duration, JobOptions, JobRef, TaskRef
from .replay import Replay, read_error
from .transactions import StepTransaction, begun, begun_async, to_the_end

if TYPE_CHECKING:
    from .options import HasCall, PreparedCall

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


class Home(Protocol):
    """The part of a queue that a context uses."""

    @property
    def session(self) -> Any:
        """The session of this process; in an executor its connection is to the supervisor."""

    def call(self, task: TaskRef, data: Any = None, **options: Unpack[JobOptions]) -> c.NewJob:
        """See `Queue.call`."""

    def _send_add(self, ask: QueueRequest[list[int]], send: Any) -> Any:
        """See `Queue._send_add`."""


class Running:
    """What `Context` and `AsyncContext` share."""

    def __init__(self, job: Holding, queue: Home) -> None:
        self._job, self._queue = job, queue
        # What earlier runs have recorded; read on first use.
        self._replay: Replay | None = None
        # What undoes the steps of this run, in order.
        self._compensations: list[durable.Compensation] = []
        self._is_undoing = False
        self._only_undoes = job.record.cancel_requested or bool(job.record.undoes)
        # A lock for each step: of two calls at the same time the second gets the result of the first.
        self._step_locks: dict[str, Any] = {}
        # The threads or tasks that are within a step: one that waited for itself would wait for ever.
        self._stepping: dict[str, Any] = {}

    @property
    def job_id(self) -> int:
        """The job's id."""
        return self._job.id

    @property
    def parent_id(self) -> int:
        """The id of its parent, or 0."""
        return self._job.record.parent_id

    @property
    def claim(self) -> int:
        """The claim number, which only grows: use it as a fencing token in other systems."""
        return self._job.claim

    @property
    def attempt(self) -> int:
        """Which run this is, from 1; a run whose process died is not counted."""
        return self._job.attempt

    @property
    def deadline(self) -> datetime | None:
        """When the time limit ends, by the store's clock; None if there is none."""
        lease = self._job._lease
        limit_ms = lease.job.timeout_ms
        return datetime.fromtimestamp((lease.started_at + limit_ms) / 1000, UTC) if limit_ms else None

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: the job was cancelled, or the claim is lost."""
        return self._job.cancelled

    def log(self, text: str) -> None:
        """Append to the job's log; sent within half a second, and with the answer."""
        self._job.log(text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.job_id}, claim {self.claim}>"

    def _child(
        self, task: TaskRef | c.NewJob, data: Any, options: JobOptions
    ) -> AbstractContextManager[QueueRequest[list[int]]]:
        new = task if isinstance(task, c.NewJob) else self._queue.call(task, data, **options)
        return self._job._adding(new)

    def compensate(self, name: str, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have a function called if the job fails for good or is cancelled: a step, `undo NAME`.

        Such functions are called in reverse order. Call it after the step that it undoes.
        """
        if not self._is_undoing:
            named = durable.free_name(name, {other for other, _ in self._compensations})
            check_name("step", f"undo {named}")
            self._compensations.append((named, lambda: fn(*args, **kwargs)))
            self._job.undoing = self

    @property
    def has_compensations(self) -> bool:
        """Whether the run has something to undo, and has not done that."""
        return bool(self._compensations) and not self._is_undoing

    def _kept(self, name: str, text: str) -> str:
        assert self._replay is not None
        self._replay.kept(name, text)
        return text

    def _rolled_back(self, name: str, error: BaseException, began_s: float, record: Job) -> None:
        """A transaction of the caller was rolled back: the job is as it was before."""
        if not self._job._lease.lost:
            self._job._lease.job = record
        if isinstance(error, Exception):
            self._failed(name, error, began_s)

    def _failed(self, name: str, error: Exception, began_s: float) -> None:
        # What could not be undone is tried again if the job is requeued.
        is_known = isinstance(error, LeaseLost | Failed | Retry) or self._is_undoing
        if self._replay is not None and not is_known:
            self._replay.failed(name, error, durable.took_ms(began_s))

    def _check_outside(self, what: str, whom: object) -> None:
        """Refuse a wait inside of a step, which would end the run before the step has a result."""
        inside = next((name for name, one in self._stepping.items() if one is whom), None)
        if inside is not None:
            found = Unquoted(f"inside of step {inside}")
            raise durable.PermanentBadInput(what, found, needed="outside of steps")


class Context(Running):
    """The context of a function. Each method returns after its commit."""

    def _do(self, flow: Flow[T], connection: Any = None) -> T:
        try:
            ask = next(flow)
            while True:
                try:
                    reply = self._say(ask) if connection is None else self._say_in(connection, ask)
                except Exception as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value

    def _say_in(self, connection: Any, ask: QueueRequest[T]) -> T:
        found: Any = self._queue.session.connection.engine.execute_in(connection, ask.asked)
        return ask.read(found)

    def _say(self, ask: QueueRequest[T]) -> T:
        try:
            return ask.read(self._queue.session.connection.ask(ask.asked))
        except Exception as error:
            self._job._lose_if(error)
            raise

    def progress(self, fraction: float, note: str = "") -> None:
        """Report progress, from 0 to 1."""
        self._say(self._job._progress(fraction, note))

    def add(self, task: TaskRef | c.NewJob, data: Any = None, **options: Unpack[JobOptions]) -> int:
        """Add a child job, which runs after this run; returns its id.

        A child has children of its own; with `parent=ctx.parent_id` it adds a sibling.
        """
        with self._child(task, data, options) as ask:
            ids: list[int] = self._queue._send_add(ask, self._say)
            return ids[0]

    def add_many(self, jobs: Iterable[Any], **options: Unpack[JobOptions]) -> list[int]:
        """Add children, prepared calls or (task, data) pairs; returns their ids. See `Queue.add_many`."""
        ids: list[int] = []
        for ask in self._job._adding_many(jobs, options):
            ids += self._queue._send_add(ask, self._say)
        return ids

    def children(self, *, after: JobRef | None = None, limit: int | None = None) -> list[Job]:
        """The children of the previous run, with their outcomes, and those that this run has added.

        With `limit`, from 1 to 1,000: the first of them.
        """
        found: list[Job] = []
        for ask in asks.children(self._job, found, after=after, limit=limit):
            found += self._say(ask)
        return found

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function once for the job; a later run gets the stored result.

        The result is stored as JSON and decoded by the function's return annotation, in this run too. An
        exception is stored if it is caught and the function goes on.
        """
        with self._step_locks.setdefault(name, threading.RLock()):
            entry = self._do(durable.begin_step(self, name))
            if entry is not None and entry.kind == "error":
                raise read_error(entry.result)
            text = self._first(name, partial(fn, *args, **kwargs)) if entry is None else entry.result
        value: T = durable.read_step(name, fn, text)
        return value

    def _first(self, name: str, fn: Callable[[], Any]) -> str:
        outer, began_s = self._stepping.get(name), monotonic_s()
        self._stepping[name] = threading.current_thread()
        try:
            with tracing.step(name):
                value = fn()
        except Exception as error:
            self._failed(name, error, began_s)
            raise
        finally:
            self._stepping[name] = outer
        took_ms = durable.took_ms(began_s)
        return self._kept(name, self._do(durable.keep_step(self, name, value, took_ms, fn)))

    @contextmanager
    def transaction(self, name: str, connection: Any) -> Iterator[StepTransaction]:
        """A step whose result is recorded in a transaction of your own, with what you write in it.

        `connection` leads to the database of the queue and has no open transaction: one is begun, and
        committed at the end of the block. `step.done` tells whether an earlier run has done it; otherwise
        set `step.result`.
        """
        with self._step_locks.setdefault(name, threading.RLock()):
            entry = self._do(durable.begin_step(self, name))
            if entry is not None and entry.kind == "error":
                raise read_error(entry.result)
            step, began_s, record = StepTransaction(entry), monotonic_s(), self._job.record
            if entry is not None:
                yield step
                return
            try:
                with begun(connection):
                    yield step
                    text = self._do(
                        durable.keep_step(self, name, step.result, durable.took_ms(began_s)),
                        connection=connection,
                    )
            except BaseException as error:
                self._rolled_back(name, error, began_s, record)
                raise
            self._kept(name, text)

    def undo_if_over(self, outcome: Any) -> Any:
        """Undo the steps if the outcome of the run ends the job; returns how the run ends."""
        ends = self._do(durable.begin_undo(self, outcome))
        if ends is None:
            return outcome
        self._is_undoing, failures = True, []
        for name, fn in reversed(self._compensations):
            try:
                self.step(f"undo {name}", fn)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failures.append(f"{name} ({type(error).__name__}: {error})")
        return self._do(durable.end_undo(self, ends, failures))

    def sleep(self, how_long: Duration | datetime) -> None:
        """End the run, and go on after this time, or at this moment: without a worker, lease or memory.

        The function begins again at its top; what it has recorded returns at once. See docs/functions.md.
        """
        self._check_outside("sleep", threading.current_thread())
        if rest_s := self._do(durable.sleep(self, how_long)):
            sleep(rest_s)

    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...

    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T], default: D) -> T | D: ...

    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None, default: Any = RAISE) -> Any: ...

    def wait_for(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        type: Any = Any,
        default: Any = RAISE,
    ) -> Any:
        """The data of the next signal of this name (`queue.signal`); the run ends until there is one.

        After `timeout` it raises `Timeout`, or returns `default`.
        """
        self._check_outside("wait_for", threading.current_thread())
        return self._do(durable.wait_for(self, name, timeout=timeout, kind=type, default=default))

    @overload
    def call(self, task: "HasCall[P, T]", /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(self, task: "PreparedCall[T]", /) -> T: ...

    @overload
    def call(self, task: str, data: Any = None, /) -> Any: ...

    def call(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a job that is added once as a child; raises `ChildFailed` if it has none."""
        self._check_outside("call", threading.current_thread())
        (found,) = self._do(durable.call(self, [durable.prepared(self, task, args, kwargs)]))
        if isinstance(found, ChildFailed):
            raise found
        return found

    @overload
    def gather(self, *calls: "PreparedCall[T]") -> list[T]: ...

    @overload
    def gather(
        self, *calls: "PreparedCall[T]", return_exceptions: Literal[True]
    ) -> list[T | ChildFailed]: ...

    def gather(self, *calls: Any, return_exceptions: bool = False) -> list[Any]:
        """The results of several jobs, in order; raises the first `ChildFailed`, or has it in the list."""
        self._check_outside("gather", threading.current_thread())
        news = [durable.complete(self, new) for new in calls]
        return durable.gathered(self._do(durable.call(self, news)), return_exceptions=return_exceptions)

    def version(self, name: str) -> bool:
        """Whether this job does what this version of the function does from here: not if an earlier run has
        already gone further without it."""
        return self._do(durable.version(self, name))

    def restart(self, data: Any = None) -> NoReturn:
        """End the run, and begin again under the same id without steps, with new data if there are any."""
        self._check_outside("restart", threading.current_thread())
        self._do(durable.restart(self, data))
        raise AssertionError("it goes on")


class AsyncContext(Running):
    """The context of a coroutine: the same methods, as coroutines."""

    async def _do(self, flow: Flow[T], connection: Any = None) -> T:
        try:
            ask = next(flow)
            while True:
                try:
                    reply = await (self._say(ask) if connection is None else self._say_in(connection, ask))
                except Exception as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value
        except Suspended:
            # The steps of other coroutines of this run are recorded first: otherwise they are done again.
            # Not if this one is within a step, which the others wait for.
            if _running_task() not in self._stepping.values():
                for name in [*self._stepping]:
                    async with self._step_locks[name]:
                        pass
            raise

    async def _say_in(self, connection: Any, ask: QueueRequest[T]) -> T:
        found: Any = await self._queue.session.connection.engine.execute_in_async(connection, ask.asked)
        return ask.read(found)

    async def _say(self, ask: QueueRequest[T]) -> T:
        try:
            return ask.read(await self._queue.session.connection.ask_async(ask.asked))
        except Exception as error:
            self._job._lose_if(error)
            raise

    async def progress(self, fraction: float, note: str = "") -> None:
        """Report progress, from 0 to 1."""
        await self._say(self._job._progress(fraction, note))

    async def add(self, task: TaskRef | c.NewJob, data: Any = None, **options: Unpack[JobOptions]) -> int:
        """Add a child; see `Context.add`."""
        with self._child(task, data, options) as ask:
            ids: list[int] = await self._queue._send_add(ask, self._say)
            return ids[0]

    async def add_many(self, jobs: Iterable[Any], **options: Unpack[JobOptions]) -> list[int]:
        """Add children; see `Context.add_many`."""
        ids: list[int] = []
        for ask in self._job._adding_many(jobs, options):
            ids += await self._queue._send_add(ask, self._say)
        return ids

    async def children(self, *, after: JobRef | None = None, limit: int | None = None) -> list[Job]:
        """The children of the previous run, and those that this run has added; see `Context.children`."""
        found: list[Job] = []
        for ask in asks.children(self._job, found, after=after, limit=limit):
            found += await self._say(ask)
        return found

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or await a coroutine function, once for the job; see `Context.step`."""
        if self._stepping.get(name) is _running_task():
            raise BadInput("step", name, needed="another name than that of the step around it")
        async with self._step_locks.setdefault(name, _lock()):
            entry = await self._do(durable.begin_step(self, name))
            if entry is not None and entry.kind == "error":
                raise read_error(entry.result)
            text = await self._first(name, partial(fn, *args, **kwargs)) if entry is None else entry.result
        return durable.read_step(name, fn, text)

    async def _first(self, name: str, fn: Callable[[], Any]) -> str:
        began_s = monotonic_s()
        self._stepping[name] = _running_task()
        try:
            with tracing.step(name):
                value = fn()
                if inspect.isawaitable(value):
                    value = await value
        except Exception as error:
            self._failed(name, error, began_s)
            raise
        finally:
            del self._stepping[name]
        return await to_the_end(self._keep(name, value, durable.took_ms(began_s), fn))

    async def _keep(self, name: str, value: Any, took_ms: int, fn: Callable[[], Any]) -> str:
        return self._kept(name, await self._do(durable.keep_step(self, name, value, took_ms, fn)))

    @asynccontextmanager
    async def transaction(self, name: str, connection: Any) -> AsyncIterator[StepTransaction]:
        """A step whose result is recorded in a transaction of your own; see `Context.transaction`."""
        async with self._step_locks.setdefault(name, _lock()):
            entry = await self._do(durable.begin_step(self, name))
            if entry is not None and entry.kind == "error":
                raise read_error(entry.result)
            step, began_s, record = StepTransaction(entry), monotonic_s(), self._job.record
            if entry is not None:
                yield step
                return
            try:
                async with begun_async(connection):
                    yield step
                    text = await self._do(
                        durable.keep_step(self, name, step.result, durable.took_ms(began_s)),
                        connection=connection,
                    )
            except BaseException as error:
                self._rolled_back(name, error, began_s, record)
                raise
            self._kept(name, text)

    async def undo_if_over(self, outcome: Any) -> Any:
        """Undo the steps if the outcome of the run ends the job; see `Context.undo_if_over`."""
        ends = await self._do(durable.begin_undo(self, outcome))
        if ends is None:
            return outcome
        self._is_undoing, failures = True, list[str]()
        for name, fn in reversed(self._compensations):
            try:
                await self.step(f"undo {name}", fn)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failures.append(f"{name} ({type(error).__name__}: {error})")
        return await self._do(durable.end_undo(self, ends, failures))

    async def sleep(self, how_long: Duration | datetime) -> None:
        """End the run, and go on after this time, or at this moment; see `Context.sleep`."""
        self._check_outside("sleep", _running_task())
        if rest_s := await self._do(durable.sleep(self, how_long)):
            from asyncio import sleep

            await sleep(rest_s)

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...

    @overload
    async def wait_for(
        self, name: str, *, timeout: Duration | None = None, type: type[T], default: D
    ) -> T | D: ...

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, default: Any = RAISE) -> Any: ...

    async def wait_for(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        type: Any = Any,
        default: Any = RAISE,
    ) -> Any:
        """The data of the next signal of this name; see `Context.wait_for`."""
        self._check_outside("wait_for", _running_task())
        return await self._do(durable.wait_for(self, name, timeout=timeout, kind=type, default=default))

    @overload
    async def call(self, task: "HasCall[P, T]", /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def call(self, task: "PreparedCall[T]", /) -> T: ...

    @overload
    async def call(self, task: str, data: Any = None, /) -> Any: ...

    async def call(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a job that is added once as a child; see `Context.call`."""
        self._check_outside("call", _running_task())
        (found,) = await self._do(durable.call(self, [durable.prepared(self, task, args, kwargs)]))
        if isinstance(found, ChildFailed):
            raise found
        return found

    @overload
    async def gather(self, *calls: "PreparedCall[T]") -> list[T]: ...

    @overload
    async def gather(
        self, *calls: "PreparedCall[T]", return_exceptions: Literal[True]
    ) -> list[T | ChildFailed]: ...

    async def gather(self, *calls: Any, return_exceptions: bool = False) -> list[Any]:
        """The results of several jobs, in order; see `Context.gather`."""
        self._check_outside("gather", _running_task())
        news = [durable.complete(self, new) for new in calls]
        return durable.gathered(await self._do(durable.call(self, news)), return_exceptions=return_exceptions)

    async def version(self, name: str) -> bool:
        """Whether this job does what this version of the function does from here; see `Context.version`."""
        return await self._do(durable.version(self, name))

    async def restart(self, data: Any = None) -> NoReturn:
        """End the run, and begin again under the same id without steps; see `Context.restart`."""
        self._check_outside("restart", _running_task())
        await self._do(durable.restart(self, data))
        raise AssertionError("it goes on")


if TYPE_CHECKING:

    class AnyContext(Context, AsyncContext):  # type: ignore[misc]
        """For annotations: either kind of context."""


def _running_task() -> Any:
    from asyncio import current_task

    return current_task()


def _lock() -> Any:
    from asyncio import Lock

    return Lock()
