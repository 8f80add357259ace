"""The advisory locks of one batch: what it read stands still, also where there was nothing to read.

    comes after all that we have     waited for
    comes before, or must become     tried: if somebody has it the batch ends in `Conflict`, and is done again
    exclusive                        with all that it wanted waited for at the start, in order

So two batches never wait for each other in a circle. All locks end with the transaction. See
docs/decisions/0007.
"""

from collections.abc import Collection, Mapping

from ...core.errors import Conflict
from ...core.limits import DomainKey
from .connection import Link
from .statements import lock_number, numbers, switches

# Records that belong to one job each. Who changes one changes its job as well, and its version decides.
OF_JOBS = ("steps", "job_log")
# Records of which each is changed by itself, and often: locked one by one. All of them are seldom read.
ONE_BY_ONE = ("log", "progress")
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


def record_locks(schema: str, kind: str, names: Collection[str] | None, *, exclusive: bool) -> Wants:
    """The locks of small records: in general one for each kind."""
    whole = lock_number(schema, "records", kind)
    if kind in ONE_BY_ONE:
        # Who reads them all has the kind for himself; the others share it, and have each their own.
        one_by_one = {lock_number(schema, "record", kind, name): True for name in names or ()}
        return {whole: names is None} | one_by_one
    return {} if kind in OF_JOBS else {whole: exclusive}


def domain_locks(schema: str, keys: Collection[DomainKey], limited: Collection[DomainKey]) -> Wants:
    """The locks of domains: exclusive where one is known to be limited, and so about to be changed."""
    wanted: Wants = {}
    for key in keys:
        number = lock_number(schema, "domain", *key)
        wanted[number] = wanted.get(number, False) or key in limited
    return wanted
