"""How far a long search for a pattern has come: the next claim by that pattern begins there.

A mark is a (rank, id) before which no READY job matches. It is kept in memory, where it costs whoever adds
nothing, and it is only a shortcut: without it the same jobs are found.

    a search was long ──▶ marked at the last that it found, or behind all
                              │
                              ├── one that matches becomes READY before it ──▶ the mark goes back to that
                              └── a batch was undone, or somebody else wrote to the file ──▶ no marks
"""

from collections import OrderedDict
from collections.abc import Iterable

from ...core.glob import matches
from ...core.job import Job, Place
from ...core.rank import LAST
from ..contract import ClaimQuery
from .connection import Link

# So many are kept, of those that were used last.
MARKS_KEPT = 64

Spot = tuple[int, int]
Key = tuple[str | None, str, int | None, bool, tuple[tuple[str | None, str | None], ...]]

FIRST: Spot = (0, 0)
# Ranks are smaller.
BEHIND_ALL: Spot = (LAST + 1, 0)


class Marks:
    """The marks of one connection that writes. They hold for what it sees inside its transactions."""

    def __init__(self) -> None:
        self._marks: OrderedDict[Key, Spot] = OrderedDict()
        self._version = 0

    def __bool__(self) -> bool:
        return bool(self._marks)

    def find(self, link: Link, query: ClaimQuery) -> Spot | None:
        """Where to begin; None: there is no mark."""
        if not self._marks:
            return None
        if link.value("PRAGMA data_version") != self._version:
            self.clear()
        key = _key(query)
        if key in self._marks:
            self._marks.move_to_end(key)
        return self._marks.get(key)

    def put(self, link: Link, query: ClaimQuery, found: list[Spot]) -> None:
        """A search has found these, which are claimed now: all there are, or as many as were asked for."""
        if not self._marks:
            self._version = link.value("PRAGMA data_version")
        self._marks[_key(query)] = found[-1] if len(found) == query.limit else BEHIND_ALL
        if len(self._marks) > MARKS_KEPT:
            self._marks.popitem(last=False)

    def note(self, jobs: Iterable[Job]) -> None:
        """These jobs were written."""
        for job in jobs:
            if job.place == Place.READY:
                self._go_back(job)

    def _go_back(self, job: Job) -> None:
        spot = (job.rank, job.id)
        for key, mark in self._marks.items():
            if spot < mark and key[0] in (None, job.tenant) and matches(key[1], job.task):
                self._marks[key] = spot

    def clear(self) -> None:
        """Begin at the beginning again."""
        self._marks.clear()


def _key(query: ClaimQuery) -> Key:
    assert query.glob is not None
    return query.tenant, query.glob, query.priority, query.mock, tuple(query.passing)
