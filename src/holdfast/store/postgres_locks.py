"""The advisory locks of one batch: what it read stands still, also where there was nothing to read.

    comes after all that we have     waited for
    comes before, or must become     tried: if somebody has it the batch ends in `Conflict`, and is done
    exclusive                        again with all that it wanted taken at the start, in order

So two batches never wait for each other in a circle. All locks end with the transaction. See
docs/decisions/0007.
"""

from collections.abc import Mapping

from ..core.errors import Conflict
from .postgres_link import Link
from .postgres_sql import numbers, switches


class Locks:
    """What one batch has locked so far. `wants` is what it wanted the last time and could not have."""

    def __init__(self, link: Link, sql: dict[str, str], wants: dict[int, bool]) -> None:
        self._link, self._sql, self._wants = link, sql, wants
        # Each by its number, and whether it is exclusive.
        self._held: dict[int, bool] = {}
        if wants:
            self._take(dict(wants))

    def take(self, wanted: Mapping[int, bool]) -> None:
        """Have these until the end of the batch, each exclusive or shared."""
        held = self._held
        if needed := {n: x for n, x in wanted.items() if n not in held or (x and not held[n])}:
            self._take(needed)

    def _take(self, needed: dict[int, bool]) -> None:
        highest = max(self._held, default=None)
        late = {n: x for n, x in needed.items() if highest is not None and n <= highest}
        if late and not self._ask("try_lock", late):
            for number, exclusive in (*self._held.items(), *needed.items()):
                self._wants[number] = self._wants.get(number, False) or exclusive
            raise Conflict("somebody else has what this batch came upon late")
        if early := {n: x for n, x in needed.items() if n not in late}:
            self._ask("lock", early)
        self._held |= needed

    def _ask(self, name: str, locks: dict[int, bool]) -> bool:
        ordered = sorted(locks)
        values = (numbers(ordered), switches(locks[number] for number in ordered))
        return bool(self._link.value(self._sql[name], values))
