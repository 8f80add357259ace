"""The data of the memory store: dicts, and the indexes by which jobs and rows are found in order."""

from collections.abc import Hashable
from typing import NamedTuple

from ...core.job import Body, Job, Place
from ..contract import CountKey, RowKey, TallyKey
from .dicts import Entry, IndexedDict, UndoableDict, UndoLog

_EXPIRABLE = (Place.SCHEDULED, Place.READY, Place.HELD, Place.PAUSED)
# The index of the archive, by `finished_at`.
ENDED = "ended"
# The index of live jobs that expire.
EXPIRING = "expiring"
# The index of all pairs in `MemoryData.ready`.
PAIRS = "pairs"


class StoredRow(NamedTuple):
    """The value of a row and its due time; None: never due."""

    value: bytes
    due: int | None


class MemoryData:
    """All dicts of one store."""

    def __init__(self) -> None:
        # The changes of the current batch; empty between batches.
        self.undo_log: UndoLog = []
        self.jobs: IndexedDict[int, Job] = IndexedDict(self.undo_log, _job_entries)
        self.archive: IndexedDict[int, Job] = IndexedDict(self.undo_log, _archive_entries)
        self.data: UndoableDict[int, Body] = UndoableDict(self.undo_log)
        self.results: UndoableDict[int, Body] = UndoableDict(self.undo_log)
        self.counts: UndoableDict[CountKey, int] = UndoableDict(self.undo_log)
        self.tallies: UndoableDict[TallyKey, int] = UndoableDict(self.undo_log)
        self.rows: IndexedDict[RowKey, StoredRow] = IndexedDict(self.undo_log, _row_entries)
        # The notice, under the key "".
        self.notice: UndoableDict[str, bytes] = UndoableDict(self.undo_log)
        # The (tenant, task) pairs with READY jobs, by the counts.
        self.ready: IndexedDict[tuple[str, str], bool] = IndexedDict(self.undo_log, _ready_entries)
        # The names given to `appear`; not rolled back.
        self.here: set[str] = set()


def _job_entries(job_id: int, job: Job) -> list[tuple[Hashable, Entry]]:
    entry = (job.rank, job_id)
    entries: list[tuple[Hashable, Entry]] = [(job.place, entry)]
    if job.place == Place.READY:
        entries.append(((job.tenant, job.task), entry))
    if job.domain is not None:
        entries.append((((job.tenant, job.domain), job.task, job.place), entry))
        entries.append((("domain", job.tenant, job.domain), (job_id,)))
    if job.parent_id:
        entries.append((("parent", job.parent_id), (job_id,)))
    if job.expires_at and job.place in _EXPIRABLE:
        entries.append((EXPIRING, (job.expires_at, job_id)))
    return entries


def _archive_entries(job_id: int, job: Job) -> list[tuple[Hashable, Entry]]:
    return [(ENDED, (job.finished_at, job_id))]


def _row_entries(row_key: RowKey, row: StoredRow) -> list[tuple[Hashable, Entry]]:
    table, key = row_key
    entries: list[tuple[Hashable, Entry]] = [(("keys", table), (key,))]
    if row.due is not None:
        entries.append((("due", table), (row.due, key)))
    return entries


def _ready_entries(pair: tuple[str, str], _is_ready: bool) -> list[tuple[Hashable, Entry]]:
    return [(PAIRS, pair)]
