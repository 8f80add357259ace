"""What `Queue` and `AsyncQueue` share: tasks, and a connection opened on first use and after a fork."""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from ..core import commands as c
from ..core.bounds import DEFAULT_LEASE_MS
from ..core.checks import check_name, check_new
from ..core.defaults import Defaults, TaskKey
from ..core.errors import BadInput, Closed, NotFound
from ..core.family import FAILED_JOB
from ..core.job import Body
from ..core.schedule import Schedule
from ..core.units import duration_ms
from ..engine.connection import Connection
from ..engine.makers import ConnectionMaker, open_connection
from ..engine.ticket import Ticket
from ..store.contract import AnyStore
from . import asks
from .addresses import shown_url
from .asks import QueueRequest
from .definition import check_function, check_not_taken, split_options
from .encoding import add_codec, decode
from .lease import Lease, Renewer, StopPoller
from .options import Duration, JobOptions, TaskRef, check_by_name, merge, task_name, with_options
from .publishing import Publisher, declared_name
from .task import Task
from .timers import TimerThread

if TYPE_CHECKING:
    from .hooks import Hooks
    from .options import HasCall, PreparedCall

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
# Opens a store, or a connection to a server.
Maker = ConnectionMaker | Callable[[], AnyStore]


def _random() -> float:
    from random import random

    return random()


