"""How many executors there should be: more while jobs wait and all are busy, fewer after an idle while."""

from ...store.common.clock import monotonic_s
from .crew import Crew
from .member import Member

LOOK_S = 0.25


class Scaling:
    """Between a least and a most number of executors."""

    def __init__(self, crew: Crew, *, least: int, most: int, idle_s: float) -> None:
        self._crew, self._least, self._most, self._idle_s = crew, least, most, idle_s

    def _active(self) -> list[Member]:
        return [m for m in self._crew.members if not (m.condemned or m.isolated)]

    def is_short(self) -> bool:
        """Whether more may be started, and none that is there, or is coming, has anything to spare."""
        active = self._active()
        return (
            not self._crew.starting
            and len(active) < self._most
            and all(member.is_full() for member in active)
        )

    def grow(self, waiting: int) -> None:
        """So many jobs wait: twice as many executors, but no more than there are jobs, or may be."""
        there = len(self._active())
        for _ in range(min(max(there, 1), self._most - there, waiting)):
            self._crew.grow()

    def surplus(self) -> Member | None:
        """One that has had nothing to do for a while, where there are more than the least."""
        active = self._active()
        late = monotonic_s() - self._idle_s
        idle = [m for m in active if not m.jobs and m.idle_s < late and not m.retiring]
        return idle[-1] if idle and len(active) > self._least else None
