"""The progress of a claim through the shards: from each what is still wanted, until it is enough."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.bounds import CLAIM_BYTES, CLAIM_JOBS
from ...core.errors import StoreError
from ...store.contract import picks_left


class ClaimProgress:
    """The shards that a claim has yet to ask, and the jobs found so far. A shard that is down is skipped."""

    def __init__(self, claim: c.Claim, order: Sequence[int]) -> None:
        self._claim, self._order = claim, list(order)
        self._shards = len(order)
        self.found: list[c.Claimed] = []
        self._fault: Exception | None = None
        self._faults = 0

    def step(self) -> tuple[int, c.Claim] | None:
        """The next shard and the claim for it; None when enough was found, or no shard is left."""
        wanted = min(self._claim.limit, CLAIM_JOBS) - len(self.found)
        size = sum(one.job.size for one in self.found)
        if not self._order or wanted <= 0 or size >= CLAIM_BYTES:
            return None
        left = picks_left(self._claim.picks, (one.job for one in self.found))
        return self._order.pop(0), replace(self._claim, limit=wanted, picks=left, taken_bytes=size)

    def add_reply(self, reply: Any) -> None:
        """Add the reply of a shard: jobs, or an error."""
        if isinstance(reply, list):
            self.found += reply
        else:
            self._fault, self._faults = reply, self._faults + 1
            if not isinstance(reply, StoreError):
                # Not an error of the shard: the others would raise the same.
                self._order.clear()
                self._faults = self._shards

    @property
    def reply(self) -> list[c.Claimed] | Exception:
        """The jobs found, in order; the error if no shard could be asked."""
        if self._fault is not None and self._faults >= self._shards and not self.found:
            return self._fault
        return sorted(self.found, key=lambda one: (-one.job.priority, one.job.run_at, one.job.id))
