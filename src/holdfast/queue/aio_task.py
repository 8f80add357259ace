"""Tasks and handles of a queue for asyncio: `Task` and `Handle` with coroutines."""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from ..core.job import Job
from .options import Duration, JobOptions, JobRef, job_id
from .task import Arguments, BaseHandle, Task, TaskWithOptions

if TYPE_CHECKING:
    from .context import AnyContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class AsyncHandle(BaseHandle[R_co], frozen=True):
    """A job that was added: its `id`, and methods that query the queue."""

    async def result(self, wait: Duration | None = None) -> R_co:
        """See `AsyncQueue.result`."""
        value: R_co = await self._queue.result(self, wait=wait)
        return value

    async def get(self) -> Job:
        """The job's record."""
        job: Job = await self._queue.get(self)
        return job

    async def why(self) -> str:
        """Why it is not running."""
        if self._task:
            await self.get()
        reason: str = await self._queue.why(self)
        return reason

    async def cancel(self, *, force: bool = False) -> Job:
        """Cancel the job; see `Queue.cancel`."""
        if self._task:
            await self.get()
        job: Job = await self._queue.cancel(self, force=force)
        return job


class AsyncTaskWithOptions(TaskWithOptions[P, R_co]):
    """A task with options for its calls, whose `add` is awaited."""

    @overload  # type: ignore[override]
    async def add(
        self: "AsyncTaskWithOptions[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs
    ) -> AsyncHandle[T]: ...

    @overload
    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R_co]: ...

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[Any]:
        """Add a job; returns after the commit."""
        handle: AsyncHandle[Any] = await self._queue._add_one(self._new(args, kwargs), self._connection)
        return handle

    @overload  # type: ignore[override]
    async def add_many(
        self: "AsyncTaskWithOptions[P, Coroutine[Any, Any, T]]", calls: Iterable[Arguments]
    ) -> list[AsyncHandle[T]]: ...

    @overload
    async def add_many(self, calls: Iterable[Arguments]) -> list[AsyncHandle[R_co]]: ...

    async def add_many(self, calls: Iterable[Arguments]) -> list[AsyncHandle[Any]]:
        """Add a job for each tuple or dict of arguments."""
        handles: list[AsyncHandle[Any]] = await self._queue._add_each(self._each(calls), self._connection)
        return handles


class AsyncTask(AsyncTaskWithOptions[P, R_co], Task[P, R_co]):
    """A task whose `add` is awaited; its function may be a coroutine or not."""

    def using(
        self, *, connection: Any = None, **options: Unpack[JobOptions]
    ) -> AsyncTaskWithOptions[P, R_co]:
        """The same task with other options; see `Task.using`."""
        using: AsyncTaskWithOptions[P, R_co] = self._using(AsyncTaskWithOptions, options, connection)
        return using

    @overload  # type: ignore[override]
    def handle(self: "AsyncTask[P, Coroutine[Any, Any, T]]", job: JobRef) -> AsyncHandle[T]: ...

    @overload
    def handle(self, job: JobRef) -> AsyncHandle[R_co]: ...

    def handle(self, job: JobRef) -> AsyncHandle[Any]:
        """The handle of a job by its id or record; see `Task.handle`."""
        return AsyncHandle(self._queue, job_id(job), False, self.name)

    @overload  # type: ignore[override]
    async def add_many(
        self: "AsyncTask[P, Coroutine[Any, Any, T]]",
        calls: Iterable[Arguments],
        **options: Unpack[JobOptions],
    ) -> list[AsyncHandle[T]]: ...

    @overload
    async def add_many(
        self, calls: Iterable[Arguments], **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[R_co]]: ...

    async def add_many(
        self, calls: Iterable[Arguments], **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[Any]]:
        """Add a job for each tuple or dict of arguments; the options apply to all."""
        using = self.using(**options) if options else self
        handles: list[AsyncHandle[Any]] = await self._queue._add_each(using._each(calls))
        return handles


class AsyncDecorator(Protocol):
    """Makes a function or coroutine function a task."""

    @overload
    def __call__(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...


class AsyncBatchDecorator(Protocol):
    """Makes a function that takes a list a task whose jobs are the items; see `BatchDecorator`."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /
    ) -> AsyncTask[[T], R]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], list[R]], /) -> AsyncTask[[T], R]: ...
