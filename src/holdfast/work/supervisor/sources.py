"""The queues of a worker, and one connection for each store."""

import random
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...core import commands as c
from ...core import queries as q
from ...core.defaults import NO_DEFAULTS, Defaults, TaskKey
from ...core.errors import AppError, BadInput
from ...core.worker import Served
from ...engine.connection import Connection
from ...engine.makers import open_connection
from ...queue.connect import is_shared, journaled, shown_url, store_file, store_maker
from ...queue.publishing import Declared, declared_name
from ..capacity import ExecutionMode, choose_modes, handlers_mode
from ..messages import QueueInfo
from ..options import WorkerOptions

NO_TASKS = "there are no tasks; import your task modules in the module that the worker is given"
ALL_TENANTS = "*"


class JobSource:
    """One queue of a worker: its store, its tenants (None: all), and the tasks that this worker runs."""

    def __init__(
        self, queue_index: int, name: str, tenants: tuple[str, ...] | None, connection: Connection
    ) -> None:
        self.queue_index, self.name, self.tenants, self.connection = queue_index, name, tenants, connection
        # The tasks, and the execution mode of each; or that of all tasks with a handler in the store.
        self.modes: dict[str, ExecutionMode] = {}
        self.handlers: ExecutionMode | None = None
        # The defaults of the tasks.
        self.defaults: dict[str, Defaults] = {}
        self.declared: tuple[c.SetSchedule | c.SetLimit, ...] = ()
        # When a claim last succeeded, and the error of the last claim that failed.
        self.claimed_at = 0
        self.error = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of this queue that the worker runs, without those that have a handler in the store."""
        return tuple(self.modes)

    @property
    def has_tasks(self) -> bool:
        """Whether the worker may run any of its jobs."""
        return bool(self.modes or self.handlers)

    def execution_modes(self) -> set[ExecutionMode]:
        """The execution modes, each of which has its own claim loop."""
        return set(self.modes.values()) | ({self.handlers} if self.handlers else set())

    def tasks_of(self, mode: ExecutionMode) -> tuple[str, ...] | None:
        """The tasks of an execution mode; None: all that have a handler in the store."""
        if mode == self.handlers:
            return None
        return tuple(task for task, its in self.modes.items() if its == mode)

    def _scope(self) -> dict[str, Any]:
        is_handled = self.handlers is not None
        return {"tenants": self.tenants, "tasks": None if is_handled else self.tasks, "handled": is_handled}

    async def has_unfinished(self) -> bool:
        """Whether any of its jobs has not ended."""
        found: bool = await self.connection.ask_async(q.HasUnfinished(**self._scope()))
        return found

    async def count_ready(self) -> int:
        """About how many of its jobs could start now."""
        found: int = await self.connection.ask_async(q.CountReady(**self._scope()))
        return found


class JobSources:
    """All queues of a worker, and the connections to their stores."""

    def __init__(self, options: WorkerOptions, queues: Sequence[QueueInfo]) -> None:
        self._options = options
        self._connections: dict[str, Connection] = {}
        self._opened = [(queue.url, queue.tenant) for queue in queues]
        self.all = [
            JobSource(
                queue_index,
                name,
                chosen_tenants(options.tenants, ALL_TENANTS if queue.handlers else queue.tenant),
                self._open(queue.url if queue.handlers or not options.stores else options.stores[0]),
            )
            for queue_index, (name, queue) in enumerate(zip(options.executor_names, queues, strict=True))
        ]
        self.choose(queues)

    def _open(self, url: str) -> Connection:
        file = store_file(url)
        if not is_shared(url):
            needed = "one that other processes can see; holdfast.work(queue) works it in its own process"
            raise BadInput("store", shown_url(url), needed=needed)
        where = url if file is None else str(Path(file).resolve())
        if where not in self._connections:
            maker = journaled(store_maker(url, create=self._options.create), self._journal())
            self._connections[where] = open_connection(maker, rng=random.random)
        return self._connections[where]

    def _journal(self) -> str | None:
        if self._options.journal and self._connections:
            raise BadInput(
                "journal",
                self._options.journal,
                needed="absent: it belongs to one store, and there are several",
            )
        return self._options.journal or None

    @property
    def connections(self) -> list[Connection]:
        """The connections, one for each store."""
        return list(self._connections.values())

    def of(self, connection: Connection) -> list[JobSource]:
        """The queues on one store."""
        return [source for source in self.all if source.connection is connection]

    @property
    def stores(self) -> list[str]:
        """The addresses of the stores, without their passwords; of a file its whole path."""
        return [shown_url(where) for where in self._connections]

    @property
    def tasks(self) -> list[str]:
        """All tasks that the worker runs, in order."""
        return [task for source in self.all for task in source.tasks]

    def choose(self, queues: Sequence[QueueInfo]) -> None:
        """Choose the tasks to run. A task that two queues of one store have belongs to the first."""
        options = self._options
        globs, taken = options.tasks or ("*",), set()
        for source, queue in zip(self.all, queues, strict=True):
            if queue.handlers:
                source.handlers = handlers_mode(source.queue_index, options.handler_slots)
            known = {task: (id(source.connection), source.tenants, task) for task in queue.tasks}
            matching = [task for task in known if any(fnmatchcase(task, glob) for glob in globs)]
            chosen = [task for task in matching if known[task] not in taken]
            sizes = {"threads": options.threads, "concurrency": options.concurrency}
            source.modes = choose_modes(source.queue_index, queue, chosen, **sizes)
            source.defaults = {task: queue.defaults.get(task, NO_DEFAULTS) for task in chosen}
            source.declared = queue.declared
            taken |= {known[task] for task in chosen}
        if not any(source.has_tasks for source in self.all):
            known_here = ", ".join(task for queue in queues for task in queue.tasks)
            if not known_here:
                raise AppError(" ".join(options.names), NO_TASKS)
            raise BadInput("tasks", ", ".join(globs), needed=f"some of {known_here}")

    def moved(self, queues: Sequence[QueueInfo]) -> list[str]:
        """The names of queues whose store or tenant has changed since they were opened."""
        now = [(queue.url, queue.tenant) for queue in queues]
        pairs = zip(self.all, self._opened, now, strict=True)
        return [source.name for source, before, after in pairs if before != after]

    def serves(self, connection: Connection) -> tuple[Served, ...]:
        """The tenants and tasks that the worker runs from one store."""
        mine = (source for source in self.of(connection) if source.has_tasks)
        return tuple(
            Served(tenant=tenant, tasks=tuple(sorted(source.tasks)), handlers=source.handlers is not None)
            for source in mine
            for tenant in ((None,) if source.tenants is None else source.tenants)
        )

    def defaults(self, connection: Connection) -> dict[TaskKey, Defaults]:
        """The defaults of the tasks that the worker runs from one store."""
        return {
            (tenant, task): defaults
            for source in self.of(connection)
            for tenant in ((None,) if source.tenants is None else source.tenants)
            for task, defaults in source.defaults.items()
        }

    def declared(self, connection: Connection) -> Declared:
        """The schedules and limits that the queues of one store have declared."""
        commands = [one for source in self.of(connection) for one in source.declared]
        return {declared_name(one): one for one in commands}

    def close(self) -> None:
        """Commit what is pending, and close the stores."""
        for connection in self.connections:
            connection.close()


def chosen_tenants(asked: tuple[str, ...], own: str) -> tuple[str, ...] | None:
    """The tenants to claim for: those that were named, else the queue's own; None: all."""
    chosen = tuple(dict.fromkeys(asked)) or (own,)
    return None if ALL_TENANTS in chosen else chosen
