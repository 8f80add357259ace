"""Jobs that were handed over and wait to begin: taken back when their turn does not come.

Short jobs are handed over ahead of time (`pace`). Behind one that takes long they would wait, although
another executor, or another worker, is free. An executor in which nothing has moved for a while is told to
give back what it has not begun. One that cannot answer, because a handler holds its interpreter lock,
begins nothing after the time that it was given (`Run.begin_by_s`), so after that its jobs are simply taken.
"""

import asyncio
from collections.abc import Callable

from ...store.common.clock import monotonic_s
from .crew import Crew
from .member import Held, Member
from .suspects import Suspects

LOOK_S = 0.1
# How long nothing may begin or end in an executor before others get what waits there.
STILL_S = 0.3


class Waiting:
    """Looks after what waits in executors, and for an executor of its own."""

    def __init__(
        self, crew: Crew, suspects: Suspects, give_back: Callable[[list[Held], Member | None], None]
    ) -> None:
        self._crew, self._suspects, self._give_back = crew, suspects, give_back
        self._overdue: set[Member] = set()

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        if late := self._suspects.take_late():
            self._give_back(late, None)
        still_s = monotonic_s() - STILL_S
        before, self._overdue = self._overdue, set()
        for member in self._crew.members:
            if len(member.jobs) == member.running or member.moved_s > still_s:
                continue
            self._crew.revoke(member)
            if keys := member.overdue():
                # At the second look: what it said until now has been read by then.
                if member in before:
                    self._give_back(member.take(keys), member)
                    self._crew.look()
                self._overdue.add(member)
