"""Ids that the server has reserved for this client: an add has its ids before it is asked for."""

from collections import deque
from collections.abc import Iterable

from ..core import commands as c
from ..core.bounds import BATCH_JOBS
from ..core.ids import SLOTS, IdRange
from ..core.slots import with_slots

# At first for a few jobs, then twice as many each time: ids that are not used are lost, which is no harm.
LEAST, MOST = 32, 8_192


class IdPool:
    """Reserved ids, in the order in which they were made."""

    def __init__(self) -> None:
        self._ranges: deque[range] = deque()
        self._count = 0
        self._next = LEAST

    def add(self, ranges: Iterable[IdRange]) -> None:
        """More ids have come."""
        for one in ranges:
            self._ranges.append(range(one.first, one.first + one.count * SLOTS, SLOTS))
            self._count += one.count

    def has(self, command: c.Add) -> bool:
        """Whether there are ids for all jobs of a command."""
        return self._count >= command.count

    def wanted(self, command: c.Add) -> c.ReserveIds:
        """What to ask for, so that a command has its ids and the next ones need not wait."""
        count = min(max(self._next, command.count), BATCH_JOBS)
        self._next = min(max(self._next, command.count) * 2, MOST)
        return c.ReserveIds(count=count)

    def assign(self, command: c.Add) -> c.Add:
        """The command with ids; see `with_slots`."""
        return with_slots(command, self._take(command.count))

    def _take(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            first = self._ranges[0]
            part = first[: count - len(taken)]
            taken.extend(part)
            if len(part) == len(first):
                self._ranges.popleft()
            else:
                self._ranges[0] = first[len(part) :]
        self._count -= count
        return taken


def needs_ids(command: object) -> bool:
    """Whether a command adds jobs that have no ids yet."""
    if not isinstance(command, c.Add) or command.ids or any(new.id for new in command.jobs):
        return False
    return 0 < command.count <= BATCH_JOBS
