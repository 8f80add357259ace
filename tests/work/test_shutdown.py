"""Shutdown: whatever a worker has when it is told to stop, nothing is lost, run twice or left leased."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.work.conftest import Bench, children_of

APP = "tests.work.several:queue"


def running(bench: Bench) -> int:
    """How many jobs are leased to somebody."""
    return sum(row.get("RUNNING", 0) for row in bench.queue.counts().values())


def stop(worker: subprocess.Popen[str]) -> str:
    """Tell a worker to stop, once; what it said."""
    worker.terminate()
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said
    return said


# Threads here, coroutines in `make proof`.
@pytest.mark.parametrize("task", ["nap", pytest.param("doze", marks=pytest.mark.proof)])
def test_threads_and_coroutines_finish_and_the_rest_goes_back(bench, task):
    """Two executors of three, twenty jobs."""
    jobs = [bench.queue.add(task, {"seconds": 0.5}) for _ in range(20)]
    worker = bench.start("--processes", "2", "--threads", "3", name=APP)
    bench.wait_for(lambda: len(bench.noted(task)) >= 6)

    stop(worker)

    assert running(bench) == 0
    ended = [job for job in jobs if job.get().state == "FINISHED"]
    assert len(ended) == len(bench.noted(task))
    assert {job.get().attempts for job in jobs} == {0}
    assert {job.get().losses for job in jobs} == {0}


def test_what_was_handed_over_ahead_is_given_back_and_run_once(bench):
    """Thousands of short jobs, in the middle of which the worker is stopped; another goes on."""
    bench.queue.add_many([("short", {"n": n, "stops": n == 500}) for n in range(4_000)])
    worker = bench.start("--threads", "2", name=APP)

    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said
    assert running(bench) == 0
    assert bench.queue.counts()["short"]["QUEUED"] > 0
    again = bench.start("--until-empty", "--threads", "2", name=APP)
    again.communicate(timeout=60)

    ran = sorted(int(line.split()[0].removeprefix("short-")) for line in bench.notes.read_text().splitlines())
    assert ran == list(range(4_000))


@pytest.mark.proof
def test_suspects_that_wait_for_their_turn_go_back(bench):
    """An executor died with eight jobs, then one of two with four: two run, and two wait for their turn."""
    jobs = [bench.queue.add("nap", {"seconds": 600.0}) for _ in range(8)]
    worker = bench.start("--threads", "8", "--drain-timeout", "200ms", name=APP)
    bench.wait_for(lambda: len(bench.noted("nap")) == 8)
    os.kill(bench.noted("nap")[0], signal.SIGKILL)
    bench.wait_for(lambda: len(bench.noted("nap")) == 16)
    os.kill(bench.noted("nap")[-1], signal.SIGKILL)
    bench.wait_for(lambda: len(bench.noted("nap")) >= 18)

    stop(worker)

    assert running(bench) == 0
    assert {job.get().state for job in jobs} == {"QUEUED"}
    assert {job.get().losses for job in jobs} == {0}


def test_a_second_signal_stops_now_and_counts_nothing(bench):
    """Long before the drain is over."""
    jobs = [bench.queue.add("nap", {"seconds": 600}) for _ in range(3)]
    worker = bench.start("--threads", "2", "--drain-timeout", "10m", name=APP)
    bench.wait_for(lambda: len(bench.noted("nap")) == 2)

    # `timeout` sends its signal to the process and to its group.
    worker.terminate()
    worker.terminate()
    bench.wait_for(lambda: running(bench) == 2)
    time.sleep(0.1)
    assert (worker.poll(), running(bench)) == (None, 2)
    worker.send_signal(signal.SIGINT)
    _, said = worker.communicate(timeout=60)

    assert worker.returncode == 0, said
    assert running(bench) == 0
    assert said.count("its worker ended the run and released it; it runs again") == 2
    assert {(job.get().state, job.get().attempts, job.get().losses) for job in jobs} == {("QUEUED", 0, 0)}


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_while_an_executor_starts_is_no_error(bench):
    """A terminal sends it to all processes; this one has begun with its imports."""
    worker = bench.start("--processes", "1", name=APP)
    bench.wait_for(lambda: bool(children_of(worker.pid)))
    (executor,) = children_of(worker.pid)
    for file, word in (("cmdline", "executor"), ("maps", "msgspec")):
        bench.wait_for(lambda path=f"/proc/{executor}/{file}", word=word: word in Path(path).read_text())
    os.kill(executor, signal.SIGINT)
    assert worker.stderr is not None
    assert "ready" in worker.stderr.readline()
    worker.send_signal(signal.SIGINT)
    _, said = worker.communicate(timeout=60)

    assert worker.returncode == 0, said
    assert "Traceback" not in said


def test_a_worker_that_is_stopped_while_it_waits_for_a_job_claims_none(bench):
    """What comes at the last moment is nobody's, or given back."""
    for _ in range(2):
        worker = bench.start(name=APP)
        assert worker.stderr is not None
        assert "ready" in worker.stderr.readline()
        worker.terminate()
        bench.queue.add_many([("nap", {"seconds": 0.0})] * 20)
        worker.communicate(timeout=60)

        assert running(bench) == 0


def test_an_executor_that_cannot_answer_gives_back_what_it_had_all_the_same(bench):
    """A handler holds the interpreter lock; nobody is left to say what was not started."""
    hog = bench.queue.add("hog", {"seconds": 60.0})
    worker = bench.start("--threads", "2", "--drain-timeout", "200ms")
    bench.wait_for(lambda: bench.noted("hog"))
    behind = [bench.queue.add("double", {"n": n}) for n in range(3)]
    bench.wait_for(lambda: running(bench) == 2)

    stop(worker)

    assert running(bench) == 0
    states = {(job.get().state, job.get().attempts, job.get().losses) for job in (hog, *behind)}
    assert states == {("QUEUED", 0, 0)}


def test_a_worker_that_is_stopped_while_it_starts_ends_at_once(tmp_path):
    """Its executors import for ever; nothing of it is left."""
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(600)\n")
    words = ["worker", "slow:queue", "--processes", "2"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until_s = time.monotonic() + 60
    while not (tmp_path / "here").exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)

    stop(worker)


def test_a_worker_that_cannot_start_ends_although_its_module_has_started_a_thread(tmp_path):
    """The thread keeps the process of the executor alive."""
    code = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    (tmp_path / "app.py").write_text(code)

    worker = subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", "app:queue"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert worker.returncode == 1
    assert worker.stderr == "holdfast: a worker cannot run app:queue: there is no queue in app\n"
