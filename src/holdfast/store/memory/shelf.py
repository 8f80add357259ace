"""Ordered shelves for the memory store: keys, each with its spots in order, such as (rank, id)."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable
from typing import Any

Spot = tuple[int, Any]


class Shelf:
    """Sorted lists of spots, one for each key; empty ones vanish."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, list[Spot]] = {}

    def put(self, key: Hashable, spot: Spot) -> None:
        """Add a spot under a key."""
        insort(self._rows.setdefault(key, []), spot)

    def take(self, key: Hashable, spot: Spot) -> None:
        """Remove a spot that is there."""
        row = self._rows[key]
        at = bisect_left(row, spot)
        assert row[at] == spot
        del row[at]
        if not row:
            del self._rows[key]

    def row(self, key: Hashable) -> list[Spot]:
        """The spots of a key, in order; not to be changed."""
        return self._rows.get(key, [])

    def above(self, key: Hashable, spot: Spot, limit: int) -> list[Spot]:
        """The first spots of a key above a spot, in order."""
        row = self.row(key)
        at = bisect_right(row, spot)
        return row[at : at + limit]

    def keys(self) -> list[Hashable]:
        """The keys that have spots."""
        return list(self._rows)
