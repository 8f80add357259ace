"""What an idle process need not ask again: while nobody commits, all is as it was when it last looked.

Every commit counts `tick` up. One who comes by every few seconds, to see whether there is anything to do,
asks for that alone, and where it has not moved goes by what it saw before. So does one who waits for jobs,
was told of a commit, and has looked before he claims.
"""

from typing import Any, NamedTuple

from ...core.job import Place
from ...core.kinds import CHORE, LETTER, PAUSE, SCHEDULE, WORKER
from ..common.clock import monotonic_s
from .connection import Words
from .keys import Keys

# A store that has written nothing for so long is idle.
IDLE_S = 2.0
# What was seen is worth asking whether it is still so, of one who is at work, for so long.
FRESH_S = 0.1
# What upkeep reads whole each time; the first is that of the notice.
KINDS = ("", PAUSE, SCHEDULE, CHORE, WORKER, LETTER)
Heads = dict[bytes, list[tuple[int, bytes]]]


class Sight(NamedTuple):
    """What was seen at a tick: the first of each order, all queues if they are few, some kinds of records."""

    tick: bytes | None
    heads: Heads
    roster: list[bytes] | None
    kinds: dict[str, tuple[bytes | None, Any]]


class Calm:
    """What one store saw last, and whether it is idle."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._wrote_s = 0.0
        self.sight: Sight | None = None
        self._saw_s = 0.0
        rows = (keys.rows[Place.SCHEDULED], keys.in_process_queue, keys.expiring, keys.domains_due)
        self.orders = (*rows, keys.unique_lapses, keys.archive_ends)

    @property
    def is_idle(self) -> bool:
        """Whether it has written nothing for a while."""
        return monotonic_s() - self._wrote_s > IDLE_S

    @property
    def is_fresh(self) -> bool:
        """Whether it has looked just now, and written nothing since."""
        return self._saw_s > self._wrote_s and monotonic_s() - self._saw_s < FRESH_S

    def wrote(self) -> None:
        """It is at work."""
        self._wrote_s = monotonic_s()

    def words(self, count: int, few: int) -> list[Words]:
        """What asks for all of it."""
        asked: list[Words] = [(b"GET", self._keys.tick), (b"ZRANGE", self._keys.lanes, 0, few)]
        asked += [(b"ZRANGE", order, 0, count - 1, "WITHSCORES") for order in self.orders]
        for kind in KINDS:
            asked += [(b"HGET", self._keys.kinds, kind), (b"HGETALL", self._keys.records(kind))]
        return asked

    def saw(self, replies: list[Any], few: int) -> Sight:
        """The replies to that."""
        tick, lanes, *rest = replies
        heads = {order: scored(flat) for order, flat in zip(self.orders, rest, strict=False)}
        pairs = rest[len(self.orders) :]
        kinds = dict(zip(KINDS, zip(pairs[::2], pairs[1::2], strict=True), strict=True))
        self._saw_s = monotonic_s()
        self.sight = Sight(tick, heads, lanes if len(lanes) <= few else None, kinds)
        return self.sight


def scored(flat: list[bytes]) -> list[tuple[int, bytes]]:
    """Scores and members, as they come from the server."""
    return [(int(float(score)), name) for name, score in zip(flat[::2], flat[1::2], strict=True)]
