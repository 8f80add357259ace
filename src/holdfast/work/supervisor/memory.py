"""What follows when an executor has too much memory.

above --memory-limit    it gets nothing new; a job that runs alone in it, and did from the start, is killed
                        and counted as a loss; several have a grace, and are suspects after it
grown by --max-growth   a fresh one takes its place, and it finishes what it has
"""

from collections.abc import Callable

from ...core.counting import counted
from ...core.sizes import size_text
from .crew import Crew
from .member import Member, resident_bytes

LOOK_S = 1.0


class Scales:
    """Weighs the executors."""

    def __init__(
        self, crew: Crew, log: Callable[[str], None], *, limit: int, growth: int, grace_s: float
    ) -> None:
        self._crew, self._log = crew, log
        self._limit, self._growth, self._grace_s = limit, growth, grace_s

    def weigh(self) -> None:
        """Look at each once."""
        for member in self._crew.members:
            now = resident_bytes(member.process.pid)
            if self._limit and now > self._limit and not member.overweight:
                self._too_heavy(member, now)
            elif self._growth and member.first_bytes and now - member.first_bytes > self._growth:
                self._grown(member, now)

    def _grown(self, member: Member, now: int) -> None:
        if not (member.retiring or member.condemned or member.isolated):
            grown = size_text(now - member.first_bytes)
            self._log(f"executor {member.process.pid} has grown by {grown}: a fresh one takes its place")
            self._crew.recycle(member)

    def _too_heavy(self, member: Member, now: int) -> None:
        member.overweight = True
        above = f"{size_text(now)}, above its limit of {size_text(self._limit)}"
        jobs = counted(len(member.jobs), "job")
        self._log(f"executor {member.process.pid} has {above}; {jobs} in hand")
        self._crew.replace(member, grace_s=0.0 if member.runs_alone() else self._grace_s)
