"""Runs all due jobs in this thread or loop: in order, without waiting, and without a worker."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ..core import commands as c
from ..core import queries as q
from ..core.errors import BadInput, NotFound, Timeout
from ..core.job import Job, State
from ..core.units import duration_ms, moment_ms
from ..queue import asks
from ..queue.aio import AsyncQueue
from ..queue.base import BaseQueue
from ..queue.options import Duration, Moment, TaskRef
from ..queue.queue import Queue
from .clock import Clock
from .places import ask_now, clock_of

# With more runs than this, `run_due` raises an error.
MOST_RUNS = 10_000
# Upkeep works in bounded batches; no test needs more than this many.
MOST_UPKEEP = 1_000


class Ran(NamedTuple):
    """One run of a job: the record after the run, and its outcome.

    With a retention of zero the store keeps no results: `result` is None.
    """

    job: Job
    result: Any
    error: str

    @property
    def task(self) -> str:
        """The task of the job."""
        return self.job.task

    @property
    def state(self) -> State:
        """The state of the job after the run: FINISHED, or QUEUED if it runs again."""
        return self.job.state


def run_due(
    queue: Queue,
    *,
    tasks: Iterable[TaskRef] | None = None,
    advance: Duration | None = None,
    until: Moment | None = None,
    most: int = MOST_RUNS,
) -> list[Ran]:
    """Run all jobs that are due now, and those that become due by that; returns the runs, in order.

    With `advance` or `until`, the clock is moved from each due time to the next, up to that limit: delays,
    retries after their backoff, schedules, expired leases. At the end it shows the limit. Jobs of tasks that
    the queue does not know keep waiting. More than `most` runs raise `Timeout`.
    """
    if not isinstance(queue, Queue):
        needed = "one of holdfast.connect, or testing.queue(); for connect_async there is run_due_async"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    ran: list[Ran] = []
    for names in _times(queue, tasks, advance, until):
        while names and (jobs := queue.claim(names, limit=1, renew=False)):
            if len(ran) >= most:
                jobs[0].release()
                raise _endless(ran)
            ran.append(_ran(queue, jobs[0].run()))
            _settle(queue)
    return ran


async def run_due_async(
    queue: AsyncQueue,
    *,
    tasks: Iterable[TaskRef] | None = None,
    advance: Duration | None = None,
    until: Moment | None = None,
    most: int = MOST_RUNS,
) -> list[Ran]:
    """Run all due jobs of a queue of `connect_async`, one after the other; see `run_due`."""
    if not isinstance(queue, AsyncQueue):
        needed = "one of holdfast.connect_async; for connect there is run_due"
        raise BadInput("queue", type(queue).__name__, needed=needed)
    ran: list[Ran] = []
    for names in _times(queue, tasks, advance, until):
        while names and (jobs := await queue.claim(names, limit=1, renew=False)):
            if len(ran) >= most:
                await jobs[0].release()
                raise _endless(ran)
            ran.append(_ran(queue, await jobs[0].run()))
            _settle(queue)
    return ran


def _times(
    queue: BaseQueue, tasks: Iterable[TaskRef] | None, advance: Duration | None, until: Moment | None
) -> Iterator[tuple[str, ...]]:
    """The tasks to claim from: now, and at each time at which something happens; the clock is moved."""
    names = tuple(queue.tasks) if tasks is None else asks.task_names(tasks)
    if unknown := [name for name in names or () if name not in queue.tasks]:
        raise BadInput("tasks", ", ".join(unknown), needed=f"some of {', '.join(queue.tasks) or 'none'}")
    clock = None if advance is None and until is None else clock_of(queue)
    bound_ms = _bound_ms(clock, advance, until)
    while True:
        _settle(queue)
        yield names or ()
        next_ms: int | None = queue.connection.ask(q.GetNextMoment())
        if clock is None or next_ms is None or next_ms > bound_ms:
            break
        clock.advance_to(next_ms / 1000)
    if clock is not None:
        clock.advance_to(bound_ms / 1000)


def _bound_ms(clock: Clock | None, advance: Duration | None, until: Moment | None) -> int:
    if advance is not None and until is not None:
        raise BadInput("until", until, needed="absent where advance is given")
    if clock is None:
        return 0
    if advance is not None:
        return clock() + duration_ms(advance, name="advance")
    assert until is not None
    return moment_ms(until, name="until")


def _endless(ran: list[Ran]) -> Timeout:
    return Timeout(f"there is no end to it: {len(ran):,} runs, the last of task {ran[-1].task!r}")


def _ran(queue: BaseQueue, after: Job) -> Ran:
    result = None
    if after.ended == State.FINISHED and after.has_result:
        with suppress(NotFound):
            result = ask_now(queue, asks.result(after, None, queue._read_result))
    return Ran(after, result, after.outcome.error if after.outcome else "")


def _settle(queue: BaseQueue) -> None:
    """Run upkeep until nothing is left to do now."""
    connection = queue.connection
    for _ in range(MOST_UPKEEP):
        next_ms = connection.ask(c.Upkeep())
        if next_ms is None or next_ms > connection.ask(q.GetTime()):
            return
