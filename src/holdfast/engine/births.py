"""Jobs that nothing else depends on, on their way into the store.

Nobody can speak of a job whose number has not been told: it needs no place in the working set, which is
most of what adding thousands would cost. Those that are alike are written together.
"""

from typing import Any

from ..core import rules
from ..core.commands import NewJob
from ..core.job import Body, Job


class Group:
    """Jobs that are alike but for id and data."""

    def __init__(self, alike: tuple[Any, ...], template: Job) -> None:
        self.alike, self.template = alike, template
        self.rows: list[tuple[int, Body]] = []


class Births:
    """What was added so far (`kept`), and what the command at hand adds."""

    def __init__(self) -> None:
        self.kept: list[Group] = []
        self._draft: list[Group] = []

    def add(self, new: NewJob, *, job_id: int, now_ms: int) -> None:
        """Let a job be born."""
        alike = rules.alike(new)
        if not self._draft or self._draft[-1].alike != alike:
            self._draft.append(Group(alike, rules.create(new, job_id=job_id, now_ms=now_ms)))
        self._draft[-1].rows.append((job_id, new.data))

    def keep(self) -> None:
        """The command at hand stands."""
        for group in self._draft:
            if self.kept and self.kept[-1].alike == group.alike:
                self.kept[-1].rows += group.rows
            else:
                self.kept.append(group)
        self._draft = []

    def drop(self) -> None:
        """The command at hand failed."""
        self._draft = []

    def take(self) -> list[Group]:
        """All that are to be written now."""
        groups, self.kept = self.kept, []
        return groups
