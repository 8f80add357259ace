"""How long jobs take, task by task, and so how many may be handed over ahead.

Work is handed over ahead by the time that it takes: fifty milliseconds for each thread. So many short jobs
go over together, and of a slow task none more than can start. Behind a slow job nothing waits that
another worker could do.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

# So much work is handed over ahead, for each thread: short jobs must not wait for the wire.
AHEAD_S = 0.05
# But no more than so many jobs, to each executor.
MOST_AHEAD = 3_000
# What a task is taken for before it was measured, and the least that one is taken for.
UNKNOWN_S = 1.0
LEAST_S = 1.5e-5
# How much each new duration counts in the average.
SMOOTHING = 0.2


class Pace:
    """The average duration of each task in this worker."""

    def __init__(self) -> None:
        self._average_s: dict[str, float] = {}

    def note(self, task: str, taken_s: Sequence[float]) -> None:
        """Jobs of a task took so long."""
        before_s = self._average_s.get(task, UNKNOWN_S)
        weight = 1 - (1 - SMOOTHING) ** len(taken_s)
        self._average_s[task] = before_s + weight * (sum(taken_s) / len(taken_s) - before_s)

    def expected_s(self, task: str) -> float:
        """How long the next job of a task will probably take."""
        return max(self._average_s.get(task, UNKNOWN_S), LEAST_S)


class Space(Struct):
    """How much can be taken: jobs that start at once, and work to wait behind them."""

    pace: Pace
    free: int = 0
    ahead_s: float = 0.0
    ahead_jobs: int = 0

    def fits(self, task: str) -> int:
        """How many more jobs of a task."""
        return self._fit(self.pace.expected_s(task))

    def fits_short(self) -> int:
        """How many more jobs, if they are as short as can be."""
        return self._fit(LEAST_S)

    def _fit(self, expected_s: float) -> int:
        return self.free + max(min(int(self.ahead_s / expected_s), self.ahead_jobs), 0)

    def take(self, task: str, count: int = 1) -> None:
        """So many jobs of a task are coming."""
        expected_s = self.pace.expected_s(task)
        starting = min(count, self.free)
        self.free -= starting
        if expected_s > AHEAD_S:
            # A thread that is busy for long is nobody's next.
            self.ahead_s -= starting * AHEAD_S
        self.ahead_s -= (count - starting) * expected_s
        self.ahead_jobs -= count - starting


def space_of(
    pace: Pace, threads: int, running: Sequence[tuple[str, float]], queued: Mapping[str, int]
) -> Space:
    """What one executor can take: it runs these tasks for so long, and has so many of those to run next."""
    space = Space(pace, free=max(threads - len(running), 0), ahead_s=threads * AHEAD_S, ahead_jobs=MOST_AHEAD)
    slow = [task for task, since_s in running if max(pace.expected_s(task), since_s) > AHEAD_S]
    space.ahead_s -= len(slow) * AHEAD_S
    half_s, half = space.ahead_s / 2, MOST_AHEAD // 2
    for task, count in queued.items():
        space.take(task, count)
    if not space.free and (space.ahead_s < half_s or space.ahead_jobs < half):
        # More comes when half of it is done: one or two at a time would be a commit for each.
        space.ahead_s, space.ahead_jobs = 0.0, 0
    return space


def all_of(pace: Pace, spaces: Iterable[Space]) -> Space:
    """What several can take together."""
    total = Space(pace)
    for space in spaces:
        total.free += space.free
        total.ahead_s += max(space.ahead_s, 0.0)
        total.ahead_jobs += max(space.ahead_jobs, 0)
    return total
