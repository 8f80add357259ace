"""Crash points: kills a handler before and after each of its commands, and runs it again.

    scenario ──▶ run ──▶ ① add ② ──▶ ③ progress ④ ──▶ ⑤ answer ⑥
                          │                              │
                          └── before: nothing was sent   └── after: committed, without a reply

Each history starts with a new store and has one crash. Then the lease expires, the job is run again, and must
end FINISHED; `check` tests what else must be true. A crash is an exception that no handler catches, after
which no command is sent; or, with `kill=True`, a separate process that is killed with SIGKILL.
"""

import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from ..core import commands as c
from ..core.errors import BadInput
from ..core.job import Job, State
from ..core.queries import Query
from ..queue.queue import Queue
from ..queue.task import Handle
from .clock import Clock
from .due import run_due
from .places import placed

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
    make: Callable[[], Queue],
    scenario: Callable[[Queue], Any],
    check: Callable[[Queue], object] | None = None,
    *,
    kill: bool = False,
) -> list[CrashPoint]:
    """Run a scenario once for each crash point; returns the points, or raises an error with the failed one.

    `make` returns the queue with your tasks, a new one or always the same: it gets a new store each time.
    `scenario` resets external state and adds jobs; it may return their handles, otherwise all jobs must end
    FINISHED. `check` is called at the end of each history: the external effects of your handlers must be
    right, although some of them happened twice. Schedules are paused.
    """
    with _history(make()) as (queue, clock):
        points = _points(queue, scenario, check)
    for point in points:
        with _history(make(), in_file=kill) as (queue, clock):
            try:
                jobs = _killed(queue, scenario, point) if kill else _crashed(queue, scenario, point)
                clock.advance(queue.lease)
                run_due(queue, advance=WITHIN)
                _must_be_finished(queue, jobs)
                if check is not None:
                    check(queue)
            except Exception as error:
                error.add_note(f"the handler had been killed {point}")
                raise
    return points


def _points(
    queue: Queue, scenario: Callable[[Queue], Any], check: Callable[[Queue], object] | None
) -> list[CrashPoint]:
    """All points of a history without a crash."""
    jobs = _begin(queue, scenario)
    with _watched(queue) as said:
        run_due(queue, advance=WITHIN)
    _must_be_finished(queue, jobs)
    if check is not None:
        check(queue)
    if not said:
        raise BadInput(
            "scenario", "nothing that is run", needed="one that adds a job of a task of this queue"
        )
    both: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [CrashPoint(at, when, what) for at, what in enumerate(said, start=1) for when in both]


@contextmanager
def _history(queue: Queue, *, in_file: bool = False) -> Iterator[tuple[Queue, Clock]]:
    """A queue on a new store, in memory or in a file, with a clock that tests move."""
    if not isinstance(queue, Queue):
        raise BadInput(
            "make", type(queue).__name__, needed="a function that returns a queue of holdfast.connect"
        )
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        url = f"{folder}/jobs.db" if in_file else "memory://"
        with placed(queue, url, clock):
            yield queue, clock


def _crashed(queue: Queue, scenario: Callable[[Queue], Any], point: CrashPoint) -> list[int]:
    """Run the scenario up to a crash point, in this process."""

    def crash() -> None:
        raise Crash(str(point))

    jobs = _begin(queue, scenario)
    try:
        with _watched(queue, at=point, crash=crash):
            run_due(queue, advance=WITHIN)
    except Crash:
        pass
    return jobs


def _killed(queue: Queue, scenario: Callable[[Queue], Any], point: CrashPoint) -> list[int]:
    """The same in a child process, killed at the point; this process has not opened the store yet."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process may hold locks; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _play(queue, scenario, point, theirs)
    os.close(theirs)
    with os.fdopen(ours) as told:
        jobs = [int(job_id) for job_id in told]
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL) and status:
        raise AssertionError(f"the process ended with status {status} before it was killed; see its stderr")
    return jobs


def _play(queue: Queue, scenario: Callable[[Queue], Any], point: CrashPoint, told: int) -> None:
    """Run the child process, which writes the ids of its jobs to a descriptor; it always exits here."""
    try:
        jobs = _begin(queue, scenario)
        with os.fdopen(told, "w") as parent:
            parent.writelines(f"{job_id}\n" for job_id in jobs)
        with _watched(queue, at=point, crash=lambda: os.kill(os.getpid(), signal.SIGKILL)):
            run_due(queue, advance=WITHIN)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


@contextmanager
def _watched(
    queue: Queue, *, at: CrashPoint | None = None, crash: Callable[[], None] | None = None
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


def _begin(queue: Queue, scenario: Callable[[Queue], Any]) -> list[int]:
    """Run a scenario; returns the jobs that it returned; none: all jobs."""
    # Before the commands of handlers are watched.
    queue.sync()
    # What they add has nothing to do with the scenario, and would have no end.
    for schedule in queue.schedules():
        queue.pause_schedule(schedule.name)
    returned = scenario(queue)
    if isinstance(returned, Handle):
        return [returned.id]
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes):
        return [one.id for one in returned if isinstance(one, Handle)]
    return []


def _must_be_finished(queue: Queue, jobs: list[int]) -> None:
    records = [queue.get(job) for job in jobs] or _live(queue)
    for job in records:
        if job.state != State.FINISHED:
            raise AssertionError(
                f"job {job.id} of {job.task} is {job.state}, and must be FINISHED: {_why(job)}"
            )


def _live(queue: Queue) -> list[Job]:
    return queue.jobs(limit=1000)


def _why(job: Job) -> str:
    return job.reason or (job.errors[-1].error if job.errors else "nobody has run it to its end")
