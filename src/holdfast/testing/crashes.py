"""Crash points: kills a handler before and after each of its commands, and runs it again.

    scenario ──▶ run ──▶ ① add ② ──▶ ③ progress ④ ──▶ ⑤ answer ⑥
                          │                              │
                          └── before: nothing was sent   └── after: committed, without a reply

Each history starts with a new store and has one crash. Then the lease expires, the job is run again, and must
end FINISHED; `check` tests what else must be true. A crash is an exception that no handler catches, after
which no command is sent; or, with `kill=True`, a separate process that is killed with SIGKILL.
"""

import asyncio
import inspect
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ..core import commands as c
from ..core.errors import BadInput
from ..core.job import Job, State
from ..core.queries import Query
from ..queue import asks
from ..queue.aio import AsyncQueue
from ..queue.queue import Queue
from ..queue.task import BaseHandle
from .clock import Clock
from .due import run_due, run_due_async
from .places import ask_now, placed

Q = TypeVar("Q", Queue, AsyncQueue)

# How long a history may take, by the clock of the test.
WITHIN = "1d"
# Commands of workers, and commands that change nothing: no crash points.
_NOT_THE_HANDLERS = (c.Claim, c.Upkeep, c.Extend, c.Await, Query)


class Crash(BaseException):
    """A simulated crash of the process. Not an `Exception`, so that no handler catches it."""


class CrashPoint(NamedTuple):
    """Where a handler was killed: before or after a command, which was the n-th of its history."""

    number: int
    when: Literal["before", "after"]
    what: str

    def __str__(self) -> str:
        return f"{self.when} command {self.number}, {self.what}"


def crash_points(
    make: Callable[[], Q],
    scenario: Callable[[Q], Any],
    check: Callable[[Q], object] | None = None,
    *,
    kill: bool = False,
) -> list[CrashPoint]:
    """Run a scenario once for each crash point; returns the points, or raises an error with the failed one.

    `make` returns the queue with your tasks, a new one or always the same: it gets a new store each time.
    `scenario` resets external state and adds jobs; it may return their handles, otherwise all jobs must end
    FINISHED. `check` is called at the end of each history: the external effects of your handlers must be
    right, although some of them happened twice. Schedules are paused. For a queue of `connect_async` both may
    be coroutine functions, and no event loop may run here.
    """
    # Its loop is made when something is awaited first.
    with closing(asyncio.Runner()) as runner:
        story = _Story(scenario, check, runner)
        with _history(make()) as (queue, clock):
            points = _points(queue, story)
        for point in points:
            with _history(make(), in_file=kill) as (queue, clock):
                try:
                    jobs = _killed(queue, story, point) if kill else _crashed(queue, story, point)
                    clock.advance(queue.lease)
                    story.run_due(queue)
                    _must_be_finished(queue, jobs)
                    story.check(queue)
                except Exception as error:
                    error.add_note(f"the handler had been killed {point}")
                    raise
    return points


class _Story(Generic[Q]):
    """A scenario and its check, and the event loop for a queue of `connect_async`."""

    def __init__(
        self, scenario: Callable[[Q], Any], check: Callable[[Q], object] | None, runner: asyncio.Runner
    ) -> None:
        self._scenario: Callable[[Q], Any] = scenario
        self._check: Callable[[Q], object] | None = check
        self._runner = runner

    def begin(self, queue: Q) -> list[int]:
        """Run the scenario; returns the jobs that it returned; none: all jobs."""
        # Before the commands of handlers are watched.
        sync: Callable[[], Any] = queue.sync
        self._wait(sync())
        # What they add has nothing to do with the scenario, and would have no end.
        for schedule in ask_now(queue, asks.schedules(queue.tenant)):
            ask_now(queue, asks.pause_schedule(schedule.name, tenant=queue.tenant, on=True))
        returned = self._wait(self._scenario(queue))
        if isinstance(returned, BaseHandle):
            return [returned.id]
        if isinstance(returned, Iterable) and not isinstance(returned, str | bytes):
            return [one.id for one in returned if isinstance(one, BaseHandle)]
        return []

    def run_due(self, queue: Q) -> None:
        """Run all jobs that become due within a history."""
        if isinstance(queue, AsyncQueue):
            self._wait(run_due_async(queue, advance=WITHIN))
        else:
            run_due(queue, advance=WITHIN)

    def check(self, queue: Q) -> None:
        """Test what must be true at the end of a history."""
        if self._check is not None:
            self._wait(self._check(queue))

    def in_child(self) -> "_Story[Q]":
        """The same in another process, which cannot use this loop."""
        return _Story(self._scenario, self._check, asyncio.Runner())

    def _wait(self, value: Any) -> Any:
        return self._runner.run(value) if inspect.iscoroutine(value) else value


