"""The metrics of a worker: its runs by task and outcome, their durations, and the commits of its process."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from ...core import commands as c
from ...core.job import Job
from ...engine import joblog
from ...engine.connection import Connection
from ...engine.metrics import OTHERS, SECONDS, TASKS, CommitMeter, Family, Histogram, render
from ..capacity import TaskDurations

# Serves what a function renders to clients that may read a connection's store.
Listen = Callable[[Connection, Callable[[], bytes]], Awaitable[None]]
# The outcomes, as the metrics of a server name them.
OUTCOMES = {
    **{name: name for name in ("finished", "suspended", "failed", "cancelled")},
    "retry": "retried",
}
RUN_SECONDS = (*SECONDS, 30.0, 60.0, 300.0, 1_800.0, 3_600.0)


class RunMeter:
    """The runs that have ended in one worker. The first tasks have their own series, the others share one."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}

    def _label(self, task: str) -> str:
        if task not in self._seconds:
            if len(self._seconds) >= TASKS:
                task = OTHERS
            self._seconds.setdefault(task, Histogram(RUN_SECONDS))
        return task

    def note_durations(self, task: str, taken_s: Sequence[float]) -> None:
        """Count how long runs of a task took."""
        seconds = self._seconds[self._label(task)]
        for one_s in taken_s:
            seconds.observe(one_s)

    def note_answers(self, ended: Iterable[tuple[c.Answer, Job]]) -> None:
        """Count how runs ended."""
        for answer, job in ended:
            key = self._label(job.task), OUTCOMES[joblog.event_of(job, answer)]
            self._runs[key] = self._runs.get(key, 0) + 1

    def note_lost(self, job: Job) -> None:
        """Count the last run of a job that has ended because its executor did."""
        assert job.ended is not None
        key = self._label(job.task), job.ended.lower()
        self._runs[key] = self._runs.get(key, 0) + 1

    def families(self) -> Iterator[Family]:
        """Its metrics."""
        runs = (
            ("", {"task": task, "outcome": outcome}, float(count))
            for (task, outcome), count in self._runs.items()
        )
        seconds = (one for task, found in self._seconds.items() for one in found.series({"task": task}))
        yield "holdfast_worker_runs_total", "counter", "Runs of this worker, by task and outcome.", runs
        yield "holdfast_worker_run_seconds", "histogram", "How long runs of this worker took.", seconds


class WorkerMetrics:
    """Measures one worker, and serves what it has measured."""

    def __init__(
        self, listen: Listen, durations: TaskDurations, counts: Callable[[], dict[str, int]]
    ) -> None:
        self._listen, self._counts = listen, counts
        self.runs, self._commits = RunMeter(), CommitMeter()
        durations.on_samples = self.runs.note_durations

    async def start(self, connections: Sequence[Connection]) -> None:
        """Measure the commits of these connections, and listen; the first one's store knows the tokens."""
        for connection in connections:
            connection.measure(self._commits)
        await self._listen(connections[0], lambda: render(self._families()))

    def _families(self) -> Iterator[Family]:
        yield from self.runs.families()
        yield from self._commits.families()
        for name, about, field in (
            ("holdfast_worker_running_jobs", "Jobs that run in this worker.", "running"),
            ("holdfast_worker_executors", "Executor processes of this worker.", "processes"),
        ):
            yield name, "gauge", about, [("", {}, self._counts()[field])]
