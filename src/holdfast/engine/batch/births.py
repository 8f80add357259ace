"""Jobs that nothing else depends on, on their way into the store.

Nobody can speak of a job whose number has not been told: it needs no place in the working set, which is
most of what adding thousands would cost. Those that are alike are written together.
"""

from collections.abc import Iterable
from typing import Any

from ...core import creating
from ...core.commands import NewJob
from ...core.job import Body, Job


class Group:
    """Jobs that are alike but for id and data."""

    def __init__(self, alike: tuple[Any, ...], template: Job) -> None:
        self.alike, self.template = alike, template
        self.rows: list[tuple[int, Body]] = []


class Births:
    """What was added so far, in groups; what the command at hand adds may yet be taken back."""

    def __init__(self) -> None:
        self._groups: list[Group] = []
        # How much of it stands: so many groups, and so many rows of the last of them.
        self._kept = (0, 0)

    def add(self, new: NewJob, *, job_id: int, now_ms: int) -> None:
        """Let a job be born."""
        alike = creating.alike(new)
        if not self._groups or self._groups[-1].alike != alike:
            self._groups.append(Group(alike, creating.create(new, job_id=job_id, now_ms=now_ms)))
        self._groups[-1].rows.append((job_id, new.data))

    def add_more(self, rows: Iterable[tuple[int, Body]]) -> None:
        """Let jobs be born that are as the last one."""
        if self._groups:
            self._groups[-1].rows.extend(rows)

    def keep(self) -> None:
        """The command at hand stands."""
        if self._groups:
            self._kept = (len(self._groups), len(self._groups[-1].rows))

    def drop(self) -> None:
        """The command at hand failed."""
        groups, rows = self._kept
        del self._groups[groups:]
        if self._groups:
            del self._groups[-1].rows[rows:]

    def take(self) -> list[Group]:
        """All that are to be written now."""
        groups, self._groups, self._kept = self._groups, [], (0, 0)
        return groups
