"""Tasks and jobs of a queue for asyncio: what `Task` and `Handle` are, to await."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from ..core.commands import NewJob
from ..core.job import Job
from .options import Duration, JobOptions, merge
from .task import Task

if TYPE_CHECKING:
    from .decorators import AnyContext

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncHandle(Generic[R]):
    """A job that was added. `id` is its number; the rest asks the queue."""

    __slots__ = ("_queue", "id")

    def __init__(self, queue: Any, job_id: int) -> None:
        self._queue, self.id = queue, job_id

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


class AsyncUsing(Generic[P, R]):
    """A task with options for the calls that follow."""

    def __init__(self, task: "AsyncTask[P, R]", options: JobOptions) -> None:
        self._task, self._options = task, options

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[Any]:
        """Add a job; returns after the commit."""
        return await self._task.added(self._task.prepare(args, kwargs, self._options))


class AsyncTask(Task[P, R]):
    """A task whose `add` is awaited; its function may be a coroutine or not."""

    # The one that it is of, whose verbs are awaited.
    queue: Any

    def using(self, **options: Unpack[JobOptions]) -> AsyncUsing[P, R]:  # type: ignore[override]
        """The same task with other options."""
        return AsyncUsing(self, merge({}, options))

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[Any]:  # type: ignore[override]
        """Add a job; returns after the commit."""
        return await self.added(self.call(*args, **kwargs))

    async def added(self, call: NewJob) -> AsyncHandle[Any]:
        """Add a prepared call."""
        handles: list[AsyncHandle[Any]] = await self.queue.add_many([call])
        return handles[0]

    async def add_many(  # type: ignore[override]
        self, calls: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[AsyncHandle[Any]]:
        """Add a job for each tuple, or dict, of arguments; the options are those of each."""
        calls = [self._spread(arguments, options) for arguments in calls]
        handles: list[AsyncHandle[Any]] = await self.queue.add_many(calls)
        return handles


AsyncBatched = Callable[[Callable[[list[T]], Any]], AsyncTask[[T], Any]]


class AsyncDecorator(Protocol):
    """Makes a function or coroutine function a task."""

    @overload
    def __call__(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...
