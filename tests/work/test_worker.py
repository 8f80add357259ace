"""What a worker promises: handlers may hang, crash or hog, and no lease ever suffers for it."""

import os
import signal
import time
from pathlib import Path

import pytest

import holdfast
from tests.work.conftest import children_of, lines_of


def is_gone(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked for its end yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_functions_and_coroutines_are_run_and_their_results_kept(bench):
    """Two executors, a few threads each; what a handler adds is committed by the supervisor, and run too."""
    doubles = bench.queue.add_many([("double", {"n": n}) for n in range(200)])
    later, parent = bench.queue.add("later", {"n": 1}), bench.queue.add("family")
    broken = bench.queue.add("broken", attempts=1)

    bench.work("--processes", "2", "--threads", "3")

    assert [job.result() for job in doubles] == [2 * n for n in range(200)]
    assert later.result() == 2
    assert bench.queue.result(parent.result()) == 42
    with pytest.raises(holdfast.JobFailed, match="no good"):
        broken.result()
    assert "tests/work/app.py" in broken.get().outcome.traceback


def test_a_handler_that_holds_the_interpreter_lock_keeps_its_lease_and_finishes_once(bench):
    """For more than two lease lengths."""
    job = bench.queue.add("hog", {"seconds": 5.0})

    bench.work("--lease", "2s")

    assert job.result() == "done"
    assert len(bench.noted("hog")) == 1
    assert (job.get().claim, job.get().losses) == (1, 0)


@pytest.mark.proof
def test_of_eight_jobs_in_one_executor_only_the_one_that_kills_it_is_quarantined(bench):
    """The others are suspects for a while, run alone, and finish."""
    poison = bench.queue.add("poison", losses=2)
    others = [bench.queue.add("patient", {"seconds": 0.2}) for _ in range(7)]

    bench.work("--threads", "8")

    assert poison.get().state == "FAILED"
    assert "quarantined" in poison.get().reason
    assert [job.result() for job in others] == ["done"] * 7
    assert {job.get().losses for job in others} == {0}


def test_the_jobs_of_an_executor_that_is_killed_run_again_at_once(bench):
    """Long before their leases end."""
    job = bench.queue.add("gated")
    bench.start("--until-empty", "--lease", "10m")
    bench.wait_for(lambda: bench.noted("gated"))

    os.kill(bench.noted("gated")[0], signal.SIGKILL)
    bench.wait_for(lambda: len(bench.noted("gated")) == 2)
    bench.open_gate()

    assert job.result(wait=60) == "done"


def test_the_executors_of_a_supervisor_that_is_killed_are_gone_too(bench):
    """And its jobs run again when their leases have ended."""
    job = bench.queue.add("gated")
    worker = bench.start("--lease", "1s")
    bench.wait_for(lambda: bench.noted("gated"))

    worker.kill()

    bench.wait_for(lambda: is_gone(bench.noted("gated")[0]))
    bench.open_gate()
    bench.work()
    assert job.result() == "done"
    assert len(bench.noted("opened")) == 1


def test_the_answer_of_a_worker_that_slept_past_its_lease_is_refused(bench):
    """The second run stands."""
    job = bench.queue.add("gated")
    worker = bench.start("--lease", "1s")
    bench.wait_for(lambda: bench.noted("gated"))
    worker.send_signal(signal.SIGSTOP)

    other = bench.start("--until-empty")
    bench.wait_for(lambda: len(bench.noted("gated")) == 2)
    bench.open_gate()
    assert other.wait(60) == 0
    second = job.get()
    worker.send_signal(signal.SIGCONT)
    worker.terminate()
    _, said = worker.communicate(timeout=60)

    assert second.claim == 2
    assert job.get() == second
    assert f"cannot finish job {job.id}" in said or f"cannot extend job {job.id}" in said


def test_a_job_past_its_limit_loses_its_claim_and_its_executor(bench):
    """Its neighbour may finish first, and nothing is held against it."""
    stuck = bench.queue.add("stuck", timeout="1s", attempts=2, backoff="10ms")
    neighbour = bench.queue.add("patient", {"seconds": 2.0})

    said = bench.work("--threads", "2")

    assert neighbour.result() == "done"
    assert (neighbour.get().claim, neighbour.get().losses) == (1, 0)
    assert stuck.get().state == "FAILED"
    assert stuck.get().attempts == 2
    assert said.count("still running after its limit of 1 s") == 2


def test_a_worker_that_is_told_to_stop_drains(bench):
    """What runs may finish; what has not begun is given back, and nothing is left leased."""
    first = bench.queue.add("gated")
    worker = bench.start()
    bench.wait_for(lambda: bench.noted("gated"))
    second = bench.queue.add("patient", {"seconds": 1.0})

    worker.terminate()
    assert any("finishing " in line for line in lines_of(worker))
    bench.open_gate()
    worker.communicate(timeout=60)

    assert worker.returncode == 0
    assert first.result() == "done"
    assert second.get().state == "QUEUED"
    assert not any("RUNNING" in states for states in bench.queue.counts().values())


def test_what_does_not_end_in_time_is_given_back(bench):
    """It counts as no attempt, and as no loss."""
    job = bench.queue.add("patient", {"seconds": 60})
    worker = bench.start("--drain-timeout", "200ms")
    bench.wait_for(lambda: bench.noted("began"))

    worker.terminate()
    worker.communicate(timeout=60)

    assert job.get().state == "QUEUED"
    assert (job.get().attempts, job.get().losses) == (0, 0)
    assert is_gone(bench.noted("began")[0])


def test_a_task_that_a_worker_does_not_know_waits_for_one_that_does(bench):
    unknown = bench.queue.add("unheard-of")
    known = bench.queue.add("double", {"n": 1})

    bench.work()

    assert known.result() == 2
    assert unknown.get().state == "QUEUED"
    assert unknown.get().claim == 0


def test_a_module_that_cannot_be_imported_is_told_and_nothing_is_claimed(bench):
    job = bench.queue.add("double", {"n": 1})

    worker = bench.start(name="tests.work.nowhere:queue")
    _, said = worker.communicate(timeout=60)

    assert worker.returncode == 1
    assert "nowhere" in said
    assert "Traceback" not in said
    assert job.get().claim == 0


def test_a_worker_whose_first_executor_is_killed_before_it_is_ready_starts_another(bench, monkeypatch):
    """As it does later. The kernel kills processes when memory is short, at any moment."""
    monkeypatch.setenv("HOLDFAST_TEST_IMPORT_S", "1")
    job = bench.queue.add("call_api", {"name": "job"})
    worker = bench.start("--until-empty", name="tests.work.crowd:queue")
    bench.wait_for(lambda: children_of(worker.pid))

    os.kill(children_of(worker.pid)[0], signal.SIGKILL)
    _, said = worker.communicate(timeout=100)

    assert worker.returncode == 0, said
    assert "no executor could be started: its process ended by signal 9 (SIGKILL) before it was ready" in said
    assert job.result() == "done"


def test_an_executor_dies_with_its_supervisor_at_any_moment_of_its_start(bench, monkeypatch):
    """Also before it has begun to import the application, which may take long."""
    monkeypatch.setenv("HOLDFAST_TEST_IMPORT_S", "300")
    for delay_s in (0, 0.05, 1):
        worker = bench.start(name="tests.work.crowd:queue")
        bench.wait_for(lambda worker=worker: children_of(worker.pid))
        (executor,) = children_of(worker.pid)
        time.sleep(delay_s)
        worker.kill()

        bench.wait_for(lambda executor=executor: is_gone(executor))
