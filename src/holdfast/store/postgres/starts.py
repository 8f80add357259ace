"""Where a walk along an index begins: at its front, or past the dead, where these have become very many.

What is claimed, finished or due stands at the front of its index. Dead entries there are cleared away soon,
unless somebody leaves a transaction open: then each walk goes over all that ever was. So:

    quick    every walk begins at the front
    slow     where the last one ended, once several in a row were slow; at the front again after a while that
             is many times as long as that took, for what others may have put there

What this process puts further ahead it knows itself. So while walks are slow, what another process puts ahead
of all others may be found a little later than it should; nothing else changes.
"""

from collections.abc import Hashable, Sequence

from ...core.job import Place
from ..common.clock import monotonic_s

# A walk that takes longer than this is slow; so many in a row are believed.
SLOW_S, SLOW_WALKS = 0.02, 3
# A walk from the front may take this part of the time.
PART = 20
# The walks to the moments at which something becomes true by itself.
WALKS: tuple[Hashable, ...] = (Place.SCHEDULED, Place.RUNNING, "expiring", "domains")
# The walk along all READY jobs; those along the jobs of one pair are called by the pair.
READY = Place.READY
# How many are remembered; beyond that all are forgotten, and begin at the front.
REMEMBERED = 10_000


class _Walk:
    """What is known of one sort of walk."""

    def __init__(self) -> None:
        self.slow = self.at = 0
        self.front_s = 0.0


class Starts:
    """Where walks of each sort begin. Of several threads: a start that is out of date is only slower."""

    def __init__(self) -> None:
        self._walks: dict[Hashable, _Walk] = {}

    def of(self, sort: Hashable) -> int:
        """Where to begin; 0: at the front."""
        walk = self._walks.get(sort)
        if walk is None or walk.slow < SLOW_WALKS or monotonic_s() >= walk.front_s:
            return 0
        return walk.at

    def ended(self, sort: Hashable, began: int, took_s: float, at: int | None) -> None:
        """A walk that began there (0: at the front) took so long, and ended `at`; None: it found nothing."""
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
        """The first that there is stands there: whoever has put it knows without a walk."""
        if self._walks and (walk := self._walks.get(sort)) is not None:
            walk.at = at

    def put(self, sort: Hashable, at: int) -> None:
        """Something was put there."""
        if self._walks and (walk := self._walks.get(sort)) is not None:
            walk.at = min(walk.at, at)

    def __bool__(self) -> bool:
        """Whether any walk was slow of late."""
        return bool(self._walks)

    def is_noted(self, took_s: float) -> bool:
        """Whether `ended` has anything to remember or to forget of a walk that took so long."""
        return took_s >= SLOW_S or bool(self._walks)


class Walks:
    """One walk to each of the moments at which something becomes true by itself, all made together."""

    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self.began = tuple(starts.of(sort) for sort in WALKS)

    def ended(self, found: Sequence[int | None], took_s: float, now_ms: int) -> None:
        """They have found these, and have taken so long together."""
        if not self._starts.is_noted(took_s):
            return
        for sort, began, at in zip(WALKS, self.began, found, strict=True):
            # Where there is nothing, what comes later comes after now; but leases end long after that.
            after = None if sort is Place.RUNNING else now_ms
            self._starts.ended(sort, began, took_s, after if at is None else at)
