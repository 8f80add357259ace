"""The data of the memory store: dicts, and the indexes by which jobs and rows are found in order.

Changes of the dicts can be rolled back, and their values may be in sorted indexes:

    put ──▶ the old value is written to the undo log ──▶ indexes ──▶ dict

A KeyboardInterrupt may come between any two of these steps, and during a roll-back. So undoing is idempotent:
the change may have been made, in part or not at all, or may have been undone already.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from ...core.job import Body, Job, Place
from ..contract import CountKey, RowKey, TallyKey

K = TypeVar("K")
V = TypeVar("V")
# The changes since the last commit, oldest first: the dict, the key, the new value, the old value.
UndoLog = list[tuple["UndoableDict[Any, Any]", Any, Any, Any]]
# An entry of an index; it ends in the key, so that no two are equal.
Entry = tuple[Any, ...]


class UndoableDict(dict[K, V]):
    """Values by key. `put` is the only way to change them."""

    def __init__(self, undo_log: UndoLog) -> None:
        super().__init__()
        self._undo_log = undo_log

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None removes it."""
        self._undo_log.append((self, key, value, self.get(key)))
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value

    def restore(self, key: K, after: V | None, before: V | None) -> None:
        """Undo a `put`."""
        if before is None:
            self.pop(key, None)
        else:
            self[key] = before


class IndexedDict(UndoableDict[K, V]):
    """A `UndoableDict` with indexes: `entries_of` returns the (index, entry) pairs of a value."""

    def __init__(
        self, undo_log: UndoLog, entries_of: Callable[[K, V], Iterable[tuple[Hashable, Entry]]]
    ) -> None:
        super().__init__(undo_log)
        self._entries_of = entries_of
        self._indexes: dict[Hashable, list[Entry]] = {}

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None removes it."""
        before, indexes = self.get(key), self._indexes
        self._undo_log.append((self, key, value, before))
        if before is not None:
            self._drop(key, before)
        if value is None:
            self.pop(key, None)
            return
        for name, entry in self._entries_of(key, value):
            if name in indexes:
                insort(indexes[name], entry)
            else:
                indexes[name] = [entry]
        self[key] = value

    def restore(self, key: K, after: V | None, before: V | None) -> None:
        """Undo a `put`."""
        if after is not None:
            self._drop(key, after)
        if before is not None:
            self._drop(key, before)
            for name, entry in self._entries_of(key, before):
                insort(self._indexes.setdefault(name, []), entry)
        super().restore(key, after, before)

    def _drop(self, key: K, value: V) -> None:
        """Delete the entries of a value from the indexes."""
        for name, entry in self._entries_of(key, value):
            index = self._indexes.get(name, [])
            at = bisect_left(index, entry)
            if index[at : at + 1] == [entry]:
                del index[at]
            if not index:
                self._indexes.pop(name, None)

    def index(self, name: Hashable) -> list[Entry]:
        """The entries of an index, in order; not to be changed."""
        return self._indexes.get(name, [])

    def index_from(self, name: Hashable, entry: Entry) -> Iterator[Entry]:
        """The entries of an index that are not below `entry`, in order."""
        index = self.index(name)
        return (index[at] for at in range(bisect_left(index, entry), len(index)))


def roll_back(undo_log: UndoLog) -> None:
    """Undo all changes in an undo log, and empty it."""
    while undo_log:
        table, key, after, before = undo_log[-1]
        table.restore(key, after, before)
        undo_log.pop()


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
