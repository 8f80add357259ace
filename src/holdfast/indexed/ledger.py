"""What a consumer knows of the indexes above its progress. No locks, no store: whoever has it has it alone.

stored P ──── saved ──── folded ──── running and finished early ────▶
                │           └ all finished up to here; the next write
                └ written: what `processed` says, and what later stages see
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from ..core.errors import BadInput
from .scan import Found, Ranges, Walk, scan
from .source import IndexedJob

T = TypeVar("T")


class Ledger(Generic[T]):
    """Which indexes run, which are finished, and how far all are."""

    def __init__(self, processed: int) -> None:
        self.saved = self.folded = processed
        self.running: dict[int, str] = {}
        self.finished = Ranges()

    @property
    def size(self) -> int:
        """How many indexes above the written progress were handed out."""
        return len(self.running) + self.finished.count + self.folded - self.saved

    def finish(self, indexes: Iterable[int]) -> None:
        """Mark indexes that ran as finished."""
        for index in indexes:
            if self.running.pop(index, None) is not None:
                self.finished.add(index)

    def walk(self, *, max_processing: int, max_ahead: int, head: int | None) -> Walk[T]:
        """The walk from here; nothing changes before `fold` and `admit`."""
        return scan(
            self.running,
            self.finished,
            processed=self.folded,
            max_processing=max_processing,
            max_ahead=max_ahead,
            head=head,
        )

    def fold(self, found: Found[T]) -> None:
        """Let P follow a walk."""
        self.folded = found.processed
        self.finished.drop_through(self.folded)

    def admit(self, jobs: Iterable[IndexedJob[T]]) -> None:
        """Jobs that are about to run; two of the same id could not be told apart when one is done."""
        ids = {id: index for index, id in self.running.items()}
        for job in jobs:
            if (other := ids.get(job.id)) is not None:
                needed = f"unlike that at {other:,}, which has not ended"
                raise BadInput(f"id of the job at index {job.index:,}", job.id, needed=needed)
            ids[job.id] = job.index
            self.running[job.index] = job.id
