"""Queues in memory for tests, with a clock that tests move, and the jobs that were added."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ..core import queries as q
from ..core.bounds import PAGE_JOBS
from ..core.errors import BadInput
from ..core.job import STORED_ATTEMPTS, STORED_LOSSES, STORED_PRIORITY, Job
from ..engine.engine import Engine
from ..queue import asks
from ..queue.base import BaseQueue
from ..queue.connect import shown_url
from ..queue.encoding import decode, encode
from ..queue.options import Moment, TaskRef, task_name
from ..queue.publishing import Publisher
from ..queue.queue import Queue
from .clock import Clock
from .transactions import maker_of

T = TypeVar("T")
START = "2026-01-01T12:00:00Z"
# The clocks of test queues.
_clocks: WeakKeyDictionary[BaseQueue, Clock] = WeakKeyDictionary()


class ClockedQueue(Queue):
    """A queue in memory, with a `clock` that tests move."""

    clock: Clock


def queue(*, start: Moment = START, **options: Any) -> ClockedQueue:
    """Return a new queue in memory, with options of `holdfast.connect`. A `with` block closes it.

    Backoffs have no jitter: a second after the first error, then two, and so on.
    """
    clock = Clock(start)
    made = ClockedQueue(maker_of("memory://", clock), url="memory://", **options)
    made.clock = _clocks[made] = clock
    _steady(made)
    return made


@contextmanager
def in_memory(queue: BaseQueue, *, start: Moment = START) -> Iterator[Clock]:
    """Move a queue, such as that of your application, to memory until the block ends; yields its clock.

    Its tasks stay, with the schedules and limits that your modules have declared, and its own store is not
    changed. `connection=` takes connections to any database: the jobs come with the commit.
    """
    if not isinstance(queue, BaseQueue):
        raise BadInput("queue", type(queue).__name__, needed="one of holdfast.connect or connect_async")
    clock = Clock(start)
    with placed(queue, "memory://", clock):
        _steady(queue)
        yield clock


@contextmanager
def placed(queue: BaseQueue, url: str, clock: Clock) -> Iterator[None]:
    """Have a queue use another store, with a clock that tests move, until the block ends."""
    kept = queue._make_store, queue._session, queue._closed, queue.publisher
    kept_clock = _clocks.get(queue)
    make_store = maker_of(url, clock)
    queue._make_store, queue._session, queue._closed, queue.publisher = make_store, None, False, Publisher()
    _clocks[queue] = clock
    try:
        yield
    finally:
        del _clocks[queue]
        if kept_clock is not None:
            _clocks[queue] = kept_clock
        session = queue._detach_session()
        queue._make_store, queue._session, queue._closed, queue.publisher = kept
        if session is not None:
            session.close()


def clock_of(queue: BaseQueue) -> Clock:
    """The clock of a test queue."""
    clock = _clocks.get(queue)
    if clock is None:
        needed = "one whose clock moves: testing.queue(), or testing.in_memory(queue)"
        raise BadInput("queue", shown_url(queue.url), needed=needed)
    return clock


def _steady(queue: BaseQueue) -> None:
    engine = queue.connection.engine
    assert isinstance(engine, Engine)
    engine._rng = lambda: 0.5


# How many jobs an error lists.
SHOWN = 20


class Added(NamedTuple):
    """A job as it was added; `options` are those without their default, times in seconds."""

    task: str
    data: Any
    options: dict[str, Any]
    id: int


def added(queue: BaseQueue, task: TaskRef | None = None) -> list[Added]:
    """All jobs of a queue, or of one of its tasks, including ended ones, in the order of adding.

    A function for queues of both kinds: with one of `connect_async` it blocks the event loop meanwhile.
    """
    if not isinstance(queue, BaseQueue):
        raise BadInput("queue", type(queue).__name__, needed="one of holdfast.connect or connect_async")
    name = None if task is None else task_name(task)
    jobs = [job for archived in (False, True) for job in _all(queue, name, archived)]
    return [
        Added(job.task, ask_now(queue, asks.data(job)), _options(job), job.id)
        for job in sorted(jobs, key=lambda job: job.id)
    ]


def assert_added(queue: BaseQueue, task: TaskRef, /, **data: Any) -> Added:
    """Return the first job of a task whose data has these values, or raise an error that lists the jobs."""
    name = task_name(task)
    wanted = {key: decode(encode(key, value)) for key, value in data.items()}
    there = added(queue)
    for one in there:
        has = one.data if isinstance(one.data, dict) else {}
        if one.task == name and all(key in has and has[key] == value for key, value in wanted.items()):
            return one
    told = "".join(f"\n  {one.task} {one.data!r} {one.options or ''}".rstrip() for one in there[:SHOWN])
    more = f"\n  … and {len(there) - SHOWN:,} more" if len(there) > SHOWN else ""
    asked = f"{name} with {wanted!r}" if wanted else name
    raise AssertionError(f"no job was added of {asked}; there {'are:' if there else 'are none'}{told}{more}")


def ask_now(queue: BaseQueue, request: asks.QueueRequest[T]) -> T:
    """The reply to a request, also of a queue for asyncio."""
    asked, ask = request.asked, queue.connection.ask
    return request.read(q.ask_all(ask, asked) if isinstance(asked, q.PagedQuery) else ask(asked))


def _all(queue: BaseQueue, task: str | None, archived: bool) -> Iterator[Job]:
    after: Job | None = None
    while True:
        (asked,) = asks.jobs(queue.tenant, task=task, archived=archived, after=after, limit=PAGE_JOBS)
        page = ask_now(queue, asked)
        yield from page
        if not page:
            break
        after = page[-1]


def _options(job: Job) -> dict[str, Any]:
    found = {name: read(job) for name, read in _READERS.items()}
    return {name: value for name, value in found.items() if value is not None}


def _unless(value: Any, usual: Any) -> Any:
    return None if value == usual else value


def _seconds(ms: int) -> float | None:
    return ms / 1000 if ms > 0 else None


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "backslashreplace")


# An option as `add` takes it, from the record; None: its default.
_READERS: dict[str, Callable[[Job], Any]] = {
    "priority": lambda job: _unless(job.priority, STORED_PRIORITY),
    # The first due time: a retry changes `run_at`, and keeps the first one in `scheduled_at`.
    "delay": lambda job: _seconds((job.scheduled_at or job.run_at) - job.created_at),
    "expires": lambda job: _seconds(job.expires_at - job.created_at),
    "attempts": lambda job: _unless(job.max_attempts, STORED_ATTEMPTS),
    "losses": lambda job: _unless(job.max_losses, STORED_LOSSES),
    "timeout": lambda job: _seconds(job.timeout_ms),
    "unique": lambda job: _text(job.unique),
    "domain": lambda job: _text(job.domain),
    "repeat": lambda job: job.repeat or None,
    "parent": lambda job: job.parent_id or None,
    "schedule": lambda job: job.schedule or None,
}
