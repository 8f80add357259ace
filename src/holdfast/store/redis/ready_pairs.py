"""The look-ups of READY pairs in Redis: in the sorted set `pairs`, which commits keep by the counts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.job import Place, State
from .. import ready_pairs
from ..contract import CountKey, WaitingQuery, is_skipped
from .connection import TENANTS, Command
from .keys import Keys

STATES = (State.QUEUED, State.RUNQUEUED)


class RedisPairs:
    """`ready_pairs.ReadyPairs` on Redis."""

    def __init__(
        self, ask: Callable[[Sequence[Command]], list[Any]], keys: Keys, counts: Mapping[CountKey, int]
    ) -> None:
        self._ask, self._keys = ask, keys
        # What the batch has added to the counts.
        self._counts = counts

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        # No name contains a byte below this one.
        place, pairs = after.encode() + b"\1", [self._keys.pairs]
        spans = ((b"[" + place, b"+"), (b"-", b"(" + place))
        above, below = self._ask([TENANTS.command(pairs, *span, limit) for span in spans])
        return [name.decode() for name in [*above, *below][:limit]]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        found = self._ask([self._range(tenant, b"\0", b"\1", 1) for tenant in tenants])
        return [tenant for tenant, names in zip(tenants, found, strict=True) if names]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> ready_pairs.Tasks:
        """The first tasks of each tenant that match the query."""
        first = b"\0" + query.after[1].encode() + b"\1"
        spans = ((first, b"\1"), (b"\0", first))
        found = self._ask([self._range(one, *span, looked_at) for one in tenants for span in spans])
        free: list[tuple[str, str]] = []
        for tenant, above, below in zip(tenants, found[::2], found[1::2], strict=True):
            names = [name.partition(b"\0")[2].decode() for name in [*above, *below][:looked_at]]
            known = [task for task in names if query.tasks is None or task in query.tasks]
            free += [(tenant, task) for task in known if not is_skipped((tenant, task), query.skipped)][
                :limit
            ]
        counted = [CountKey(*pair, Place.READY, state) for pair in free for state in STATES]
        fields = [self._keys.count_field(key) for key in counted]
        counts = self._ask([(b"HMGET", self._keys.counts, *fields)])[0] if fields else []
        tasks: ready_pairs.Tasks = {}
        for at, (tenant, task) in enumerate(free):
            own = [self._counts.get(key, 0) for key in counted[2 * at : 2 * at + 2]]
            ready = sum(own) + sum([int(value or 0) for value in counts[2 * at : 2 * at + 2]])
            if ready > 0:
                tasks.setdefault(tenant, []).append((task, ready))
        return tasks

    def _range(self, tenant: str, low: bytes, high: bytes, limit: int) -> Command:
        name = tenant.encode()
        return (b"ZRANGEBYLEX", self._keys.pairs, b"[" + name + low, b"(" + name + high, b"LIMIT", 0, limit)


class KnownPairs:
    """The same for pairs that were read before, without their numbers of jobs."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        return ready_pairs.wrapped({tenant for tenant, _ in self._pairs}, after)[:limit]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        return [*{tenant for tenant, _ in self._pairs}.intersection(tenants)]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> ready_pairs.Tasks:
        """The first tasks of each tenant that match the query."""
        tasks: dict[str, list[str]] = {tenant: [] for tenant in tenants}
        for tenant, task in self._pairs:
            if tenant in tasks and (query.tasks is None or task in query.tasks):
                tasks[tenant].append(task)
        return {
            tenant: [
                (task, 1)
                for task in ready_pairs.wrapped(mine, query.after[1])[:looked_at]
                if not is_skipped((tenant, task), query.skipped)
            ][:limit]
            for tenant, mine in tasks.items()
        }
