"""What `Queue` and `AsyncQueue` share: the line to the store, opened late and again after a fork."""

import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ..core import commands as c
from ..core import queries as q
from ..core.bounds import DEFAULT_LEASE_MS
from ..core.checks import check_name, check_new
from ..core.defaults import Defaults, TaskKey
from ..core.durations import duration_ms
from ..core.errors import BadInput, Closed, NotFound
from ..core.job import Body
from ..core.schedule import Schedule
from ..engine.connection import open_connection
from ..engine.ticket import Ticket
from ..store.contract import Store
from . import asks
from .addresses import shown_url
from .alarm import Alarm, Bell
from .asks import Ask
from .definition import check_function, check_not_taken, split_options
from .lease import Lease, Renewer
from .options import Duration, JobOptions, merge, task_name, with_options
from .publishing import Publisher
from .task import Task

# How often a process that runs a job itself looks whether it is still wanted.
LOOK_S = 0.5


class Line:
    """One process's connection to a store: the committer and the renewer."""

    def __init__(self, make_store: Callable[[], Store], retention_ms: int | None) -> None:
        self.pid = os.getpid()
        self.committer = open_connection(make_store, retention_ms=retention_ms, dice=random.random)
        self.renewer = Renewer(self.committer)
        self.alarm = Alarm()

    def tell(self, command: c.Command) -> None:
        """Have a command run, whatever comes of it."""
        self.committer.submit(Ticket(command))

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Learn within about half a second that a job which runs here is to stop, until told not to."""
        bell: Bell | None = None

        def look_again() -> None:
            nonlocal bell
            if not lease.is_open:
                return
            bell = self.alarm.after(LOOK_S, look_again)
            job_id = lease.job.id
            lease.seen(self.committer.ask(q.LoadJobs(job_ids=(job_id,))).jobs.get(job_id))

        bell = self.alarm.after(LOOK_S, look_again)

        def off() -> None:
            bell.off()

        return off

    def close(self) -> None:
        """Stop renewing, commit what waits, let go of the store."""
        self.alarm.close()
        self.renewer.close()
        self.committer.close()


class BaseQueue:
    """Opens nothing before the first verb, and notices a fork."""

    def __init__(
        self,
        make_store: Callable[[], Store],
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
        # What these say of their jobs, and who tells the store.
        self.task_defaults: dict[TaskKey, Defaults] = {}
        self.publisher = Publisher()
        self.lease = DEFAULT_LEASE_MS / 1000 if lease is None else asks.lease_ms_of(lease) / 1000
        self._retention_ms = None if retention is None else duration_ms(retention, name="retention")
        self._make_store = make_store
        self._line: Line | None = None
        self._lock = threading.Lock()
        self._closed = False
        _queues.add(self)

    def __repr__(self) -> str:
        tenant = f", tenant {self.tenant!r}" if self.tenant else ""
        count = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks):,} tasks"
        return f"<{type(self).__name__} {shown_url(self.url)!r}{tenant}, {count}>"

    @property
    def line(self) -> Line:
        """The line of this process, opened at the first use."""
        line = self._line
        if line is not None and line.pid == os.getpid():
            return line
        with self._lock:
            if self._closed:
                raise Closed("this queue was closed; open another with holdfast.connect")
            if self._line is None or self._line.pid != os.getpid():
                # After a fork, too: threads and connections stayed behind.
                self._line = Line(self._make_store, self._retention_ms)
            return self._line

    def _shut(self) -> Line | None:
        with self._lock:
            self._closed = True
            line, self._line = self._line, None
        return line if line is not None and line.pid == os.getpid() else None

    def call(self, task: Any, data: Any = None, **options: Any) -> c.NewJob:
        """A prepared call by name, for `add_many` and `then`; with its task's options, if known here."""
        return self._call(task, data, cast(JobOptions, options), complete=False)

    def _call(self, task: Any, data: Any, options: JobOptions, *, complete: bool) -> c.NewJob:
        name = task if type(task) is str and task in self.tasks else task_name(task)
        known = self.tasks.get(name)
        if known is None:
            return asks.call(name, data, options, tenant=self.tenant)
        using = known.using(**options) if options else known
        return using.call_by_name(data, complete=complete)

    def _new(self, task: Any, data: Any, options: JobOptions) -> c.NewJob:
        """A job by its task's name that may be added: its data fits the task, its options were checked."""
        new = self._call(task, data, options, complete=True)
        if options:
            check_new(new)
        if new.then is not None:
            self._check_followers(new)
        return new

    def _complete(self, new: c.NewJob) -> c.NewJob:
        """A prepared call that may be added: its data and that of its followers fit the tasks known here."""
        if known := self.tasks.get(new.task):
            known.signature.decode(new.data)
        self._check_followers(new)
        return new

    def _check_followers(self, new: c.NewJob) -> None:
        """Refuse data of jobs that follow one which the tasks known here would not take."""
        while new.then is not None:
            if known := self.tasks.get(new.then.task):
                known.signature.check_follower(new.then.data, new.into)
            new = new.then

    def _each(self, jobs: Iterable[Any], options: JobOptions) -> Iterator[c.NewJob | Body]:
        """Each as a job; where it is like the one before it, just its data."""
        last = write = None
        for item in jobs:
            if write is not None and type(item) is tuple and len(item) == 2 and item[0] == last:
                yield write(item[1])
            elif isinstance(item, c.NewJob):
                last = write = None
                yield self._complete(with_options(item, options) if options else item)
            elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
                last, write = item[0], self._writer(item[0])
                yield self._new(item[0], item[1], options)
            else:
                raise BadInput("job", item, needed="(task, data), or what a task's `call` returns")

    def _writer(self, task: str) -> Callable[[Any], Body] | None:
        """What writes the data of a further job of a task; None: its domain follows from the data."""
        known = self.tasks.get(task)
        if known is None:
            return asks.write
        return None if known.has_domain_function else known.write_by_name

    def _schedule_ask(
        self, name: str, task: Any, data: Any, when: dict[str, Any], options: JobOptions
    ) -> Ask[Schedule]:
        if isinstance(task, c.NewJob):
            if data is not None or options:
                raise BadInput("task", "a prepared call", needed="without data and options beside it")
            new = task
        elif isinstance(task, Task) and data is None:
            new = task.using(**options).call()
        else:
            new = self.call(task, data, **options)
        return asks.schedule(name, self._complete(new), **when)

    def _made(self, kind: Any, function: Callable[..., Any], said: dict[str, Any]) -> Any:
        """A task of this queue, by what its decorator was told."""
        options, handled = split_options(dict(said))
        name = options.pop("name", None)
        check_function(function, needs_name=name is None)
        jobs = merge({}, cast(JobOptions, options))
        name = function.__name__ if name is None else name
        task = kind(self, function, name, jobs, handled)
        known = self.tasks.get(task.name)
        check_not_taken(task.name, task.definition, known.definition if known else None)
        self.tasks[task.name] = task
        self.task_defaults[self.tenant, task.name] = task.defaults
        return task

    def _known(self, name: str) -> Task[..., Any]:
        task = self.tasks.get(name)
        if task is None:
            raise NotFound("task", f"{name!r} known to this queue")
        return task


_queues: "weakref.WeakSet[BaseQueue]" = weakref.WeakSet()


def _after_fork() -> None:
    """A thread that stayed behind may have held a lock, also while it opened the line."""
    for queue in list(_queues):
        queue._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
