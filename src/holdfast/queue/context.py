"""What a handler gets to know of its job, and may say of it: the `Context`.

A parameter annotated `Context` (in a coroutine function `AsyncContext`) is given by whoever runs the
job. It is no part of the job's data, nor of the call that `add` takes.
"""

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, get_type_hints, overload

import msgspec

from ..core import commands as c
from ..core import queries as q
from ..core.errors import BadInput
from ..core.job import Job
from ..engine.engine import check
from . import asks
from .asks import QueueRequest
from .claimed import Holding
from .encoding import encode
from .options import JobOptions

P = ParamSpec("P")
T = TypeVar("T")


class Home(Protocol):
    """What a context needs of the job's queue."""

    @property
    def session(self) -> Any:
        """The session of this process; in an executor its connection is to the supervisor."""

    def call(self, task: Any, data: Any = None, **options: Any) -> c.NewJob:
        """See `Queue.call`."""


class Running:
    """What the two kinds of context share."""

    def __init__(self, job: Holding, queue: Home) -> None:
        self._job, self._queue = job, queue
        # Results of earlier runs' steps, JSON texts; read when first asked for.
        self._kept: dict[str, str] | None = None

    @property
    def job_id(self) -> int:
        """The job's number."""
        return self._job.id

    @property
    def claim(self) -> int:
        """The number of this hand-out, which only goes up: give it to outside systems as a fence."""
        return self._job.claim

    @property
    def attempt(self) -> int:
        """Which run this is, from 1; a run whose process died is not counted."""
        return self._job.attempt

    @property
    def deadline(self) -> datetime | None:
        """When the time limit ends, by the store's clock; None: never."""
        lease = self._job._lease
        limit_ms = lease.job.timeout_ms
        return datetime.fromtimestamp((lease.started_at + limit_ms) / 1000, UTC) if limit_ms else None

    @property
    def cancelled(self) -> bool:
        """Whether the work is no longer wanted: somebody asked it to stop, or the claim is lost."""
        return self._job.cancelled

    def log(self, text: str) -> None:
        """Add to the job's log, which stays with it; sent within half a second, and with the answer."""
        self._job.log(text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.job_id}, claim {self.claim}>"

    def _child(self, task: Any, data: Any, options: JobOptions) -> QueueRequest[list[int]]:
        new = task if isinstance(task, c.NewJob) else self._queue.call(task, data, **options)
        (ask,) = self._job._add(new)
        return ask

    def _keep(self, name: str, value: Any) -> QueueRequest[None]:
        text = encode(f"result of step {name}", value)
        if not isinstance(text, str):
            text = msgspec.json.encode(text).decode()
        self._job._check_open("keep a step of")
        command = c.Step(hold=self._job._lease.hold, name=name, result=text)
        check(command)

        def read(reply: Job) -> None:
            self._job._renewed(reply)
            if self._kept is not None:
                self._kept[name] = text

        return QueueRequest(command, read)

    def _steps(self) -> QueueRequest[dict[str, str]]:
        return QueueRequest(q.GetSteps(job_id=self.job_id), asks.same)


class Context(Running):
    """The context of a function's run. Each verb returns when the store has it."""

    def _say(self, ask: QueueRequest[T]) -> T:
        try:
            return ask.read(self._queue.session.connection.ask(ask.asked))
        except Exception as error:
            self._job._lose_if(error)
            raise

    def progress(self, fraction: float, note: str = "") -> None:
        """Tell how far it is, from 0 to 1."""
        self._say(self._job._progress(fraction, note))

    def add(self, task: Any, data: Any = None, **options: Unpack[JobOptions]) -> int:
        """Add a child, which runs when this run has ended; its number. From a child, a sibling."""
        return self._say(self._child(task, data, options))[0]

    def children(self, *, after: Any = None, limit: int = 1000) -> list[Job]:
        """The children of the last wave, to see how they ended."""
        return self._say(asks.children(self._job, after=after, limit=limit))

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function once in the life of the job: a later run gets the result that is kept.

        The result is kept as JSON and read along the function's return annotation, in this run too.
        """
        if self._kept is None:
            self._kept = self._say(self._steps()) if self._job.record.steps else {}
        if name not in self._kept:
            self._say(self._keep(name, fn(*args, **kwargs)))
        value: T = read_step(name, fn, self._kept[name])
        return value


class AsyncContext(Running):
    """The context of a coroutine's run: the same verbs, to await."""

    async def _say(self, ask: QueueRequest[T]) -> T:
        try:
            return ask.read(await self._queue.session.connection.ask_async(ask.asked))
        except Exception as error:
            self._job._lose_if(error)
            raise

    async def progress(self, fraction: float, note: str = "") -> None:
        """Tell how far it is, from 0 to 1."""
        await self._say(self._job._progress(fraction, note))

    async def add(self, task: Any, data: Any = None, **options: Unpack[JobOptions]) -> int:
        """Add a child; see `Context.add`."""
        return (await self._say(self._child(task, data, options)))[0]

    async def children(self, *, after: Any = None, limit: int = 1000) -> list[Job]:
        """The children of the last wave."""
        return await self._say(asks.children(self._job, after=after, limit=limit))

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or await a coroutine function, once in the life of the job; see `Context.step`."""
        if self._kept is None:
            kept = await self._say(self._steps()) if self._job.record.steps else {}
            # Somebody may have been faster: steps may run side by side.
            self._kept = kept if self._kept is None else self._kept
        if name not in self._kept:
            value = fn(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            await self._say(self._keep(name, value))
        return read_step(name, fn, self._kept[name])


if TYPE_CHECKING:

    class AnyContext(Context, AsyncContext):  # type: ignore[misc]
        """Whatever a function wants that has a context: one of them fits."""


def read_step(name: str, fn: Callable[..., Any], text: str) -> Any:
    """A kept result as the function would have returned it."""
    try:
        return msgspec.json.decode(text, type=_returned(fn))
    except msgspec.DecodeError as error:
        raise BadInput(
            f"result of step {name}", "kept", needed=f"such as its function returns ({error})"
        ) from None


def _returned(fn: Callable[..., Any]) -> Any:
    try:
        kind = get_type_hints(inspect.unwrap(fn)).get("return", Any)
        msgspec.json.Decoder(kind)
    except (NameError, TypeError, AttributeError):
        # What has no annotation that says something is taken as JSON has it.
        return Any
    return kind
