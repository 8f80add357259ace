"""Which shard of a queue an engine has, and which slots belong to it. A queue on one store has one shard."""

from ..core import ids
from ..core.bounds import MAX_SCHEDULES
from ..core.commands import NewJob
from ..core.slots import slot_for


class ShardInfo:
    """Shard `number` of `count`."""

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number, self.count = number, count
        # The slots of new jobs, and the numbers of schedules, that belong to this shard.
        self.slots = range(number, ids.SLOTS, count)
        self.schedules = range(number, MAX_SCHEDULES, count)

    @property
    def is_only_store(self) -> bool:
        """Whether the queue has one store."""
        return self.count == 1

    def has_slot(self, slot: int) -> bool:
        """Whether a slot, or the slot of an id, belongs to this shard."""
        return slot % self.count == self.number

    def has_new(self, new: NewJob) -> bool:
        """Whether a new job belongs to this shard."""
        if self.is_only_store:
            return True
        slot = new.id or slot_for(new)
        return slot is None or self.has_slot(slot)


UNSHARDED = ShardInfo()
