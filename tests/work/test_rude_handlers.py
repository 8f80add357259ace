"""Whatever a handler does, its job ends, and the jobs after it run."""

import re
import time

import pytest

from tests.cli.shell import Shell

APP = "tests.work.rude:queue"
ENDS = {
    "fails_with_a_name": "FAILED",
    "retries_with_a_name": "FAILED",
    "raises_a_name": "FAILED",
    "raises_what_is_mute": "FAILED",
    "exits_in_a_task": "FAILED",
    "returns_what_is_odd": "FAILED",
    "reports_and_logs_a_name": "FINISHED",
    "removes_a_schedule_by_number": "FAILED",
    "reports_true_and_counts_by_number": "FAILED",
    "stops_the_loop": "FINISHED",
    "terminates_a_program": "FINISHED",
    "uses_a_pool": "FINISHED",
    "closes_its_streams": "FAILED",
}


def test_each_job_of_a_rude_handler_ends_and_others_run_after_it(bench):
    """In one executor with one thread, which goes on."""
    rude = {task: bench.queue.add(task) for task in ENDS}
    batch = bench.queue.add("exits_in_a_batch", 1)
    good = bench.queue.add("good")

    bench.work(name=APP)

    assert {task: str(job.get().state) for task, job in rude.items()} == ENDS
    assert batch.get().reason.endswith("the handler raised SystemExit: 1")
    assert rude["terminates_a_program"].result() == -15
    assert rude["fails_with_a_name"].get().reason == "?"
    assert "schedule is 5, and must be text" in rude["removes_a_schedule_by_number"].get().reason
    assert all(job.get().losses == 0 for job in rude.values())
    assert good.result() == 42


@pytest.mark.parametrize(
    ("how", "text"),
    [
        pytest.param("exit", r"ended with exit code 3", marks=pytest.mark.proof),
        ("signal", r"ended by signal 11 \(SIGSEGV\) at .*/tests/work/rude\.py, line \d+, in dies"),
        # A worker that kills such an executor: `test_operating.py`.
        pytest.param("memory", "was killed above its memory limit of 192 MB", marks=pytest.mark.proof),
    ],
)
def test_a_lost_job_says_how_its_process_died(bench, how, text):
    """In its errors and its reason, in `holdfast show` and in the log; its last progress stays."""
    job = bench.queue.add("dies", {"how": how})

    said = bench.work("--memory-limit", "192MB", name=APP)

    after = job.get()
    (how,) = [end.error for end in after.errors]
    assert re.fullmatch(f"the process of the executor {text}", how)
    assert after.reason == f"quarantined: 1 run ended without an answer: {how}"
    assert after.progress.note == "a quarter"
    shown = Shell(bench.notes.parent).ok("show", job.id, "--store", bench.store).out
    assert shown.count(how) >= 2
    assert f"failed: quarantined: 1 run ended without an answer: {how}" in said


def test_the_death_of_an_executor_is_noticed_although_its_children_live(bench):
    """They have its descriptors, but not the socket to the supervisor."""
    job, good = bench.queue.add("dies_before_its_children"), bench.queue.add("good")
    began = time.monotonic()

    bench.work("--lease", "5m", name=APP)

    assert job.get().state == "FAILED"
    assert good.result() == 42
    assert time.monotonic() - began < 60
