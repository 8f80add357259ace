"""Jobs that nothing else depends on, on their way into the store.

Nobody knows the id of such a job before the reply: it needs no place in the working set, which is most of what
adding thousands would cost. Those that are alike are written together.
"""

from collections.abc import Iterable
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
        # How much of it stands: so many groups, and so many rows of the last of them.
        self._kept = (0, 0)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, new: NewJob, *, job_id: int, now_ms: int) -> None:
        """Let a job be born."""
        alike = creating.alike(new)
        if alike != self._alike:
            self._alike, self._rows = alike, []
            template = creating.create(new, job_id=job_id, now_ms=now_ms)
            self._groups.append(NewJobs(template, self._rows))
        self._rows.append((job_id, new.data))

    def add_more(self, rows: Iterable[tuple[int, Body]]) -> None:
        """Let jobs be born that are as the last one."""
        self._rows.extend(rows)

    def keep(self) -> None:
        """The command at hand stands."""
        if self._groups:
            self._kept = (len(self._groups), len(self._rows))

    def drop(self) -> None:
        """The command at hand failed."""
        groups, rows = self._kept
        del self._groups[groups:]
        self._alike = None
        if self._groups:
            self._rows = self._groups[-1].rows  # type: ignore[assignment]
            del self._rows[rows:]

    def take(self) -> list[NewJobs]:
        """All that are to be written now."""
        groups, self._groups, self._alike, self._kept = self._groups, [], None, (0, 0)
        return groups
