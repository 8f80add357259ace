"""Groups: jobs that were added together, to wait for all of them.

    gather(calls)                  add_many, and one object for all handles
    gather(calls, when_done=call)  the follower is the parent of the others: it runs when all have ended

With a follower all jobs are one transaction. It is a parent as one whose handler has added its children.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import BATCH_JOBS
from ..core.creating import add_commands
from ..core.errors import BadInput, JobFailed, NotFound, Timeout
from ..core.ids import SLOTS, IdRange
from ..core.job import Body, State
from ..core.slots import with_slots
from ..store.common.clock import monotonic_s
from . import asks
from .aio_task import AsyncHandle
from .asks import QueueRequest
from .options import Duration
from .task import BaseHandle, Handle

R = TypeVar("R")
H = TypeVar("H", bound=BaseHandle[Any])
F = TypeVar("F", bound=BaseHandle[Any])
# What `results` does with a job that has ended without a result.
OnFailure = Literal["raise", "return"]


class GroupProgress(NamedTuple):
    """How many jobs of a group there are in each state; `gone` are those that were deleted."""

    total: int
    waiting: int
    running: int
    finished: int
    failed: int
    cancelled: int
    gone: int

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.total - self.waiting - self.running


class BaseJobGroup(Generic[H, F]):
    """What groups of both kinds of queues are: the handles in the order of the calls, and the follower."""

    def __init__(self, handles: Sequence[H], follower: F | None) -> None:
        self.handles, self._follower = tuple(handles), follower

    @property
    def follower(self) -> F:
        """The handle of the job of `when_done`; `AttributeError` if there was none."""
        if self._follower is None:
            raise AttributeError("the group has no follower: it was added without when_done")
        return self._follower

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[H]:
        return iter(self.handles)

    def __repr__(self) -> str:
        then = f", then job {self._follower.id}" if self._follower else ""
        return f"<group of {len(self.handles)} jobs{then}>"


class JobGroup(BaseJobGroup[Handle[R], Handle[Any]], Generic[R]):
    """Jobs that were added by `Queue.gather`."""

    @overload
    def results(self, wait: Duration | None = None, *, failures: Literal["raise"] = "raise") -> list[R]: ...

    @overload
    def results(
        self, wait: Duration | None = None, *, failures: Literal["return"]
    ) -> list[R | JobFailed]: ...

    def results(self, wait: Duration | None = None, *, failures: OnFailure = "raise") -> list[Any]:
        """The results in the order of the calls, when all jobs have ended within `wait` together.

        The first job without a result raises its `JobFailed`; with `failures="return"` that is its result.
        """
        deadline = _Deadline(wait, failures)
        found: list[Any] = []
        for handle in self.handles:
            try:
                found.append(handle.result(deadline.left()))
            except JobFailed as error:
                found.append(deadline.failed(error))
            except Timeout as error:
                raise late(self.progress(), error) from None
        return found

    def progress(self) -> GroupProgress:
        """How many jobs have ended, and how."""
        return _progress([self._state(handle) for handle in self.handles])

    def _state(self, handle: Handle[R]) -> State | None:
        try:
            return handle.get().state
        except NotFound:
            return None

    def cancel(self, *, force: bool = False) -> None:
        """Cancel all jobs that have not ended, as `Queue.cancel` does; the follower runs afterwards."""
        for handle in self.handles:
            if is_unfinished(self._state(handle)):
                handle.cancel(force=force)


class AsyncJobGroup(BaseJobGroup[AsyncHandle[R], AsyncHandle[Any]], Generic[R]):
    """Jobs that were added by `AsyncQueue.gather`."""

    @overload
    async def results(
        self, wait: Duration | None = None, *, failures: Literal["raise"] = "raise"
    ) -> list[R]: ...

    @overload
    async def results(
        self, wait: Duration | None = None, *, failures: Literal["return"]
    ) -> list[R | JobFailed]: ...

    async def results(self, wait: Duration | None = None, *, failures: OnFailure = "raise") -> list[Any]:
        """See `JobGroup.results`."""
        deadline = _Deadline(wait, failures)
        found: list[Any] = []
        for handle in self.handles:
            try:
                found.append(await handle.result(deadline.left()))
            except JobFailed as error:
                found.append(deadline.failed(error))
            except Timeout as error:
                raise late(await self.progress(), error) from None
        return found

    async def progress(self) -> GroupProgress:
        """How many jobs have ended, and how."""
        return _progress([await self._state(handle) for handle in self.handles])

    async def _state(self, handle: AsyncHandle[R]) -> State | None:
        try:
            return (await handle.get()).state
        except NotFound:
            return None

    async def cancel(self, *, force: bool = False) -> None:
        """See `JobGroup.cancel`."""
        for handle in self.handles:
            if is_unfinished(await self._state(handle)):
                await handle.cancel(force=force)


class _Deadline:
    """When `results` stops waiting, and what it does with failures."""

    def __init__(self, wait: Duration | None, failures: str) -> None:
        if failures not in ("raise", "return"):
            raise BadInput("failures", failures, needed="raise or return")
        self._returns = failures == "return"
        self._until_s = None if wait is None else monotonic_s() + asks.wait_s_of(wait)

    def left(self) -> float | None:
        """The time that is left, in seconds."""
        return None if self._until_s is None else max(self._until_s - monotonic_s(), 0.0)

    def failed(self, error: JobFailed) -> JobFailed:
        """The result of a job that has none; or raise it."""
        if not self._returns:
            raise error
        return error


def late(progress: GroupProgress, error: Timeout) -> Timeout:
    """The error for a group that has not ended in time; `error` is that of its first such job."""
    return Timeout(f"{progress.ended} of {progress.total} jobs of the group have ended; {error}")


def is_unfinished(state: State | None) -> bool:
    """Whether a job has not ended; None: it was deleted."""
    return state not in (None, *_ENDED)


def _progress(states: Sequence[State | None]) -> GroupProgress:
    count = Counter(states)
    running, finished, failed, cancelled, gone = (count[state] for state in (State.RUNNING, *_ENDED, None))
    waiting = len(states) - running - finished - failed - cancelled - gone
    return GroupProgress(len(states), waiting, running, finished, failed, cancelled, gone)


_ENDED = (State.FINISHED, State.FAILED, State.CANCELLED)


def check_follower(new: c.NewJob) -> c.NewJob:
    """A job that may wait for others: not one that may be there already, or has a parent itself."""
    for option, value in (("unique", new.unique), ("parent", new.parent_id or None)):
        if value is not None:
            raise BadInput(f"{option} of when_done", value, needed="absent")
    return new


def reserve(jobs: Sequence[c.NewJob | Body]) -> QueueRequest[list[int]]:
    """Reserve ids for the jobs of a group, and their follower."""
    most = BATCH_JOBS - 1
    if len(jobs) > most:
        raise BadInput("calls", f"{len(jobs):,}", needed=f"at most {most:,} with when_done: one transaction")
    return QueueRequest(c.ReserveIds(count=len(jobs) + 1), _bare)


def _bare(ranges: Iterable[IdRange]) -> list[int]:
    return [job_id for one in ranges for job_id in range(one.first, one.first + one.count * SLOTS, SLOTS)]


def add(jobs: Iterable[c.NewJob | Body], new: c.NewJob, bare: list[int]) -> QueueRequest[list[int]]:
    """Add the follower of a group, and its jobs; replies their ids in this order."""
    (parent_id,) = with_slots(c.Add(jobs=(new,)), bare[:1]).ids
    children = [replace(one, parent_id=parent_id) if isinstance(one, c.NewJob) else one for one in jobs]
    commands = [*add_commands([new, *children])]
    if len(commands) > 1:
        raise BadInput("calls", "too much data for one transaction", needed="several groups, or less data")
    return QueueRequest(with_slots(commands[0], bare), asks.same)
