"""Jobs that have not begun leave an executor within a second, whatever its handlers and its process do."""

import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from functools import partial

import pytest

from holdfast.core.queries import ListWorkers
from holdfast.core.units import iso
from tests.work.conftest import Bench, children_of

APP = "tests.work.blocking:queue"
SHORT = 120
# How many times as long as before the jobs may take beside a blocked executor, and how much longer.
TIMES, LONGER_S = 3, 3.0


@pytest.fixture
def pipe(tmp_path):
    """A named pipe at which handlers block until it is opened."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def _names(first, count=SHORT):
    return [("short", {"name": f"job-{n}"}) for n in range(first, first + count)]


def _runs(bench):
    return Counter(line.split()[0] for line in bench.notes.read_text().splitlines())


def _wait_until_finished(bench, count):
    began_s = time.monotonic()
    bench.wait_for(lambda: bench.queue.counts()["short"].get("FINISHED", 0) == count)
    return time.monotonic() - began_s


def _finish(worker):
    worker.terminate()
    _, said = worker.communicate(timeout=100)
    assert worker.returncode == 0, said
    return said


@pytest.mark.parametrize("task", [pytest.param("blocks_loop", marks=pytest.mark.proof), "holds_lock"])
def test_a_coroutine_that_blocks_holds_up_no_other_job(bench, pipe, task):
    """Those that have run are answered, those that have not begun run in the other executor, once."""
    worker = bench.start("--processes", "2", name=APP)
    bench.queue.add_many(_names(0))
    before_s = _wait_until_finished(bench, SHORT)

    jobs = [*_names(SHORT, 60), (task, {"name": "blocker", "pipe": str(pipe)}), *_names(SHORT + 60, 60)]
    _, *added = bench.queue.add_many([("short", {"name": "first"}), *jobs])
    bench.wait_for(lambda: bench.noted("blocker"))
    took_s = _wait_until_finished(bench, 2 * SHORT + 1)

    assert took_s < TIMES * before_s + LONGER_S
    assert added[60].get().state == "RUNNING"
    pipe.open("w").close()
    bench.wait_for(lambda: added[60].get().state == "FINISHED")
    _finish(worker)
    assert set(_runs(bench).values()) == {1}


def test_a_stopped_executor_holds_up_no_job_that_has_not_begun(bench):
    """It is stopped between any two instructions; what it had begun ends when it continues."""
    worker = bench.start("--processes", "2", name=APP)
    bench.queue.add_many(_names(0))
    before_s = _wait_until_finished(bench, SHORT)
    stopped = bench.noted("job-0")[0]

    os.kill(stopped, signal.SIGSTOP)
    began_s = time.monotonic()
    jobs = bench.queue.add_many(_names(SHORT))
    _wait_until_finished(bench, 2 * SHORT)
    took_s = time.monotonic() - began_s

    assert took_s < TIMES * before_s + LONGER_S
    os.kill(stopped, signal.SIGCONT)
    _finish(worker)
    assert {job.get().claim for job in jobs} <= {1, 2}
    assert set(_runs(bench).values()) == {1}


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ("blocks_loop", "blocks the event loop"),
        pytest.param("holds_lock", "holds the process", marks=pytest.mark.proof),
    ],
)
def test_jobs_behind_a_blocked_loop_go_to_another_worker_and_the_blocker_is_named(bench, pipe, task, part):
    """They have not started, as far as anybody sees; `why` and the log say which handler it is, and where."""
    blocker = bench.queue.add(task, {"name": "blocker", "pipe": str(pipe)})
    worker = bench.start(name=APP)
    bench.wait_for(lambda: bench.noted("blocker"))
    short, *others = bench.queue.add_many(_names(0, 20))
    bench.wait_for(lambda: any(job.get().claim for job in others))
    bench.wait_for(lambda: all(job.get().state == "QUEUED" for job in others))

    assert {job.get().started_at for job in others} == {0}
    named = f"{task} (job {blocker.id}) {part}"
    bench.wait_for(lambda: named in short.why())
    assert f"It {part} of its executor" in blocker.why()
    (name,) = [one.name for one in bench.queue.workers()]
    assert f"claim 1 of worker {name}, leased until" in blocker.why()
    second = bench.start(name=APP)
    _wait_until_finished(bench, 20)
    assert blocker.get().state == "RUNNING"
    pipe.open("w").close()
    bench.wait_for(lambda: blocker.get().state == "FINISHED")
    _finish(second)
    said = _finish(worker)
    assert named in said
    assert f"in {task}" in said
    assert set(_runs(bench).values()) == {1}


def test_why_names_the_handler_that_has_the_only_slot(bench):
    """Here it waits for the job that it keeps from running; its error says so."""
    waiting = bench.queue.add("waits_for_other", attempts=1)
    worker = bench.start(name=APP)
    bench.wait_for(lambda: "has the only slot" in bench.queue.why(_child(bench, waiting)))

    why = bench.queue.why(_child(bench, waiting))
    name = bench.queue.connection.ask(ListWorkers())[0].name
    started = iso(waiting.get().started_at)
    assert (
        f"There, waits_for_other (job {waiting.id}) has the only slot of worker {name} since {started}."
        in why
    )
    assert "slot" not in bench.queue.add("short", {"name": "other"}).why()
    bench.wait_for(lambda: waiting.get().state == "FAILED")
    assert "has the only slot of worker" in waiting.get().reason
    _finish(worker)


def _child(bench, waiting):
    """The job that a handler waits for; itself, as long as there is none."""
    found = bench.queue.jobs(task="short_function")
    return found[0].id if found else waiting


class Storm:
    """Executors of one worker are killed, stopped and blocked at random moments."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self._random = bench, random.Random(seed)
        self.killed: set[int] = set()
        self._stopped: dict[int, float] = {}
        self._added = 0

    def run(self, worker: "subprocess.Popen[str]", moments: int) -> None:
        """Add jobs, and disturb an executor at each moment."""
        for _ in range(moments):
            self._add(self._random.randint(1, 30))
            # Executors that never come to run a job would test nothing, and take seconds to start where the
            # machine is busy.
            finished = self._finished()
            self.bench.wait_for(partial(self._has_finished_more_than, finished))
            time.sleep(self._random.uniform(0, 0.4))
            if executors := [pid for pid in children_of(worker.pid) if pid not in self.killed]:
                self._disturb(self._random.choice(executors))
        self._continue(until_s=float("inf"))

    def _add(self, count: int) -> None:
        jobs = []
        for _ in range(count):
            self._added += 1
            data: dict[str, str | float] = {"name": f"job-{self._added}"}
            if self._random.random() < 0.03:
                data[self._random.choice(["block_s", "hold_s"])] = self._random.uniform(0, 0.6)
            jobs.append((self._random.choice(["random_coroutine", "random_function"]), data))
        self.bench.queue.add_many(jobs)

    def _disturb(self, pid: int) -> None:
        if self._random.random() < 0.2:
            self.killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        else:
            self._stopped[pid] = time.monotonic() + self._random.uniform(0, 1)
            os.kill(pid, signal.SIGSTOP)

    def _continue(self, until_s: float) -> None:
        for pid in [pid for pid, continue_s in self._stopped.items() if continue_s < until_s]:
            del self._stopped[pid]
            if pid not in self.killed:
                os.kill(pid, signal.SIGCONT)

    def _has_finished_more_than(self, finished: int) -> bool:
        self._continue(until_s=time.monotonic())
        return self._finished() > finished or self.is_over()

    def _finished(self) -> int:
        return sum(task.get("FINISHED", 0) for task in self.bench.queue.counts().values())

    def is_over(self) -> bool:
        """Whether all jobs have finished."""
        return self._finished() == self._added

    def repeated(self) -> list[str]:
        """The jobs that ran more than once in processes that were not killed."""
        pids = defaultdict(list)
        for line in self.bench.notes.read_text().splitlines():
            name, pid = line.split()
            pids[name].append(int(pid))
        assert len(pids) == self._added
        return [name for name, ran in pids.items() if sum(pid not in self.killed for pid in ran) > 1]


@pytest.mark.parametrize("moments", [5, pytest.param(1_000, id="full", marks=pytest.mark.proof)])
def test_kills_stops_and_blocks_at_random_moments_lose_no_job_and_repeat_none(bench, moments):
    """Unless its process was killed, each job runs once."""
    seed = random.SystemRandom().randrange(2**32)
    storm, options = Storm(bench, seed), ("--processes", "2", "--threads", "2", "--concurrency", "20")
    worker = bench.start(*options, name=APP)
    bench.wait_for(lambda: bool(children_of(worker.pid)))

    storm.run(worker, moments)
    bench.wait_for(storm.is_over)

    _finish(worker)
    assert storm.repeated() == [], f"seed {seed}"
