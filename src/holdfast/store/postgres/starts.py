"""Where an index scan starts: at the front of the index, or behind its dead entries if there are very many.

Jobs that are claimed, finished or promoted leave dead entries at the front of an index. Vacuum removes them
soon, unless a transaction is left open: then each scan reads all entries that there ever were. So:

    fast    every scan starts at the front
    slow    after several slow scans in a row, scans start where the last one ended. Now and then one starts
            at the front again, for entries that other processes have added there; the slower, the less often

Entries that this process adds further ahead are noted. So while scans are slow, an entry that another process
adds at the front may be found a little late; nothing else changes.
"""

from collections.abc import Hashable, Sequence

from ...core.job import Place
from ..common.clock import monotonic_s

# A scan that takes longer than this is slow; that many in a row change its start.
SLOW_S, SLOW_WALKS = 0.02, 3
# Slow scans from the front may take one part in this many of the time.
PART = 20
# The scans for the times of `Moments`.
WALKS: tuple[Hashable, ...] = (Place.SCHEDULED, Place.RUNNING, "expiring", "domains")
# The scan of all READY jobs; the scan of one pair is named by the pair.
READY = Place.READY
# How many scans are remembered; with more, all are forgotten and start at the front.
REMEMBERED = 10_000


class _Walk:
    """The state of one kind of scan."""

    def __init__(self) -> None:
        self.slow = self.at = 0
        self.front_s = 0.0


class Starts:
    """Where each kind of scan starts. Used by several threads: a stale start is only slower."""

    def __init__(self) -> None:
        self._walks: dict[Hashable, _Walk] = {}

    def of(self, sort: Hashable) -> int:
        """Where to start; 0: at the front."""
        walk = self._walks.get(sort)
        if walk is None or walk.slow < SLOW_WALKS or monotonic_s() >= walk.front_s:
            return 0
        return walk.at

    def ended(self, sort: Hashable, began: int, took_s: float, at: int | None) -> None:
        """Note a scan: where it began (0: the front), its time, where it ended (None: it found nothing)."""
        if began:
            if (walk := self._walks.get(sort)) is not None and at is not None:
                walk.at = at
            return
        if took_s < SLOW_S:
            self._walks.pop(sort, None)
            return
        if len(self._walks) >= REMEMBERED:
            self._walks.clear()
        walk = self._walks.setdefault(sort, _Walk())
        walk.slow += 1
        walk.at = walk.at if at is None else at
        walk.front_s = monotonic_s() + PART * took_s

    def begins(self, sort: Hashable, at: int) -> None:
        """Note the first entry of an index, which the caller knows without a scan."""
        if self._walks and (walk := self._walks.get(sort)) is not None:
            walk.at = at

    def put(self, sort: Hashable, at: int) -> None:
        """Note an entry that was added, so that later scans do not start behind it."""
        if self._walks and (walk := self._walks.get(sort)) is not None:
            walk.at = min(walk.at, at)

    def __bool__(self) -> bool:
        """Whether any scan was slow recently."""
        return bool(self._walks)

    def is_noted(self, took_s: float) -> bool:
        """Whether `ended` must be called for a scan that took this long."""
        return took_s >= SLOW_S or bool(self._walks)


class Walks:
    """The scans for all times of `Moments`, made together."""

    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self.began = tuple(starts.of(sort) for sort in WALKS)

    def ended(self, found: Sequence[int | None], took_s: float, now_ms: int) -> None:
        """Note what the scans found, and how long they took together."""
        if not self._starts.is_noted(took_s):
            return
        for sort, began, at in zip(WALKS, self.began, found, strict=True):
            # If nothing was found, later entries come after now; but not leases, which end long after that.
            after = None if sort is Place.RUNNING else now_ms
            self._starts.ended(sort, began, took_s, after if at is None else at)
