"""The `Context` of a running job: what a handler can read and report.

The worker passes it for a parameter annotated `Context` (in a coroutine function `AsyncContext`). It is
neither part of the job's data nor an argument of `add`.
"""

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from ..core import commands as c
from ..core import queries as q
from ..core.checks import check_command
from ..core.errors import BadInput
from ..core.job import Job
from . import asks
from .asks import QueueRequest
from .claimed import Holding
from .definition import readable_type, returned_type
from .encoding import encode_result, from_json_type, reason_and_path
from .options import JobOptions, JobRef, TaskRef

P = ParamSpec("P")
T = TypeVar("T")


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
        # Results of the steps of earlier runs, as JSON text; read on first use.
        self._kept: dict[str, str] | None = None
        # A lock for each step: of two calls at the same time the second gets the result of the first.
        self._step_locks: dict[str, Any] = {}
        # The tasks that are within a coroutine step: one that waited for itself would wait for ever.
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

    def _keep(self, name: str, value: Any) -> QueueRequest[None]:
        text = encode_result(f"result of step {name}", value)
        if not isinstance(text, str):
            text = msgspec.json.encode(text).decode()
        self._job._check_open("keep a step of")
        command = c.Step(hold=self._job._lease.hold, name=name, result=text)
        check_command(command)

        def read(reply: Job) -> None:
            self._job._renewed(reply)
            if self._kept is not None:
                self._kept[name] = text

        return QueueRequest(command, read)

    def _steps(self) -> QueueRequest[dict[str, str]]:
        return QueueRequest(q.GetSteps(job_id=self.job_id), asks.same)


class Context(Running):
    """The context of a function. Each method returns after its commit."""

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

    def children(self, *, after: JobRef | None = None, limit: int = 1000) -> list[Job]:
        """The children of the previous run, with their outcomes, and those that this run has added."""
        return self._say(asks.children(self._job, after=after, limit=limit))

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function once for the job; a later run gets the stored result.

        The result is stored as JSON and decoded by the function's return annotation, in this run too.
        """
        if self._kept is None:
            kept = self._say(self._steps()) if self._job.record.steps else {}
            # Another thread may have stored it meanwhile.
            self._kept = kept if self._kept is None else self._kept
        with self._step_locks.setdefault(name, threading.RLock()):
            if name not in self._kept:
                self._say(self._keep(name, fn(*args, **kwargs)))
        value: T = read_step(name, fn, self._kept[name])
        return value


class AsyncContext(Running):
    """The context of a coroutine: the same methods, as coroutines."""

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

    async def children(self, *, after: JobRef | None = None, limit: int = 1000) -> list[Job]:
        """The children of the previous run, with their outcomes, and those that this run has added."""
        return await self._say(asks.children(self._job, after=after, limit=limit))

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or await a coroutine function, once for the job; see `Context.step`."""
        import asyncio

        if self._kept is None:
            kept = await self._say(self._steps()) if self._job.record.steps else {}
            # Another coroutine may have stored it meanwhile: steps may run concurrently.
            self._kept = kept if self._kept is None else self._kept
        task = asyncio.current_task()
        if self._stepping.get(name) is task:
            raise BadInput("step", name, needed="another name than that of the step around it")
        async with self._step_locks.setdefault(name, asyncio.Lock()):
            if name not in self._kept:
                self._stepping[name] = task
                try:
                    value = fn(*args, **kwargs)
                    if inspect.isawaitable(value):
                        value = await value
                finally:
                    del self._stepping[name]
                await self._say(self._keep(name, value))
        return read_step(name, fn, self._kept[name])


if TYPE_CHECKING:

    class AnyContext(Context, AsyncContext):  # type: ignore[misc]
        """For annotations: either kind of context."""


def read_step(name: str, fn: Callable[..., Any], text: str) -> Any:
    """A stored result, converted to the function's return type."""
    try:
        return msgspec.json.decode(text, type=readable_type(returned_type(fn)), dec_hook=from_json_type)
    except msgspec.DecodeError as error:
        reason, _ = reason_and_path(error)
        raise BadInput(
            f"result of step {name}", "kept", needed=f"such as its function returns ({reason})"
        ) from None
