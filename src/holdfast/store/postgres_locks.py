"""The advisory locks of one batch: what it read stands still, also where there was nothing to read.

    comes after all that we have     waited for
    comes before, or must become     tried: if somebody has it the batch ends in `Conflict`, and is done again
    exclusive                        with all that it wanted waited for at the start, in order

So two batches never wait for each other in a circle. All locks end with the transaction. See
docs/decisions/0007.
"""

from collections.abc import Collection, Mapping

from ..core.errors import Conflict
from .postgres_link import Link
from .postgres_sql import numbers, switches

# Each lock by its number, and whether it is exclusive.
Wants = dict[int, bool]


class Locks:
    """What one batch has locked so far. `wants` is what it wanted the last time and could not have."""

    def __init__(self, link: Link, sql: dict[str, str], wants: Wants) -> None:
        self._link, self._sql, self._wants = link, sql, wants
        self._held: Wants = {}
        self._early: set[int] = set()

    def begin(self) -> None:
        """Wait for what was wanted the last time, before the batch is told the time."""
        if self._wants:
            self._ask("lock", self._wants)
            self._held |= self._wants
            self._early.update(self._wants)

    def take(self, wanted: Mapping[int, bool]) -> None:
        """Have these until the end of the batch, each exclusive or shared."""
        held = self._held
        needed = {n: x for n, x in wanted.items() if n not in held or (x and not held[n])}
        if not needed:
            return
        highest = max(held, default=None)
        late = {n: x for n, x in needed.items() if highest is not None and n <= highest}
        if late and not self._ask("try_lock", late):
            self.want(needed)
        if in_order := {n: x for n, x in needed.items() if n not in late}:
            self._ask("lock", in_order)
        held |= needed

    def can_wait_for(self, number: int) -> bool:
        """Whether it comes after all that we have, or is one of them."""
        return number in self._held or all(number > held for held in self._held)

    def had(self, number: int) -> None:
        """It was taken, shared, by a statement that reads as well."""
        self._held.setdefault(number, False)

    def want(self, needed: Mapping[int, bool]) -> None:
        """End the batch; the next time it has these, and all that it has now, from the start."""
        for number, exclusive in (*self._held.items(), *needed.items()):
            self._wants[number] = self._wants.get(number, False) or exclusive
        raise Conflict("somebody else has what this batch came upon, or had it later than its time")

    def were_early(self, locks: Collection[int]) -> bool:
        """Whether all of these were held before the batch was told the time."""
        return self._early.issuperset(locks)

    def _ask(self, name: str, locks: Wants) -> bool:
        ordered = sorted(locks)
        values = (numbers(ordered), switches(locks[number] for number in ordered))
        return bool(self._link.value(self._sql[name], values))
