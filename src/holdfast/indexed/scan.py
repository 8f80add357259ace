"""The walk of a consumer over indexes: what to start next, and how far everything is finished.

    P          P+1      P+2      P+3      P+4      P+5      …
    finished │ running  finished finished running  unknown ──▶ ask the source
             └─ the first that is not finished holds P back; the others go on up to the window's end

It is one pure function: it asks the source by `yield`, so that threads and coroutines drive the same one.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Generator
from typing import Generic, NamedTuple, TypeVar

from .source import IndexedJob

T = TypeVar("T")


class Ranges:
    """A set of numbers kept as ranges: a million neighbours are two numbers."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.count = 0

    def __contains__(self, number: int) -> bool:
        return self.end_of(number) is not None

    def __len__(self) -> int:
        """How many ranges there are; `count` is how many numbers."""
        return len(self._starts)

    def end_of(self, number: int) -> int | None:
        """The last number of the range that this one is in, or None."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number <= self._ends[at] else None

    def add(self, number: int) -> None:
        """Add a number; neighbours become one range."""
        at = bisect_right(self._starts, number)
        if at and number <= self._ends[at - 1]:
            return
        self.count += 1
        after = at < len(self._starts) and self._starts[at] == number + 1
        if at and self._ends[at - 1] == number - 1:
            self._ends[at - 1] = self._ends[at] if after else number
            if after:
                del self._starts[at], self._ends[at]
        elif after:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number)

    def drop_through(self, number: int) -> None:
        """Remove everything up to a number."""
        while self._starts and self._starts[0] <= number:
            gone = min(self._ends[0], number) - self._starts[0] + 1
            self.count -= gone
            if self._ends[0] <= number:
                del self._starts[0], self._ends[0]
            else:
                self._starts[0] = number + 1


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
#   3. what is found lies above P and, with a window, at most at P + `max_ahead`; it was neither running nor
#      finished, it comes in order, and below it nothing is left out;
#   4. the walk ends for one of three reasons: no job at that index, no worker free, the window's end.
#
# P is the current one, so the window slides within one walk; finished indexes take up no worker.
def scan(
    running: Collection[int],
    finished: Ranges,
    *,
    processed: int,
    max_processing: int,
    max_ahead: int,
    head: int | None,
) -> Walk[T]:
    """Walk up from P; yields each index whose job is wanted, and is sent the job or None for "none yet".

    `head` is the last index that the source has; None: ask until there is none.
    """
    jobs: list[IndexedJob[T]] = []
    busy, index = 0, processed + 1
    while busy < max_processing and (not max_ahead or index - processed <= max_ahead):
        end = finished.end_of(index)
        if end is not None:
            if index == processed + 1:
                processed = end
            index = end + 1
            continue
        if index not in running:
            job = None if head is not None and index > head else (yield index)
            if job is None:
                break
            jobs.append(job)
        busy += 1
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
