"""How much memory a process has, and what follows when it is too much.

above --memory-limit    it gets nothing new; a job that runs alone in it, and did from the start, is killed
                        and counted as a loss; several have a grace, and are suspects after it
grown by --max-growth   a fresh one takes its place, and it finishes what it has
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..core.sizes import size_text
from .crew import Crew
from .member import Member

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 1.0


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use; 0 where that cannot be told."""
    try:
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        words = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout) * 1024
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 0


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
            member.first_bytes = member.first_bytes or now
            if self._limit and now > self._limit and not member.overweight:
                self._too_heavy(member, now)
            elif self._growth and now - member.first_bytes > self._growth and not member.retiring:
                grown = size_text(now - member.first_bytes)
                self._log(f"executor {member.process.pid} has grown by {grown}: a fresh one takes its place")
                self._crew.recycle(member)

    def _too_heavy(self, member: Member, now: int) -> None:
        member.overweight = True
        above = f"{size_text(now)}, above its limit of {size_text(self._limit)}"
        self._log(f"executor {member.process.pid} has {above}; {len(member.jobs)} jobs in hand")
        self._crew.replace(member, grace_s=0.0 if member.runs_alone() else self._grace_s)