class QueueSession:
    """A queue's open resources in one process: the connection, the lease renewer and the timer thread."""

    def __init__(self, make_store: Maker, retention_ms: int | None) -> None:
        self.connection = open_connection(make_store, retention_ms=retention_ms, rng=_random)
        self.renewer = Renewer(self.connection)
        self._stop_poller = StopPoller(self.connection)
        self.timers = TimerThread()

    def send(self, command: c.Command) -> None:
        """Submit a command without waiting for its reply; errors are ignored."""
        self.connection.submit(Ticket(command))

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Poll twice a second whether a running job should stop; returns a function that ends that."""
        return self._stop_poller.follow(lease)

    def close(self) -> None:
        """Stop renewing leases, commit what is pending, and close the store."""
        self.timers.close()
        self._stop_poller.close()
        self.renewer.close()
        self.connection.close()


class BaseQueue:
    """Opens the store on first use, and again after a fork."""

    def __init__(
        self,
        make_store: Maker,
        *,
        url: str,
        tenant: str = "",
        retention: Duration | None = None,
        lease: Duration | None = None,
    ) -> None:
        check_name("tenant", tenant, empty=True)
        self.url = url
        self.tenant = tenant
        self.tasks: dict[str, Task[..., Any]] = {}
        # Made when the first hook is declared.
        self.hooks: Hooks | None = None
        # The defaults of these tasks; the schedules and limits that modules have declared; and what writes
        # both to the store.
        self.task_defaults: dict[TaskKey, Defaults] = {}
        self.declared: dict[tuple[str, str, str | bytes], c.SetSchedule | c.SetLimit] = {}
        self.publisher = Publisher()
        self.lease = DEFAULT_LEASE_MS / 1000 if lease is None else asks.lease_ms_of(lease) / 1000
        self._retention_ms = None if retention is None else duration_ms(retention, name="retention")
        self._make_store = make_store
        self._session: QueueSession | None = None
        self._lock = threading.Lock()
        self._closed = False
        _queues.add(self)

    def __repr__(self) -> str:
        tenant = f", tenant {self.tenant!r}" if self.tenant else ""
        count = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks):,} tasks"
        return f"<{type(self).__name__} {shown_url(self.url)!r}{tenant}, {count}>"

    @property
    def session(self) -> QueueSession:
        """The session of this process, opened on first use."""
        session = self._session
        if session is not None:
            return session
        with self._lock:
            if self._closed:
                raise Closed
            if self._session is None:
                self._session = QueueSession(self._make_store, self._retention_ms)
            return self._session

    @property
    def connection(self) -> Connection:
        """The connection of this process to the store, opened on first use."""
        return self.session.connection

    def _detach_session(self) -> QueueSession | None:
        """Close the queue; returns its session, if this process has opened one, for the caller to close."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        return session

    # Hooks

    def on_start(self, function: F) -> F:
        """Call a function once in each process that runs jobs, before its first job.

        A generator goes on at the end of the process. Handlers get what it returns or yields in parameters
        that are annotated with its type, if they are declared after it.
        """
        self._made_hooks().declare(function, starts=True)
        return function

    def on_stop(self, function: F) -> F:
        """Call a function at the ordinary end of each process that runs jobs."""
        self._made_hooks().declare(function, starts=False)
        return function

    def around_run(self, hook: F) -> F:
        """Run jobs inside a hook, which gets the job: a generator with one `yield`, or a function that
        returns a context manager. `yield` returns the handler's result, or raises its exception.
        """
        self._made_hooks().surround("run", hook)
        return hook

    def around_add(self, hook: F) -> F:
        """Add jobs inside a hook, as with `around_run`; `yield` returns the id of the job."""
        self._made_hooks().surround("add", hook)
        return hook

    def codec(self, kind: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
        """Let arguments and results be of a class: `encode` makes JSON of a value, `decode` the reverse.

        It applies to all queues of the process. Tasks whose annotations use the class are declared after it.
        """
        add_codec(kind, encode, decode)

    def _made_hooks(self) -> "Hooks":
        if self.hooks is None:
            from .hooks import Hooks

            self.hooks = Hooks()
        return self.hooks

    @overload
    def call(
        self, task: "HasCall[..., T]", data: Any = None, **options: Unpack[JobOptions]
    ) -> "PreparedCall[T]": ...

    @overload
    def call(self, task: TaskRef, data: Any = None, **options: Unpack[JobOptions]) -> c.NewJob: ...

    def call(self, task: Any, data: Any = None, **options: Unpack[JobOptions]) -> c.NewJob:
        """A prepared call by name, for `add_many` and `then`; with its task's options, if known here."""
        return self._call(task, data, options, complete=False)

    def _call(self, task: Any, data: Any, options: JobOptions, *, complete: bool) -> c.NewJob:
        name = task if type(task) is str and task in self.tasks else task_name(task)
        known = self.tasks.get(name)
        if options:
            check_by_name(name, options, known.signature.names if known else ())
        if known is None:
            return asks.call(name, data, options, tenant=self.tenant)
        using = known.using(**options) if options else known
        return using.call_by_name(data, complete=complete)

    def _new(self, task: Any, data: Any, options: JobOptions) -> c.NewJob:
        """A job by its task's name, with its data and options checked."""
        new = self._call(task, data, options, complete=True)
        if options:
            check_new(new)
        if new.then is not None or new.on_failure is not None:
            self._check_followers(new)
        return new

    def _complete(self, new: c.NewJob) -> c.NewJob:
        """A prepared call, with its data and that of its followers checked against the tasks known here."""
        if known := self.tasks.get(new.task):
            known.signature.decode(new.data)
        self._check_followers(new)
        return new

    def _check_followers(self, new: c.NewJob) -> None:
        """Raise if the data of a follower does not fit its task, where that task is known here."""
        for follower, into in ((new.then, new.into), (new.on_failure, FAILED_JOB)):
            if follower is None:
                continue
            if known := self.tasks.get(follower.task):
                known.signature.check_follower(follower.data, into)
            self._check_followers(follower)

    def _follower(self, call: Any) -> c.NewJob:
        """The job that waits for a group, with its data checked if its task is known here."""
        if isinstance(call, c.NewJob):
            return self._complete(call)
        task, data = call if isinstance(call, tuple) and len(call) == 2 else (call, None)
        return self._call(task, data, {}, complete=True)

    def _each(self, jobs: Iterable[Any], options: JobOptions) -> Iterator[c.NewJob | Body]:
        """Yield each item as a job, or as its data alone where all else equals the job before."""
        last = write = None
        for item in jobs:
            if write is not None and type(item) is tuple and len(item) == 2 and item[0] == last:
                yield write(item[1])
            elif isinstance(item, c.NewJob):
                last = write = None
                yield self._complete(with_options(item, options) if options else item)
            elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str | Task):
                last, write = item[0], self._writer(task_name(item[0]))
                yield self._new(item[0], item[1], options)
            else:
                raise BadInput("job", item, needed="(task, data), or what a task's `call` returns")

    def _writer(self, task: str) -> Callable[[Any], Body] | None:
        """The encoder for data of a task's jobs; None if their domain is computed from the data."""
        known = self.tasks.get(task)
        if known is None:
            return asks.write
        return None if known.has_domain_function else known.write_by_name

    def _declare(self, ask: QueueRequest[Any]) -> Any:
        """Keep a schedule or limit, which is written where jobs are claimed, and by `sync`."""
        command = ask.asked
        assert isinstance(command, c.SetSchedule | c.SetLimit)
        self.declared[declared_name(command)] = command
        return command.schedule if isinstance(command, c.SetSchedule) else None

    def _schedule_ask(
        self, name: str, task: Any, data: Any, when: dict[str, Any], options: JobOptions
    ) -> QueueRequest[Schedule]:
        if isinstance(task, c.NewJob):
            if data is not None or options:
                raise BadInput("task", "a prepared call", needed="without data and options beside it")
            new = task
        elif isinstance(task, Task) and data is None:
            new = task.using(**options).call()
        else:
            new = self.call(task, data, **options)
        return asks.schedule(name, self._complete(new), **when)

    def _make_task(self, kind: Any, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Declare a function as a task of this queue, from the arguments of its decorator."""
        options, handled = split_options(dict(arguments))
        when = {word: options.pop(word, None) for word in ("cron", "every", "tz")}
        name = options.pop("name", None)
        check_function(function, needs_name=name is None)
        jobs = merge({}, cast(JobOptions, options))
        name = function.__name__ if name is None else name
        task = kind(self, function, name, jobs, handled)
        known = self.tasks.get(task.name)
        check_not_taken(task.name, task.definition, known.definition if known else None)
        if any(value is not None for value in when.values()):
            task.signature.check_optional("a schedule")
            when |= {"jitter": None}
            self._declare(self._schedule_ask(task.name, task, None, when, JobOptions()))
        self.tasks[task.name] = task
        self.task_defaults[self.tenant, task.name] = task.defaults
        return task

    def _read_result(self, task: str, body: Body | None) -> Any:
        known = self.tasks.get(task)
        return decode(body) if known is None else known.read_result(body)

    def _find_task(self, name: str) -> Task[..., Any]:
        task = self.tasks.get(name)
        if task is None:
            raise NotFound("task", f"{name!r} known to this queue")
        return task


def is_importing() -> bool:
    """Whether a module is being imported by this thread: then nothing is written."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_queues: "weakref.WeakSet[BaseQueue]" = weakref.WeakSet()
# The sessions of parent processes: to delete one could end what the parent uses.
_left_behind: list[QueueSession] = []


def _after_fork() -> None:
    """The child process has neither the threads nor the connections, and a lock may be held for ever."""
    for queue in list(_queues):
        queue._lock = threading.Lock()
        if queue.hooks is not None:
            queue.hooks.forget()
        if queue._session is not None:
            _left_behind.append(queue._session)
            queue._session = None


os.register_at_fork(after_in_child=_after_fork)
