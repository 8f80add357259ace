"""Tasks and handles of a queue for asyncio: `Task` and `Handle` with coroutines."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from ..core.job import Job
from .options import Duration, JobOptions
from .task import Task, TaskWithOptions

if TYPE_CHECKING:
    from .context import AnyContext

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncHandle(msgspec.Struct, Generic[R], frozen=True, eq=False, gc=False):
    """A job that was added: its `id`, and methods that query the queue."""

    _queue: Any
    id: int

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def result(self, wait: Duration | None = None) -> R:
        """See `AsyncQueue.result`."""
        value: R = await self._queue.result(self, wait=wait)
        return value

    async def get(self) -> Job:
        """The job's record."""
        job: Job = await self._queue.get(self)
        return job


class AsyncTaskWithOptions(TaskWithOptions[P, R]):
    """A task with options for its calls, whose `add` is awaited."""

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[Any]:  # type: ignore[override]
        """Add a job; returns after the commit."""
        handle: AsyncHandle[Any] = await self._queue._add_one(self._checked(args, kwargs))
        return handle


class AsyncTask(AsyncTaskWithOptions[P, R], Task[P, R]):
    """A task whose `add` is awaited; its function may be a coroutine or not."""

    def using(self, **options: Unpack[JobOptions]) -> AsyncTaskWithOptions[P, R]:
        """The same task with other options."""
        using: AsyncTaskWithOptions[P, R] = self._using(AsyncTaskWithOptions, options)
        return using

    async def add_many(  # type: ignore[override]
        self, calls: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[Any]]:
        """Add a job for each tuple or dict of arguments; the options apply to all."""
        using = self.using(**options) if options else self
        handles: list[AsyncHandle[Any]] = await self._queue._add_each(using._each(calls))
        return handles


AsyncBatched = Callable[[Callable[[list[T]], Any]], AsyncTask[[T], Any]]


class AsyncDecorator(Protocol):
    """Makes a function or coroutine function a task."""

    @overload
    def __call__(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...
