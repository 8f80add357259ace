"""Dicts whose changes can be rolled back, and whose values may be in sorted indexes.

    put ──▶ the old value is written to the undo log ──▶ indexes ──▶ dict

A KeyboardInterrupt may come between any two of these steps, and during a roll-back. So undoing is idempotent:
the change may have been made, in part or not at all, or may have been undone already.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

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
