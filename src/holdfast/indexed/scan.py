"""The walk of a consumer over indexes: what to start next, and how far everything is finished.

    P          P+1      P+2      P+3      P+4      next     …
    finished │ running  finished finished running  unknown ──▶ ask the source
             └─ P stays below the first that is not finished; later ones run up to the end of the window

Indexes are started in order, so each one between P and `next` is running or finished. A walk therefore
examines two places, above P and at `next`; its cost does not depend on the number of indexes between them.

It is one pure function: it requests jobs from the source by `yield`, so that threads and coroutines can use
it.

The ledger has the indexes above a consumer's progress: running, finished, not started. It is not thread-safe.

stored P ──── saved ──── folded ──── running and finished early ────▶
                │           └ all finished up to here; the next write
                └ written: `processed`, and what later stages see
"""

from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Generic, NamedTuple, TypeVar

from ..core.errors import BadInput
from .source import IndexedJob

T = TypeVar("T")


class Ranges:
    """A set of numbers stored as ranges: a million consecutive ones are two numbers. All in constant time."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._ends)

    def add(self, number: int) -> None:
        """Add a number that is not in it; neighbours become one range."""
        start = self._starts.pop(number - 1, number)
        end = self._ends.pop(number + 1, number)
        self._ends[start], self._starts[end] = end, start

    def end_of(self, start: int) -> int | None:
        """The last number of the range that begins here, or None where none does."""
        return self._ends.get(start)

    def drop(self, start: int) -> None:
        """Remove the range that begins here, if one does."""
        if (end := self._ends.pop(start, None)) is not None:
            del self._starts[end]


class Found(NamedTuple, Generic[T]):
    """What a walk found: jobs to start, by index, and the new P."""

    jobs: list[IndexedJob[T]]
    processed: int


Walk = Generator[int, IndexedJob[T] | None, Found[T]]


# The invariant. Before and after, for the P that goes in and the P that comes out:
#
#   1. every index up to P is finished, and P + 1 is not: P never passes a hole, and never stops short of
#      one, unless the walk may not begin at all (`max_processing` 0);
#   2. running and found together are at most `max_processing`, unless more were running before;
#   3. what is found begins at `next`, has no gaps and, with a window, does not pass P + `max_ahead`;
#   4. the walk ends for one of three reasons: no job at that index, no worker free, the window's end.
#
# P is the current one, so the window slides within one walk; finished indexes take up no worker.
def scan(
    finished: Ranges,
    *,
    processed: int,
    running: int,
    next_index: int,
    max_processing: int,
    max_ahead: int,
    head: int | None,
) -> Walk[T]:
    """Advance P, then walk up from `next_index` while fewer than `max_processing` jobs are running.

    Yields each index whose job is wanted, and is sent the job or None for "none yet". `head` is the last
    index that the source has; None: ask until there is none.
    """
    jobs: list[IndexedJob[T]] = []
    if max_processing:
        processed = finished.end_of(processed + 1) or processed
    index = next_index
    while running + len(jobs) < max_processing and (not max_ahead or index - processed <= max_ahead):
        job = None if head is not None and index > head else (yield index)
        if job is None:
            break
        jobs.append(job)
        index += 1
    return Found(jobs, processed)


def drive(walk: Walk[T], at: Callable[[int], IndexedJob[T] | None]) -> Found[T]:
    """Walk with a source that answers at once."""
    try:
        index = next(walk)
        while True:
            index = walk.send(at(index))
    except StopIteration as end:
        found: Found[T] = end.value
        return found


async def drive_async(walk: Walk[T], at: Callable[[int], Awaitable[IndexedJob[T] | None]]) -> Found[T]:
    """Walk with a source that is awaited."""
    try:
        index = next(walk)
        while True:
            job = await at(index)
            index = walk.send(job)
    except StopIteration as end:
        found: Found[T] = end.value
        return found


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