def _points(queue: Q, story: _Story[Q]) -> list[CrashPoint]:
    """All points of a history without a crash."""
    jobs = story.begin(queue)
    with _watched(queue) as said:
        story.run_due(queue)
    _must_be_finished(queue, jobs)
    story.check(queue)
    if not said:
        raise BadInput(
            "scenario", "nothing that is run", needed="one that adds a job of a task of this queue"
        )
    both: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [CrashPoint(at, when, what) for at, what in enumerate(said, start=1) for when in both]


@contextmanager
def _history(queue: Q, *, in_file: bool = False) -> Iterator[tuple[Q, Clock]]:
    """A queue on a new store, in memory or in a file, with a clock that tests move."""
    if not isinstance(queue, Queue | AsyncQueue):
        found, needed = type(queue).__name__, "a queue of holdfast.connect or connect_async"
        raise BadInput("what make returns", found, needed=needed)
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        url = f"{folder}/jobs.db" if in_file else "memory://"
        with placed(queue, url, clock):
            yield queue, clock


def _crashed(queue: Q, story: _Story[Q], point: CrashPoint) -> list[int]:
    """Run the scenario up to a crash point, in this process."""

    def crash() -> None:
        raise Crash(str(point))

    jobs = story.begin(queue)
    try:
        with _watched(queue, at=point, crash=crash):
            story.run_due(queue)
    except Crash:
        pass
    return jobs


def _killed(queue: Q, story: _Story[Q], point: CrashPoint) -> list[int]:
    """The same in a child process, killed at the point; this process has not opened the store yet."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process may hold locks; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _play(queue, story.in_child(), point, theirs)
    os.close(theirs)
    with os.fdopen(ours) as told:
        jobs = [int(job_id) for job_id in told]
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL) and status:
        raise AssertionError(f"the process ended with status {status} before it was killed; see its stderr")
    return jobs


def _play(queue: Q, story: _Story[Q], point: CrashPoint, told: int) -> None:
    """Run the child process, which writes the ids of its jobs to a descriptor; it always exits here."""
    try:
        jobs = story.begin(queue)
        with os.fdopen(told, "w") as parent:
            parent.writelines(f"{job_id}\n" for job_id in jobs)
        with _watched(queue, at=point, crash=lambda: os.kill(os.getpid(), signal.SIGKILL)):
            story.run_due(queue)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


@contextmanager
def _watched(
    queue: Queue | AsyncQueue, *, at: CrashPoint | None = None, crash: Callable[[], None] | None = None
) -> Iterator[list[str]]:
    """Record the commands of handlers, and crash at a point; after that no command is sent."""
    connection = queue.connection
    ask, ask_async = connection.ask, connection.ask_async
    said, gone = list[str](), False

    def reach(when: str) -> None:
        nonlocal gone
        if at is not None and crash is not None and (gone or (len(said), when) == (at.number, at.when)):
            gone = True
            crash()

    @contextmanager
    def noted(asked: c.Command | Query) -> Iterator[None]:
        if isinstance(asked, _NOT_THE_HANDLERS):
            yield
            return
        said.append(_described(asked))
        reach("before")
        yield
        reach("after")

    def watched(asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        with noted(asked):
            return ask(asked, wait_s=wait_s)

    async def watched_async(asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        with noted(asked):
            return await ask_async(asked, wait_s=wait_s)

    connection.ask, connection.ask_async = watched, watched_async  # type: ignore[method-assign]
    try:
        yield said
    finally:
        connection.ask, connection.ask_async = ask, ask_async  # type: ignore[method-assign]


def _described(command: c.Command | Query) -> str:
    name = type(command).__name__.lower()
    if isinstance(command, c.Add):
        return f"{name} {', '.join(sorted({new.task for new in command.jobs}))}"
    return f"{name} {command.code}" if isinstance(command, c.Answer) else name


def _must_be_finished(queue: Queue | AsyncQueue, jobs: list[int]) -> None:
    for job in [ask_now(queue, asks.get(job)) for job in jobs] or _live(queue):
        if job.state != State.FINISHED:
            raise AssertionError(
                f"job {job.id} of {job.task} is {job.state}, and must be FINISHED: {_why(job)}"
            )


def _live(queue: Queue | AsyncQueue) -> list[Job]:
    (asked,) = asks.jobs(queue.tenant, after=None, limit=1000, archived=None)
    return ask_now(queue, asked)


def _why(job: Job) -> str:
    return job.reason or (job.errors[-1].error if job.errors else "nobody has run it to its end")
