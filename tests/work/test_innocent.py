"""A process that dies costs its jobs little: the innocent finish, what kills processes is set aside."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

APP = "tests.work.crowd:queue"


def _runs(bench):
    """How often each job was begun."""
    return Counter(line.split()[0] for line in bench.notes.read_text().splitlines())


def _begun(bench, jobs, times=1):
    """Wait until so many jobs have begun as often."""
    bench.wait_for(lambda: sum(count == times for count in _runs(bench).values()) == jobs)


def _finish(worker):
    _, said = worker.communicate(timeout=100)
    assert worker.returncode == 0, said
    return said


@pytest.mark.parametrize(
    ("task", "count", "words"),
    [
        pytest.param("call_api", 20, (), id="coroutines"),
        pytest.param("until_open", 5, ("--threads", "5"), id="functions", marks=pytest.mark.proof),
    ],
)
def test_one_kill_of_an_executor_makes_no_job_fail(bench, task, count, words):
    """Its jobs run once more, in two crowds at the same time, and their limit counts from when they start."""
    gate = bench.notes.parent / "gate"
    data = [{"name": f"job-{n}", "gate": str(gate)} for n in range(count)]
    jobs = [bench.queue.add(task, one, timeout="1m", attempts=3) for one in data]
    worker = bench.start("--until-empty", *words, name=APP)
    _begun(bench, count)

    os.kill(bench.noted("job-0")[0], signal.SIGKILL)
    _begun(bench, count, times=2)
    gate.touch()
    _finish(worker)

    assert {(str(job.get().state), job.get().losses, job.get().attempts) for job in jobs} == {
        ("FINISHED", 0, 0)
    }
    assert set(_runs(bench).values()) == {2}
    later = {bench.noted(one["name"])[1] for one in data}
    assert len(later) > 1


@pytest.mark.proof
def test_a_supervisor_that_is_killed_costs_each_job_one_loss_at_most(bench):
    """The next one runs them side by side; none waits for its limit to pass."""
    gate = bench.notes.parent / "gate"
    data = [{"name": f"job-{n}", "gate": str(gate)} for n in range(5)]
    jobs = [bench.queue.add("until_open", one, timeout="10m") for one in data]
    worker = bench.start("--threads", "5", "--lease", "2s", name=APP)
    _begun(bench, 5)
    bench.wait_for(lambda: all(job.get().started_at for job in jobs))

    worker.kill()
    second = bench.start("--until-empty", "--threads", "5", name=APP)
    _begun(bench, 5, times=2)
    gate.touch()
    _finish(second)

    assert {str(job.get().state) for job in jobs} == {"FINISHED"}
    assert {job.get().losses for job in jobs} == {1}
    assert set(_runs(bench).values()) == {2}


def test_what_was_handed_over_and_not_begun_is_no_loss(bench):
    """One job runs and the others wait behind it when the supervisor is killed: only that one is charged."""
    long = bench.queue.add("compute", {"name": "long", "seconds": 600.0}, priority=900)
    warm = [
        bench.queue.add("compute", {"name": f"warm-{n}", "seconds": 0.0}, priority=901) for n in range(30)
    ]
    jobs = [bench.queue.add("compute", {"name": f"job-{n}", "seconds": 0.0}) for n in range(20)]
    worker = bench.start("--lease", "2s", "--tasks", "compute", name=APP)
    bench.wait_for(lambda: bench.noted("long") and long.get().started_at)

    worker.kill()
    bench.wait_for(lambda: long.get().state == "QUEUED" or bench.queue.next(["nothing"], wait=0.1))

    assert {str(job.get().state) for job in warm} == {"FINISHED"}
    assert long.get().losses == 1
    assert {job.get().losses for job in jobs} == {0}


def test_of_a_crowd_only_the_one_that_kills_is_quarantined(bench):
    """Crowds are halved with each crash, so nobody runs often; what is alone and crashes is a loss."""
    data = [{"name": f"job-{n}", "seconds": 0.3} for n in range(16)]
    jobs = [bench.queue.add("call_api", one) for one in data]
    poison = bench.queue.add("poison", {"name": "poison", "seconds": 0.0}, losses=3, priority=400)

    _finish(bench.start("--until-empty", "--threads", "2", name=APP))

    assert {(str(job.get().state), job.get().losses) for job in jobs} == {("FINISHED", 0)}
    assert (str(poison.get().state), poison.get().losses) == ("FAILED", 3)
    assert "quarantined" in poison.get().reason
    runs = _runs(bench)
    # It ran in crowds of at most 17, 9, 5, 3 and 2; and three times alone.
    assert runs["poison"] <= 5 + 3
    assert max(runs[one["name"]] for one in data) <= 6


@pytest.mark.proof
def test_a_job_beside_one_that_kills_after_its_time_limit_counts_no_loss(bench):
    """The handler of the other goes on, and may be the cause, although its job has failed."""
    now, gate = bench.notes.parent / "now", bench.notes.parent / "gate"
    data = {"name": "late", "seconds": 0.0, "gate": str(now)}
    late = bench.queue.add("poison", data, timeout="1s", attempts=1)
    job = bench.queue.add("until_open", {"name": "good", "gate": str(gate)}, losses=3)
    worker = bench.start("--until-empty", "--threads", "2", name=APP)
    bench.wait_for(lambda: bench.noted("good") and late.get().state == "FAILED")

    now.touch()
    bench.wait_for(lambda: len(bench.noted("good")) == 2)
    gate.touch()
    _finish(worker)

    assert _runs(bench) == {"late": 1, "good": 2}
    assert (job.get().state, job.get().losses) == ("FINISHED", 0)


def test_a_job_that_may_be_lost_only_once_never_runs_twice(bench):
    """Whether it ended its process or only stood beside."""
    once = [bench.queue.add("call_api", {"name": f"once-{n}", "seconds": 600.0}, losses=1) for n in range(3)]
    worker = bench.start("--until-empty", name=APP)
    _begun(bench, 3)

    os.kill(bench.noted("once-0")[0], signal.SIGKILL)
    _finish(worker)

    assert {(str(job.get().state), job.get().losses) for job in once} == {("FAILED", 1)}
    assert set(_runs(bench).values()) == {1}


@pytest.mark.proof
def test_short_jobs_do_not_wait_behind_a_long_one_while_an_executor_is_free(bench):
    """They are taken back from the executor that is busy; the long job ends when the others have."""
    gate = bench.notes.parent / "gate"
    short = [bench.queue.add("until_open", {"name": f"short-{n}"}) for n in range(300)]
    long = bench.queue.add("until_open", {"name": "long", "gate": str(gate)})
    more = [bench.queue.add("until_open", {"name": f"more-{n}"}) for n in range(300)]
    worker = bench.start("--until-empty", "--processes", "2", "--threads", "1", name=APP)

    bench.wait_for(lambda: bench.queue.counts()["until_open"] == {"FINISHED": 600, "RUNNING": 1})

    assert long.get().state == "RUNNING"
    gate.touch()
    _finish(worker)
    assert long.get().state == "FINISHED"
    assert {job.get().losses + job.get().attempts for job in (*short, *more)} == {0}
    assert set(_runs(bench).values()) == {1}


@pytest.mark.proof
@pytest.mark.parametrize("task", [pytest.param("until_open", marks=pytest.mark.proof), "hog_until_open"])
def test_what_waits_behind_a_job_that_hangs_goes_to_another_worker(bench, task):
    """Also where the handler holds the interpreter lock, so that its process can give nothing back."""
    gate = bench.notes.parent / "gate"
    for n in range(200):
        bench.queue.add(task, {"name": f"warm-{n}"})
    hangs = bench.queue.add(task, {"name": "hangs", "gate": str(gate)})
    for n in range(200):
        bench.queue.add(task, {"name": f"short-{n}"})
    first = bench.start("--threads", "1", name=APP)
    bench.wait_for(lambda: bench.noted("hangs"))

    second = bench.start("--threads", "1", name=APP)
    bench.wait_for(lambda: bench.queue.counts()[task] == {"FINISHED": 400, "RUNNING": 1})

    assert hangs.get().state == "RUNNING"
    assert set(_runs(bench).values()) == {1}
    gate.touch()
    bench.wait_for(lambda: hangs.get().state == "FINISHED")
    for worker in (first, second):
        worker.terminate()
        _finish(worker)


def test_what_an_executor_could_not_begin_in_time_is_run_once(bench):
    """A handler held the interpreter lock; what waited behind it was taken away, and came back."""
    pipe = bench.notes.parent / "pipe"
    os.mkfifo(pipe)
    hog = bench.queue.add("hog", {"name": "hog", "pipe": str(pipe)})
    worker = bench.start("--until-empty", "--threads", "3", name=APP)
    bench.wait_for(lambda: bench.noted("hog"))
    jobs = [bench.queue.add("until_open", {"name": f"job-{n}"}) for n in range(3)]
    bench.wait_for(lambda: any(job.get().claim for job in jobs))
    bench.wait_for(lambda: all(job.get().state == "QUEUED" for job in jobs))

    pipe.open("w").close()
    _finish(worker)

    assert {str(job.get().state) for job in (hog, *jobs)} == {"FINISHED"}
    assert {job.get().losses for job in jobs} == {0}
    assert set(_runs(bench).values()) == {1}


@pytest.mark.proof
def test_suspects_wait_for_an_executor_that_takes_long_to_start(bench, monkeypatch):
    """Their turn comes when it is there."""
    monkeypatch.setenv("HOLDFAST_TEST_IMPORT_S", "3")
    gate = bench.notes.parent / "gate"
    jobs = [bench.queue.add("call_api", {"name": f"job-{n}", "gate": str(gate)}) for n in range(2)]
    worker = bench.start("--until-empty", name=APP)
    _begun(bench, 2)

    os.kill(bench.noted("job-0")[0], signal.SIGKILL)
    _begun(bench, 2, times=2)
    gate.touch()
    _finish(worker)

    assert {str(job.get().state) for job in jobs} == {"FINISHED"}
    assert set(_runs(bench).values()) == {2}


@pytest.mark.proof
def test_a_job_that_ends_the_process_of_work_is_quarantined_too(bench, tmp_path):
    """Each time it is one of few, then alone; what else there is to do is done."""
    script = tmp_path / "script.py"
    script.write_text(
        "import holdfast, os\n"
        f"queue = holdfast.connect({bench.store!r})\n"
        "@queue.task()\n"
        "def fine() -> None: ...\n"
        "@queue.task(losses=2)\n"
        "def deadly() -> None: os._exit(7)\n"
        "holdfast.work(queue, threads=2, lease=1, until_empty=True)\n"
    )
    deadly = bench.queue.add("deadly", losses=2)
    fine = [bench.queue.add("fine") for _ in range(5)]

    codes = [subprocess.run([sys.executable, str(script)]).returncode for _ in range(4)]

    # Its first run counts where it was so slow that its start was committed.
    assert codes in ([7, 7, 7, 0], [7, 7, 0, 0])
    assert (str(deadly.get().state), deadly.get().losses) == ("FAILED", 2)
    assert {str(job.get().state) for job in fine} == {"FINISHED"}
