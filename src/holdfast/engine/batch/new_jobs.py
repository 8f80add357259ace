"""New jobs of a batch that nothing else in it can refer to.

No command knows the id of such a job before the reply, so it needs no place in the working set, which would
be most of the cost of adding thousands. Similar jobs are written together, as one template and many rows.
"""

from collections.abc import Collection
from typing import Any

from msgspec import Struct

from ...core import creating
from ...core.commands import NewJob
from ...core.job import Body
from ...store.contract import NewJobs


class NewJobGroups(Struct, eq=False):
    """The new jobs of a batch, in groups of similar ones; those of the current command can be dropped."""

    _groups: list[NewJobs] = []
    _rows: list[tuple[int, Body]] = []
    _alike: tuple[Any, ...] | None = None
    _is_fresh: bool = True
    # The number of groups and of rows of the last group: now, and after the last command that succeeded.
    size: tuple[int, int] = (0, 0)
    kept: tuple[int, int] = (0, 0)

    def add(self, new: NewJob, *, job_id: int, now_ms: int, is_fresh: bool = True) -> None:
        """Add a new job; `is_fresh`: its id was made in this transaction."""
        alike, (groups, rows) = creating.alike(new), self.size
        if alike == self._alike and is_fresh is self._is_fresh:
            self._rows.append((job_id, new.data))
            self.size = (groups, rows + 1)
            return
        self._alike, self._is_fresh, self._rows = alike, is_fresh, [(job_id, new.data)]
        template = creating.create(new, job_id=job_id, now_ms=now_ms, kind=alike)
        self._groups.append(NewJobs(template, self._rows, is_fresh))
        self.size = (groups + 1, 1)

    def add_more(self, rows: Collection[tuple[int, Body]]) -> None:
        """Add jobs that are like the last one but for id and data."""
        self._rows.extend(rows)
        self.size = (self.size[0], len(self._rows))

    def drop(self) -> None:
        """Drop the jobs of the current command, which has failed."""
        groups, rows = self.size = self.kept
        del self._groups[groups:]
        self._alike = None
        if self._groups:
            self._rows = self._groups[-1].rows  # type: ignore[assignment]
            del self._rows[rows:]

    def take(self) -> list[NewJobs]:
        """Remove and return all groups, to be written now."""
        groups, self._groups, self._alike = self._groups, [], None
        self.size = self.kept = (0, 0)
        return groups
