"""A view for those who wait: what they look at before they claim comes in one answer.

Who is woken asks for the moments, then for some kinds of records, then which tasks have READY jobs. Asked one
after the other these are six answers to wait for, while a job is waiting to be started.
"""

from collections.abc import Collection
from typing import Any

from ..core.kinds import CHORE, LETTER, PAUSE, SCHEDULE
from .contract import Moments
from .postgres_reads import PostgresReads
from .postgres_sql import texts

KINDS = (CHORE, LETTER, PAUSE, SCHEDULE)
# Where more tasks have READY jobs than so many, they are looked for in another way.
FEW_PAIRS = 16


class PostgresView(PostgresReads):
    """A view of one moment; the answer holds for as long as it lasts."""

    _records: dict[str, dict[str, bytes]] | None = None
    _pairs: list[tuple[str, str]] | None = None

    def moments(self) -> Moments:
        """When something becomes true by itself; what is asked for after that comes along."""
        return self._walked(self._glance)

    def _glance(self, began: tuple[int, ...]) -> tuple[Any, ...]:
        asked = (*began, texts(KINDS), FEW_PAIRS + 1)
        ((*row, kinds, names, values, tenants, tasks),) = self.link.rows(self.sql["glance"], asked)
        self._records = {kind: {} for kind in KINDS}
        for kind, name, value in zip(kinds or (), names or (), values or (), strict=True):
            self._records[kind][name] = value
        pairs = list(zip(tenants or (), tasks or (), strict=True))
        self._pairs = pairs if len(pairs) <= FEW_PAIRS else None
        return tuple(row)

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records."""
        if names is None and self._records is not None and kind in self._records:
            return self._records[kind]
        return super().records(kind, names)

    def ready_pairs(self) -> list[tuple[str, str]] | None:
        """The tenants' tasks that have READY jobs, mocked ones not counted, where they are known and few."""
        return self._pairs
