"""Jobs of another system become jobs of a queue, each once.

    read one ──▶ find its task ──▶ its call ──▶ added under a key made of its id ──▶ removed there
                    └──────────────┴─▶ left there, with a reason

A process that ends between the last two has added it, and the next import finds the key and only removes it.
If it cannot be removed, a worker of the other system has it, and the job that was added is cancelled.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ...core.commands import NewJob
from ...core.errors import BadInput, HoldfastError
from ...queue.base import BaseQueue
from ...queue.options import JobOptions
from ...queue.queue import Queue
from ...queue.task import Task
from ...store.common.clock import system_clock

# How many jobs are added in one transaction.
BATCH_JOBS = 1_000
# How long a job that ended is remembered: an import may be repeated until then.
KEY_S = 30 * 86_400


class ForeignJob(NamedTuple):
    """A job of another system; times are seconds since 1970."""

    id: str
    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Removes it there; returns whether it was still there.
    remove: Callable[[], bool]
    run_at: float | None = None
    expires_at: float | None = None
    # Why it cannot be taken over; "": it can.
    reason: str = ""


class Imported:
    """What became of the jobs: how many of each task were taken over, and why the others were not."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self.scheduled: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()

    @property
    def count(self) -> int:
        """How many were taken over."""
        return self.waiting.total() + self.scheduled.total()


class Importer:
    """Takes jobs over into a queue."""

    def __init__(self, queue: BaseQueue, system: str, names: Mapping[str, str]) -> None:
        self._queue, self._system = queue, system
        self._names = {old: self._known(new) for old, new in names.items()}
        for task in queue.tasks.values():
            function = task.function
            self._names.setdefault(f"{function.__module__}.{function.__qualname__}", task)

    def _known(self, name: str) -> Task[..., Any]:
        if name not in self._queue.tasks:
            raise BadInput("task", name, needed=f"one of {', '.join(sorted(self._queue.tasks)) or 'none'}")
        return self._queue.tasks[name]

    def take(self, found: Iterable[ForeignJob], *, dry_run: bool, keep: bool) -> Imported:
        """Take jobs over; with `dry_run` only look, with `keep` leave them there as well."""
        imported = Imported()
        with Queue(self._queue._make_store, url=self._queue.url, tenant=self._queue.tenant) as queue:
            everything = self._calls(found, imported)
            while batch := [*islice(everything, BATCH_JOBS)]:
                handles = [None] * len(batch) if dry_run else queue.add_many(call for _, call in batch)
                for (one, _), handle in zip(batch, handles, strict=True):
                    if handle is None or keep or one.remove():
                        self._count(imported, one)
                    else:
                        handle.cancel()
                        self._count(imported, one, "a worker of the other system has it now")
        return imported

    def _calls(self, found: Iterable[ForeignJob], imported: Imported) -> Iterator[tuple[ForeignJob, NewJob]]:
        for one in found:
            try:
                call = self._call(one)
            except HoldfastError as error:
                self._count(imported, one, str(error))
            else:
                yield one, call

    def _call(self, one: ForeignJob) -> NewJob:
        if one.reason:
            raise HoldfastError(one.reason)
        task = self._find(one.task)
        if one.expires_at is not None and one.expires_at <= system_clock() / 1000:
            raise HoldfastError("it has expired")
        options: JobOptions = {"unique": f"{self._system} {one.id}", "unique_for": KEY_S}
        if one.run_at is not None:
            options["run_at"] = one.run_at
        if one.expires_at is not None:
            options["expires"] = one.expires_at - system_clock() / 1000
        return task.using(**options).call(*one.args, **one.kwargs)

    def _find(self, name: str) -> Task[..., Any]:
        """The task of that name: as given, of that function, or of the last part of the name."""
        task = self._names.get(name) or self._queue.tasks.get(name)
        task = task or self._queue.tasks.get(name.rpartition(".")[2])
        if task is None:
            raise HoldfastError(f"the queue has no such task: give --task {name}=NAME")
        return task

    def _count(self, imported: Imported, one: ForeignJob, reason: str = "") -> None:
        if reason:
            imported.left[one.task, reason] += 1
        else:
            (imported.waiting if one.run_at is None else imported.scheduled)[one.task] += 1
