"""What `add` returns: a job's number, and what can be asked of it."""

from typing import Any, Generic, Protocol, TypeVar

from ..core.job import Job
from .options import Duration

R_co = TypeVar("R_co", covariant=True)


class Asked(Protocol):
    """What a handle needs of its queue."""

    def result(self, job: Any, wait: Duration | None = None) -> Any:
        """See `Queue.result`."""

    def get(self, job: Any) -> Job:
        """See `Queue.get`."""

    def why(self, job: Any) -> str:
        """See `Queue.why`."""

    def cancel(self, job: Any, *, force: bool = False) -> Job:
        """See `Queue.cancel`."""


class Handle(Generic[R_co]):
    """A job that was added. `id` is its number; the rest asks the queue."""

    __slots__ = ("_queue", "id")

    def __init__(self, queue: Asked, job_id: int) -> None:
        self._queue = queue
        self.id = job_id

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def result(self, wait: Duration | None = None) -> R_co:
        """What the task returned; raises `JobFailed`, or `Timeout` when it has not ended within `wait`."""
        value: Any = self._queue.result(self, wait=wait)
        return value  # type: ignore[no-any-return]

    def get(self) -> Job:
        """The job's record."""
        return self._queue.get(self)

    def why(self) -> str:
        """Why it is not running."""
        return self._queue.why(self)

    def cancel(self, *, force: bool = False) -> Job:
        """Take it out of the queue; see `Queue.cancel`."""
        return self._queue.cancel(self, force=force)
