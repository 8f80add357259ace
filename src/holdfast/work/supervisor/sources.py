"""Where a worker's jobs come from: the queues that it was given, and one lane of commits for each store."""

import random
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ...core import queries as q
from ...core.defaults import NO_DEFAULTS, Defaults, TaskKey
from ...core.errors import AppError, BadInput
from ...core.worker import Served
from ...engine.connection import Connection, open_connection
from ...queue.connect import is_shared, shown_url, store_file, store_maker
from ..messages import Found
from ..options import Options
from .lanes import Lane, lanes_of

NO_TASKS = "there are no tasks; import your task modules in the module that the worker is given"
ALL_TENANTS = "*"


class Source:
    """One queue: its store, whose jobs (`tenants` None: anybody's), and which tasks this worker runs."""

    def __init__(self, at: int, name: str, tenants: tuple[str, ...] | None, line: Connection) -> None:
        self.at, self.name, self.tenants, self.line = at, name, tenants, line
        # The tasks, and the lane of each.
        self.lanes: dict[str, Lane] = {}
        # What the tasks say of their jobs.
        self.defaults: dict[str, Defaults] = {}
        # When a claim was last answered, and what the store said instead.
        self.claimed_at = 0
        self.error = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of it that are worked."""
        return tuple(self.lanes)

    async def has_unfinished(self) -> bool:
        """Whether any of its jobs has yet to end."""
        found: bool = await self.line.ask_async(q.HasUnfinished(tenants=self.tenants, tasks=self.tasks))
        return found

    async def count_ready(self) -> int:
        """About how many of its jobs could start now if there were room."""
        found: int = await self.line.ask_async(q.CountReady(tenants=self.tenants, tasks=self.tasks))
        return found


class Sources:
    """All queues of a worker."""

    def __init__(self, options: Options, found: Sequence[Found]) -> None:
        self._options = options
        self._lines: dict[str, Connection] = {}
        self._found = [(queue.url, queue.tenant) for queue in found]
        self.all = [
            Source(
                at,
                name,
                chosen_tenants(options.tenants, queue.tenant),
                self._line(options.store or queue.url),
            )
            for at, (name, queue) in enumerate(zip(options.names, found, strict=True))
        ]
        self.choose(found)

    def _line(self, url: str) -> Connection:
        file = store_file(url)
        if not is_shared(url):
            needed = "one that other processes can see; holdfast.work(queue) works it in its own process"
            raise BadInput("store", shown_url(url), needed=needed)
        where = url if file is None else str(Path(file).resolve())
        if where not in self._lines:
            self._lines[where] = open_connection(
                store_maker(url, create=self._options.create), dice=random.random
            )
        return self._lines[where]

    @property
    def lines(self) -> list[Connection]:
        """The lanes, one for each store."""
        return list(self._lines.values())

    @property
    def stores(self) -> list[str]:
        """The addresses of the stores, without their passwords; of a file its whole path."""
        return [shown_url(where) for where in self._lines]

    @property
    def tasks(self) -> list[str]:
        """All tasks that are worked, in order."""
        return [task for source in self.all for task in source.tasks]

    def choose(self, found: Sequence[Found]) -> None:
        """Settle which tasks are worked; what two queues of one store know is the first one's."""
        options = self._options
        globs, taken = options.tasks or ("*",), set()
        for source, queue in zip(self.all, found, strict=True):
            known = {task: (id(source.line), source.tenants, task) for task in queue.tasks}
            matching = [task for task in known if any(fnmatchcase(task, glob) for glob in globs)]
            chosen = [task for task in matching if known[task] not in taken]
            sizes = {"threads": options.threads, "concurrency": options.concurrency}
            source.lanes = lanes_of(source.at, queue, chosen, **sizes)
            source.defaults = {task: queue.defaults.get(task, NO_DEFAULTS) for task in chosen}
            taken |= {known[task] for task in chosen}
        if not self.tasks:
            known_here = ", ".join(task for queue in found for task in queue.tasks)
            if not known_here:
                raise AppError(" ".join(options.names), NO_TASKS)
            raise BadInput("tasks", ", ".join(globs), needed=f"some of {known_here}")

    def moved(self, found: Sequence[Found]) -> list[str]:
        """Which queues have another store or tenant than when they were opened."""
        now = [(queue.url, queue.tenant) for queue in found]
        pairs = zip(self.all, self._found, now, strict=True)
        return [source.name for source, before, after in pairs if before != after]

    def serves(self, line: Connection) -> tuple[Served, ...]:
        """Whose jobs of which tasks are worked on one store."""
        mine = (source for source in self.all if source.line is line and source.tasks)
        return tuple(
            Served(tenant=tenant, tasks=tuple(sorted(source.tasks)))
            for source in mine
            for tenant in ((None,) if source.tenants is None else source.tenants)
        )

    def defaults(self, line: Connection) -> dict[TaskKey, Defaults]:
        """What the tasks that are worked on one store say of their jobs."""
        return {
            (tenant, task): said
            for source in self.all
            if source.line is line
            for tenant in ((None,) if source.tenants is None else source.tenants)
            for task, said in source.defaults.items()
        }

    def close(self) -> None:
        """Commit what waits, and let go of the stores."""
        for line in self.lines:
            line.close()


def chosen_tenants(asked: tuple[str, ...], own: str) -> tuple[str, ...] | None:
    """Whose jobs are claimed: the queue's own tenant's unless others are named; None: anybody's."""
    return None if ALL_TENANTS in asked else tuple(dict.fromkeys(asked)) or (own,)
