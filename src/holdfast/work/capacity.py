"""How many jobs executors can take: free slots, and prefetched jobs by the measured duration of their task.

Each thread prefetches fifty milliseconds of work. So short jobs are delivered in large batches, and of a slow
task only as many as can start: no job waits behind a slow one that another worker could run.

Tasks that share the same slots of an executor are an execution mode. Each mode has its own claim loop.

functions      one slot for each thread
coroutines     as many slots as the option `concurrency` says; they need no thread
a batch task   its batch size for each thread
handlers       as many slots as the option `handler_slots` says, for all tasks with a handler in the store;
               the jobs of one request of an http handler have one slot together
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from .messages import QueueInfo

# How much work is prefetched for each thread, so that short jobs do not wait for the socket.
PREFETCH_S = 0.05
# The most jobs that an executor prefetches.
MAX_PREFETCH_JOBS = 3_000
# The assumed duration of a task that was not measured yet, and the least of any task.
DEFAULT_S = 1.0
MIN_S = 1.5e-5
# The weight of each new duration in the moving average.
SMOOTHING = 0.2


class ExecutionMode(NamedTuple):
    """Tasks that are claimed together, and how many of their jobs run at once in an executor."""

    name: str
    slots: int
    is_handlers: bool = False


def handlers_mode(queue_index: int, slots: int) -> ExecutionMode:
    """The execution mode of the handlers in a store."""
    return ExecutionMode(f"handlers of {queue_index}", slots, is_handlers=True)


def choose_modes(
    queue_index: int, found: "QueueInfo", chosen: Collection[str], *, threads: int, concurrency: int
) -> dict[str, ExecutionMode]:
    """The execution mode of each chosen task of a queue."""
    functions, coroutines = ExecutionMode("functions", threads), ExecutionMode("coroutines", concurrency)
    modes = {}
    for task in chosen:
        if size := found.batches.get(task):
            modes[task] = ExecutionMode(f"batches of {queue_index} {task}", size * threads)
        else:
            modes[task] = coroutines if task in found.coroutines else functions
    return modes


class TaskDurations:
    """The average duration of each task in this worker."""

    def __init__(self) -> None:
        self._average_s: dict[str, float] = {}
        # How many jobs of a tenant's task share a slot, as one request of its stored handler takes them.
        self.request_sizes: dict[tuple[str, str], int] = {}
        # Gets every sample, if the worker has metrics.
        self.on_samples: Callable[[str, Sequence[float]], None] | None = None

    def add_samples(self, task: str, taken_s: Sequence[float]) -> None:
        """Add measured durations of a task's jobs to its average."""
        before_s = self._average_s.get(task, DEFAULT_S)
        weight = 1 - (1 - SMOOTHING) ** len(taken_s)
        self._average_s[task] = before_s + weight * (sum(taken_s) / len(taken_s) - before_s)
        if self.on_samples is not None:
            self.on_samples(task, taken_s)

    def slots_of(self, tenant: str, task: str, jobs: int = 1) -> float:
        """How many slots jobs of a task have."""
        return jobs / (self.request_sizes.get((tenant, task), 0) or 1)

    def is_slow(self, task: str, since_s: float = 0.0) -> bool:
        """Whether nothing is prefetched behind a job of a task that has been running for so long."""
        return max(self.expected_s(task), since_s) > PREFETCH_S

    def expected_s(self, task: str) -> float:
        """The expected duration of a task's next job."""
        return max(self._average_s.get(task, DEFAULT_S), MIN_S)


class Capacity(Struct):
    """Free slots, and how much work may be prefetched behind them."""

    durations: TaskDurations
    free_slots: int = 0
    prefetch_s: float = 0.0
    prefetch_jobs: int = 0

    def fits(self, task: str) -> int:
        """How many more jobs of a task fit."""
        return self._fit(self.durations.expected_s(task))

    def fits_shortest(self) -> int:
        """How many more jobs fit, if they are as short as possible."""
        return self._fit(MIN_S)

    def _fit(self, expected_s: float) -> int:
        return self.free_slots + max(min(int(self.prefetch_s / expected_s), self.prefetch_jobs), 0)

    def reserve(self, task: str, count: int = 1) -> None:
        """Subtract jobs of a task."""
        expected_s = self.durations.expected_s(task)
        starting = min(count, self.free_slots)
        self.free_slots -= starting
        if self.durations.is_slow(task):
            # Nothing is prefetched for a thread that is busy for long.
            self.prefetch_s -= starting * PREFETCH_S
        self.prefetch_s -= (count - starting) * expected_s
        self.prefetch_jobs -= count - starting


def executor_capacity(
    durations: TaskDurations,
    threads: int,
    running: Sequence[tuple[str, float]],
    queued: Mapping[str, int],
    most: int = MAX_PREFETCH_JOBS,
) -> Capacity:
    """The capacity of an executor with these running jobs (task, seconds) and waiting jobs (by task).

    At most `most` are prefetched.
    """
    capacity = Capacity(
        durations,
        free_slots=max(threads - len(running), 0),
        prefetch_s=threads * PREFETCH_S,
        prefetch_jobs=most,
    )
    slow = [task for task, since_s in running if durations.is_slow(task, since_s)]
    capacity.prefetch_s -= len(slow) * PREFETCH_S
    half_s, half = capacity.prefetch_s / 2, most // 2
    for task, count in queued.items():
        capacity.reserve(task, count)
    if not capacity.free_slots and (capacity.prefetch_s < half_s or capacity.prefetch_jobs < half):
        # Refill when half of it is used: one or two jobs at a time would cost a commit each.
        capacity.prefetch_s, capacity.prefetch_jobs = 0.0, 0
    return capacity


def total_capacity(durations: TaskDurations, capacities: Iterable[Capacity]) -> Capacity:
    """The sum of several capacities."""
    total = Capacity(durations)
    for capacity in capacities:
        total.free_slots += capacity.free_slots
        total.prefetch_s += max(capacity.prefetch_s, 0.0)
        total.prefetch_jobs += max(capacity.prefetch_jobs, 0)
    return total
