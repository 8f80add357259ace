"""Which part of a queue an engine has: all of it on a store alone, some of the slots on one of several."""

from collections.abc import Callable

from ..core import ids
from ..core.bounds import MAX_SCHEDULES
from ..core.job import Job


def _nowhere(_job_id: int) -> None:
    return None


class Site:
    """Shard `number` of so many. `look` finds a job of another shard, beside whoever writes there."""

    def __init__(self, number: int = 0, of: int = 1, look: Callable[[int], Job | None] = _nowhere) -> None:
        self.number, self.of, self.look = number, of, look
        # Where what is born here may live, and the numbers that schedules have here.
        self.slots = range(number, ids.SLOTS, of)
        self.schedules = range(number, MAX_SCHEDULES, of)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other."""
        return self.of == 1

    def has(self, slot: int) -> bool:
        """Whether what lives in a slot, or has this id, is here."""
        return slot % self.of == self.number


ALONE = Site()
