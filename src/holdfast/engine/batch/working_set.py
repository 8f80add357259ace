"""The interface of `Batch` for the other modules of this folder, and dicts whose changes can be undone."""

from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

from ...core.job import Body, Job
from ...core.queries import Paused
from ...store.contract import RowKey, Txn
from ..shard_info import ShardInfo
from ..sysid import IdMaker
from .counters import Counts
from .new_jobs import NewJobGroups

K = TypeVar("K")
V = TypeVar("V")
# Marks a key that was absent before.
ABSENT: Any = object()
# Changes in order: the dict, the key, and the value before.
Undo = list[tuple[dict[Any, Any], Any, Any]]


class Draft(dict[K, V], Generic[K, V]):
    """Records changes made by `[]=` in `undo`. Values that were read from the store are set by `update`."""

    __slots__ = ("undo",)
    undo: Undo

    def __setitem__(self, key: K, value: V) -> None:
        self.undo.append((self, key, self.get(key, ABSENT)))
        dict.__setitem__(self, key, value)


def undo_changes(undo: Undo) -> None:
    """Undo all changes of the list."""
    for table, key, before in reversed(undo):
        if before is ABSENT:
            dict.pop(table, key, None)
        else:
            dict.__setitem__(table, key, before)
    undo.clear()


class WorkingSet(Protocol):
    """See `Batch`."""

    txn: Txn
    now_ms: int
    shard_info: ShardInfo
    ids: IdMaker
    undo: Undo
    stored: dict[int, Job]
    counted: dict[int, Job]
    jobs: Draft[int, Job | None]
    data: Draft[int, Body]
    results: Draft[int, Body]
    rows: Draft[RowKey, bytes | None]
    dues: Draft[RowKey, int]
    new_jobs: NewJobGroups
    counts: Counts
    touched: dict[int, None]
    finals: dict[int, Job]
    forgotten: list[int]
    ended: set[int]
    woke: bool
    news: bool
    wants_upkeep: bool
    published: bool
    # The unique keys and the domains that the batch touches, if there are any.
    known_holders: Any
    known_domains: Any
    # Whether any job of the working set has a domain.
    has_domains: bool

    @property
    def domains(self) -> Any:
        """The domains that the batch touches."""

    @property
    def retention_ms(self) -> int:
        """How long the archive keeps jobs."""

    def load(self, job_ids: Collection[int]) -> None:
        """Load live jobs and their parents into the working set."""

    def bring(self, job: Job) -> None:
        """Add a stored job to the working set, unless it is there already."""

    def find(self, job_id: int) -> Job | None:
        """A live job, or None."""

    def put(self, after: Job) -> None:
        """Change a job to `after`."""

    def is_archivable(self, job: Job) -> bool:
        """Whether an ended job is archived."""

    def rows_of(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """Rows, with the changes of this transaction."""

    def pauses(self) -> set[Paused]:
        """The pauses: (tenant, task, domain), None for any."""

    def begin_drafts(self) -> None:
        """Start with empty drafts: the changes so far were written."""

    def drop_bodies(self, job_id: int) -> None:
        """Do not write the data and result of a job that is removed."""

    def uncount(self, gone: list[Job]) -> None:
        """Remove jobs from the counts, and their steps and logs."""
