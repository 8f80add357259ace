"""How much of the slots for stored handlers each tenant has, and may have.

A job that sleeps has its slot until it ends, and no job is interrupted for another. So one tenant gets all
slots but one for jobs that are not short, also while no other waits: the next one finds a slot.
Among tenants that have the same number of jobs here, those come first that have used the least time of late.
"""

import math
from collections.abc import Mapping, Sequence

from ...core.queries import Waiting

# How long it takes until time that was used counts half.
HALF_S = 60.0
# Tenants that used less than this are forgotten.
LEAST_S = 0.001


class TenantShares:
    """The slots of one worker, as of the last `update`."""

    def __init__(self) -> None:
        self._most = math.inf
        self._busy: Mapping[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._updated_s = 0.0

    def update(self, slots: int, busy: Mapping[str, float], now_s: float) -> None:
        """Set how many slots there are, and how many each tenant has with jobs that are not short.

        Since the last update the tenants have had about those of that time.
        """
        passed_s = now_s - self._updated_s if self._updated_s else 0.0
        weight = 0.5 ** (passed_s / HALF_S)
        used_s = {tenant: weight * used for tenant, used in self._used_s.items() if used > LEAST_S}
        for tenant, count in self._busy.items():
            used_s[tenant] = used_s.get(tenant, 0.0) + count * passed_s
        # With one slot there is nothing to share.
        self._most = math.inf if slots == 1 else slots - 1
        self._busy, self._used_s, self._updated_s = busy, used_s, now_s

    def room(self, tenant: str) -> float:
        """How many more slots a tenant may have."""
        return max(self._most - math.ceil(self._busy.get(tenant, 0.0)), 0)

    def room_of_any(self) -> float:
        """How many more slots a tenant may have, whichever it is."""
        return min((self.room(tenant) for tenant in self._busy), default=self._most)

    def order(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """Waiting tasks, those of tenants first that used the least time; else as they are."""
        return sorted(waiting, key=lambda one: self._used_s.get(one.tenant, 0.0))
