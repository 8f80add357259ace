"""A source that can be grown and broken, and a worker whose jobs end when the test says so."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.core.errors import NotFound
from holdfast.indexed import IndexedJob

PATIENCE_S = 60


class Numbers:
    """Job n at index n, up to `last`, but for holes; ids are made by `name`."""

    def __init__(self, last: int = 0, *, name: Callable[[int], str] = str) -> None:
        self.last, self.name = last, name
        self.holes: set[int] = set()
        self.broken: Exception | None = None
        self.asked: list[int] = []

    def head(self) -> int:
        return self.last

    def at(self, index: int) -> IndexedJob[int]:
        self.asked.append(index)
        if self.broken is not None:
            raise self.broken
        if index > self.last or index in self.holes:
            raise NotFound("number", index)
        return IndexedJob(self.name(index), index, index)


class Hands:
    """A worker that notes what it was given, and leaves reporting to the test."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self._changed = threading.Condition()

    def __call__(self, job: IndexedJob[Any]) -> None:
        with self._changed:
            self.given.append(job.index)
            self._changed.notify_all()

    def got(self, indexes: Iterable[int]) -> bool:
        """Wait until these were given, and nothing else."""
        wanted = sorted(indexes)
        with self._changed:
            self._changed.wait_for(lambda: len(self.given) >= len(wanted), PATIENCE_S)
            return sorted(self.given) == wanted


class Until:
    """Waits for something to become true, told when to look."""

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def tell(self, *_: object) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait(self, true: Callable[[], bool]) -> None:
        with self.changed:
            # Some changes have nobody to tell of them: a look now and then beneath.
            for _ in range(PATIENCE_S * 100):
                if true():
                    return
                self.changed.wait(0.01)
        raise AssertionError("it did not come true")


def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    """Call from many threads at the same moment; what they returned."""
    start, results = threading.Barrier(count), dict[int, Any]()

    def go(n: int) -> None:
        start.wait()
        results[n] = call(n)

    threads = [threading.Thread(target=go, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[n] for n in range(count)]
