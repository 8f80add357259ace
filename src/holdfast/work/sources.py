"""Where a worker's jobs come from: the queues that it was given, and one lane of commits for each store."""

import random
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..core.errors import BadInput
from ..core.job import Place
from ..core.worker import Served
from ..engine.committer import Committer
from ..engine.engine import Engine
from ..queue.connect import store_file, store_maker
from ..store.contract import ReadTxn
from .messages import Found


class Source:
    """One queue: its store, whose jobs, and which tasks of it this worker runs."""

    def __init__(self, at: int, name: str, tenant: str, line: Committer) -> None:
        self.at, self.name, self.tenant, self.line = at, name, tenant, line
        self.tasks: tuple[str, ...] = ()
        # When a claim was last answered, and what the store said instead.
        self.claimed_at = 0
        self.error = ""

    def waiting(self, txn: ReadTxn) -> int:
        """How many of its jobs could start now if there were room."""
        found = txn.counts(tenant=self.tenant).items()
        ready = sum(n for key, n in found if key.place == Place.READY and key.task in self.tasks)
        due = txn.moments().scheduled
        # Nobody promotes what comes due while all are busy.
        return ready or (1 if due is not None and due <= txn.now_ms else 0)


class Sources:
    """All queues of a worker."""

    def __init__(self, names: Sequence[str], found: Sequence[Found], store: str | None) -> None:
        self._lines: dict[str, Committer] = {}
        self._found = [(queue.url, queue.tenant) for queue in found]
        self.all = [
            Source(at, name, queue.tenant, self._line(store or queue.url))
            for at, (name, queue) in enumerate(zip(names, found, strict=True))
        ]

    def _line(self, url: str) -> Committer:
        file = store_file(url)
        if file is None:
            needed = "one that other processes can see; holdfast.work(queue) works it in its own process"
            raise BadInput("store", url, needed=needed)
        where = str(Path(file).resolve())
        if where not in self._lines:
            self._lines[where] = Committer(Engine(store_maker(url)(), dice=random.random))
        return self._lines[where]

    @property
    def lines(self) -> list[Committer]:
        """The lanes, one for each store."""
        return list(self._lines.values())

    @property
    def tasks(self) -> list[str]:
        """All tasks that are worked, in order."""
        return [task for source in self.all for task in source.tasks]

    def choose(self, found: Sequence[Found], wanted: tuple[str, ...]) -> None:
        """Settle which tasks are worked; what two queues of one store know is the first one's."""
        globs, taken = wanted or ("*",), set()
        for source, queue in zip(self.all, found, strict=True):
            known = {task: (id(source.line), source.tenant, task) for task in queue.tasks}
            matching = [task for task in known if any(fnmatchcase(task, glob) for glob in globs)]
            source.tasks = tuple(task for task in matching if known[task] not in taken)
            taken |= {known[task] for task in source.tasks}
        if not self.tasks:
            known_here = ", ".join(task for queue in found for task in queue.tasks)
            raise BadInput("tasks", ", ".join(globs), needed=f"some of {known_here or 'no tasks at all'}")

    def moved(self, found: Sequence[Found]) -> list[str]:
        """Which queues have another store or tenant than when they were opened."""
        now = [(queue.url, queue.tenant) for queue in found]
        pairs = zip(self.all, self._found, now, strict=True)
        return [source.name for source, before, after in pairs if before != after]

    def serves(self, line: Committer) -> tuple[Served, ...]:
        """Whose jobs of which tasks are worked on one store."""
        mine = (source for source in self.all if source.line is line and source.tasks)
        return tuple(Served(tenant=source.tenant, tasks=tuple(sorted(source.tasks))) for source in mine)

    def close(self) -> None:
        """Commit what waits, and let go of the stores."""
        for line in self.lines:
            line.close()
