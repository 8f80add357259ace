"""A dict whose values also stand in sorted indexes, and whose changes can be rolled back.

    put ──▶ how to undo it is written in the journal ──▶ indexes ──▶ dict

An interrupt may strike between any two of these steps. So each of them can be repeated, and undone where it
was not done: rolling back twice, or from the middle, ends in the same.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# How to undo what was done since the last commit, the last of it last.
Journal = list[Callable[[], None]]
# What an index is sorted by; it ends in the key, so that no two are equal.
Entry = tuple[Any, ...]


class IndexedDict(dict[K, V]):
    """Values by key. `put` is the only way to change them."""

    def __init__(
        self,
        journal: Journal,
        entries_of: Callable[[K, V], Iterable[tuple[Hashable, Entry]]] | None = None,
    ) -> None:
        super().__init__()
        self._journal = journal
        # The indexes that a value stands in, and its entry there.
        self._entries_of = entries_of
        self._indexes: dict[Hashable, list[Entry]] = {}

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None removes it."""
        before = self.get(key)
        self._journal.append(lambda: self._replace(key, value, before))
        self._replace(key, before, value)

    def index(self, name: Hashable) -> list[Entry]:
        """The entries of an index, in order; not to be changed."""
        return self._indexes.get(name, [])

    def index_from(self, name: Hashable, entry: Entry) -> Iterator[Entry]:
        """The entries of an index, in order, from the first that is not below `entry`."""
        index = self.index(name)
        return (index[at] for at in range(bisect_left(index, entry), len(index)))

    def _replace(self, key: K, before: V | None, after: V | None) -> None:
        entries_of = self._entries_of
        if entries_of is not None:
            for name, entry in entries_of(key, before) if before is not None else ():
                self._drop(name, entry)
            for name, entry in entries_of(key, after) if after is not None else ():
                self._add(name, entry)
        if after is None:
            self.pop(key, None)
        else:
            self[key] = after

    def _add(self, name: Hashable, entry: Entry) -> None:
        index = self._indexes.setdefault(name, [])
        at = bisect_left(index, entry)
        if index[at : at + 1] != [entry]:
            index.insert(at, entry)

    def _drop(self, name: Hashable, entry: Entry) -> None:
        index = self._indexes.get(name, [])
        at = bisect_left(index, entry)
        if index[at : at + 1] == [entry]:
            del index[at]
        if not index:
            self._indexes.pop(name, None)


def roll_back(journal: Journal) -> None:
    """Undo all that stands in a journal."""
    while journal:
        journal[-1]()
        journal.pop()
