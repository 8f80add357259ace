"""The indexes above a consumer's progress: running, finished, not started. Not thread-safe.

stored P ──── saved ──── folded ──── running and finished early ────▶
                │           └ all finished up to here; the next write
                └ written: `processed`, and what later stages see
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from ..core.errors import BadInput
from .scan import Found, Ranges, Walk, scan
from .source import IndexedJob

T = TypeVar("T")


class Ledger(Generic[T]):
    """Which indexes run, and which are finished; the cost of a job does not depend on their number."""

    def __init__(self, processed: int) -> None:
        self.saved = self.folded = processed
        # The first index that was never started.
        self.next_index = processed + 1
        self.running: dict[int, str] = {}
        self._index_of: dict[str, int] = {}
        self.finished = Ranges()

    @property
    def size(self) -> int:
        """How many indexes above the written progress were started."""
        return self.next_index - 1 - self.saved

    def finish(self, indexes: Iterable[int]) -> None:
        """Mark indexes that ran as finished."""
        for index in indexes:
            if (id := self.running.pop(index, None)) is not None:
                del self._index_of[id]
                self.finished.add(index)

    def walk(self, *, max_processing: int, max_ahead: int, head: int | None) -> Walk[T]:
        """The walk from here; nothing changes before `fold` and `admit`."""
        return scan(
            self.finished,
            processed=self.folded,
            running=len(self.running),
            next_index=self.next_index,
            max_processing=max_processing,
            max_ahead=max_ahead,
            head=head,
        )

    def fold(self, found: Found[T]) -> None:
        """Move P after a walk."""
        if found.processed > self.folded:
            self.finished.drop(self.folded + 1)
            self.folded = found.processed

    def admit(self, jobs: Iterable[IndexedJob[T]]) -> None:
        """Add jobs that are about to run; raises if two have the same id."""
        for job in jobs:
            if (other := self._index_of.get(job.id)) is not None:
                needed = f"unlike that at {other:,}, which has not ended"
                raise BadInput(f"id of the job at index {job.index:,}", job.id, needed=needed)
            self._index_of[job.id] = job.index
            self.running[job.index] = job.id
            self.next_index = job.index + 1
