"""A view for those who wait: what they look at before they claim comes in one answer.

Who is woken asks for the moments, then for some kinds of records, then which tasks have READY jobs. Asked one
after the other these are six answers to wait for, while a job is waiting to be started.
"""

from collections.abc import Collection, Sequence
from typing import Any

from ...core.kinds import CHORE, LETTER, PAUSE, SCHEDULE
from ..common.clock import monotonic_s
from ..contract import Moments
from .reads import PostgresReads, as_named, moments_of
from .starts import SLOW_S, WALKS, Starts
from .statements import texts

KINDS = (CHORE, LETTER, PAUSE, SCHEDULE)
# Where more tasks have READY jobs than so many, they are looked for in another way.
FEW_PAIRS = 16


class PostgresView(PostgresReads):
    """A view of one moment; the answer holds for as long as it lasts."""

    _moments: Moments | None = None
    _records: dict[str, dict[str, bytes]] | None = None
    _pairs: list[tuple[str, str]] | None = None

    @staticmethod
    def asked(starts: Starts) -> dict[str, Any]:
        """What `glance` is told."""
        few = {"from": "", "tenant": None, "limit": FEW_PAIRS + 1}
        return as_named(starts.of(sort) for sort in WALKS) | few | {"kinds": texts(KINDS)}

    def moments(self) -> Moments:
        """When something becomes true by itself; what is asked for after that comes along."""
        if self._moments is None:
            start_s = monotonic_s()
            ((_, *seen, _),) = self.link.rows(self.sql["glance"], self.asked(self.starts))
            self.see(seen, monotonic_s() - start_s)
        assert self._moments is not None
        return self._moments

    def see(self, seen: Sequence[Any], took_s: float) -> None:
        """This is what a glance showed, between the notice and the time."""
        *row, kinds, names, values, tenants, tasks = seen
        # Which of slow walks should begin further on is not known: those are timed alone.
        self._moments = moments_of(row) if took_s < SLOW_S else super().moments()
        self._records = {kind: {} for kind in KINDS}
        for kind, name, value in zip(kinds or (), names or (), values or (), strict=True):
            self._records[kind][name] = value
        pairs = list(zip(tenants or (), tasks or (), strict=True))
        self._pairs = pairs if len(pairs) <= FEW_PAIRS else None

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records."""
        if names is None and self._records is not None and kind in self._records:
            return dict(self._records[kind])
        return super().records(kind, names)

    def ready_pairs(self, *, mock: bool) -> list[tuple[str, str]] | None:
        """The tenants' tasks that have READY jobs, where few and known; None where mocked ones count."""
        return None if mock else self._pairs
