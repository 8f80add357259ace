"""The ids that clients of one tenant have reserved at this server: only under these may they add jobs.

Any other id, also one of the past, may be what another client has reserved, or the id of a follow-up job.
"""

from collections.abc import Iterable, Sequence

from ...core.ids import SEQUENCES, SLOTS, IdRange

# What is remembered of one stream: ids by the millisecond, of which each has up to `SEQUENCES`.
LENT_MS = 4_000
# How many streams of a tenant that have ended are remembered: a client repeats its last adds in a new one.
ENDED_STREAMS = 100


class Lent:
    """The ids that one stream has reserved, or the unary calls of a tenant."""

    def __init__(self) -> None:
        # By time and sysid the sequences, as bits.
        self._sequences: dict[int, int] = {}
        self.is_over = False

    def add(self, ranges: Iterable[IdRange]) -> None:
        """Note ids that are given out now; the oldest are forgotten."""
        known = self._sequences
        for one in ranges:
            for bare in range(one.first // SLOTS, one.first // SLOTS + one.count):
                moment = bare // SEQUENCES
                known[moment] = known.get(moment, 0) | 1 << bare % SEQUENCES
        while len(known) > LENT_MS:
            del known[next(iter(known))]

    def has(self, ids: Iterable[int]) -> bool:
        """Whether all of these were given out, in whatever slot."""
        bare_ids = (job_id // SLOTS for job_id in ids)
        return all(self._sequences.get(bare // SEQUENCES, 0) >> bare % SEQUENCES & 1 for bare in bare_ids)


class Lending:
    """What was lent to each tenant."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[Lent]] = {}

    def open(self, tenant: str) -> Lent:
        """A note for the ids that a stream will reserve."""
        known = self._by_tenant.setdefault(tenant, [])
        for one in [one for one in known if one.is_over][:-ENDED_STREAMS]:
            known.remove(one)
        known.append(Lent())
        return known[-1]

    def has(self, tenant: str, ids: Sequence[int]) -> bool:
        """Whether these ids, of which there are some, were lent to clients of a tenant."""
        return bool(ids) and any(one.has(ids) for one in self._by_tenant.get(tenant, ()))
