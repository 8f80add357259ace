"""Jobs that nothing else depends on, on their way into the store.

Nobody knows the id of such a job before the reply: it needs no place in the working set, which is most of
what adding thousands would cost. Those that are alike are written together.
"""

from collections.abc import Collection
from typing import Any

from ...core import creating
from ...core.commands import NewJob
from ...core.job import Body
from ...store.contract import NewJobs


class Births:
    """What was added so far, in groups; what the command at hand adds may yet be taken back."""

    def __init__(self) -> None:
        self._groups: list[NewJobs] = []
        self._rows: list[tuple[int, Body]] = []
        self._alike: tuple[Any, ...] | None = None
        # How many groups there are, and rows of the last; and how much of it stands.
        self.size = self.kept = (0, 0)

    def add(self, new: NewJob, *, job_id: int, now_ms: int) -> None:
        """Let a job be born."""
        alike, (groups, rows) = creating.alike(new), self.size
        if alike == self._alike:
            self._rows.append((job_id, new.data))
            self.size = (groups, rows + 1)
            return
        self._alike, self._rows = alike, [(job_id, new.data)]
        template = creating.create(new, job_id=job_id, now_ms=now_ms, kind=alike)
        self._groups.append(NewJobs(template, self._rows))
        self.size = (groups + 1, 1)

    def add_more(self, rows: Collection[tuple[int, Body]]) -> None:
        """Let jobs be born that are as the last one."""
        self._rows.extend(rows)
        self.size = (self.size[0], len(self._rows))

    def drop(self) -> None:
        """The command at hand failed."""
        groups, rows = self.size = self.kept
        del self._groups[groups:]
        self._alike = None
        if self._groups:
            self._rows = self._groups[-1].rows  # type: ignore[assignment]
            del self._rows[rows:]

    def take(self) -> list[NewJobs]:
        """All that are to be written now."""
        groups, self._groups, self._alike = self._groups, [], None
        self.size = self.kept = (0, 0)
        return groups
