"""What the parts of a batch need of the whole: jobs and rows as they were read, and as decided upon."""

from collections.abc import Collection
from typing import Any, Protocol

from ...core.job import Body, Job
from ...core.queries import Paused
from ...store.contract import RowKey, Txn
from ..shard_info import ShardInfo
from ..sysid import IdMaker
from .counters import Counts
from .draft import Draft, Undo
from .new_jobs import NewJobGroups


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
    outbox: dict[str, bytes]
    ended: set[int]
    woke: bool
    news: bool
    wants_upkeep: bool
    published: bool
    # The unique keys and the domains that it touches, once there are any.
    known_holders: Any
    known_domains: Any

    @property
    def domains(self) -> Any:
        """The domains that it touches."""

    @property
    def retention_ms(self) -> int:
        """How long the archive keeps jobs."""

    def load(self, job_ids: Collection[int]) -> None:
        """Bring live jobs and their parents into the working set."""

    def bring(self, job: Job) -> None:
        """A job as the store has it, unless the working set has it already."""

    def find(self, job_id: int) -> Job | None:
        """A live job, or None."""

    def put(self, after: Job) -> None:
        """Let a job become `after`."""

    def is_archivable(self, job: Job) -> bool:
        """Whether an ended job leaves the live jobs."""

    def rows_of(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """Rows as they stand now."""

    def pauses(self) -> set[Paused]:
        """What claims pass by."""

    def begin_drafts(self) -> None:
        """Begin anew with what is to be written."""

    def drop_bodies(self, job_id: int) -> None:
        """A job that goes has no body to keep."""

    def uncount(self, gone: list[Job]) -> None:
        """These jobs are there no more."""
