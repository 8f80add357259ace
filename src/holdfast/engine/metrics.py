"""Metrics of one process, in the text format of Prometheus: counters and histograms of bounded size.

`CommitMeter` measures the commits of an engine, if it is given one (`Connection.measure`).
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ..core import commands as c
from ..core.job import Job, Place
from .group import count_of

TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The number of tasks that have series of their own; the others are one.
TASKS = 100
OTHERS = "(others)"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

# The end of a name, the labels and the number.
Series = tuple[str, dict[str, str], float]
# A name, its kind, its help, and its series.
Family = tuple[str, str, str, Iterable[Series]]


class Histogram:
    """How often values were at most each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def series(self, labels: dict[str, str]) -> Iterator[Series]:
        """Its series: a bucket for each bound, the sum and the count."""
        total = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            total += count
            yield "_bucket", labels | {"le": f"{bound:g}"}, total
        yield "_bucket", labels | {"le": "+Inf"}, self.count
        yield "_sum", labels, self.sum
        yield "_count", labels, self.count


class CommitMeter:
    """The commits of one process: how many jobs or commands each had, how long it took, and lost leases."""

    def __init__(self) -> None:
        self._sizes, self._seconds = Histogram(SIZES), Histogram(SECONDS)
        self._leases_lost = 0
        # Several threads may commit at once.
        self._lock = threading.Lock()

    def note_commit(
        self, commands: Sequence[c.Command], lasted_s: float, unreported: Iterable[tuple[Job, Job]]
    ) -> None:
        """Count a commit, and the jobs that it has found lost or expired."""
        size = sum([count_of(command) or 1 for command in commands])
        lost = sum(before.place is Place.RUNNING for before, _ in unreported)
        with self._lock:
            self._sizes.observe(size)
            self._seconds.observe(lasted_s)
            self._leases_lost += lost

    def families(self) -> Iterator[Family]:
        """Its metrics."""
        yield (
            "holdfast_commit_jobs",
            "histogram",
            "Jobs, or other commands, in one commit of this process.",
            self._sizes.series({}),
        )
        yield (
            "holdfast_commit_seconds",
            "histogram",
            "How long the store took for one commit of this process.",
            self._seconds.series({}),
        )
        yield (
            "holdfast_leases_lost_total",
            "counter",
            "Leases that ended without an answer, found by this process.",
            [("", {}, self._leases_lost)],
        )


def render(families: Iterable[Family]) -> bytes:
    """Metrics in the text format."""
    return "".join(_lines(families)).encode()


def _lines(families: Iterable[Family]) -> Iterator[str]:
    for name, kind, about, series in families:
        yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
        for end, labels, number in series:
            said = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
            yield f"{name}{end}{{{said}}} {number:.15g}\n" if said else f"{name}{end} {number:.15g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
