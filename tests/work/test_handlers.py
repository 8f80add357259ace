"""What handlers are given, in real workers: contexts, steps, logs, limits, batches."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from tests.work.conftest import PATIENCE_S, Bench

APP = "tests.work.handlers:queue"


def work(bench: Bench, *words: str) -> str:
    """Have a worker do all there is to do; what it said."""
    worker = bench.start("--until-empty", *words, name=APP)
    _, said = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A store with a worker, for all tests that need no worker of their own."""
    folder = tmp_path_factory.mktemp("shared")
    made = Bench(folder)
    # Each test connects by itself: its threads are not those of this one.
    made.queue.close()
    with (folder / "log").open("wb") as log:
        made.start(name=APP, stderr=log)
    yield made
    made.close()


@pytest.fixture
def shared(running: Bench) -> Iterator[Bench]:
    """The store whose worker runs what a test adds, with nothing noted yet."""
    running.notes.write_text("")
    with holdfast.connect(running.store) as running.queue:
        yield running


def wait_for_end(bench: Bench, *jobs: holdfast.Handle[Any]) -> None:
    """Wait until the worker of the store has ended jobs."""
    bench.wait_for(lambda: {job.get().state for job in jobs} <= {"FINISHED", "FAILED", "CANCELLED"})


def texts(bench: Bench, job: holdfast.Handle[Any]) -> list[str]:
    """The lines of a job's log."""
    return [line.text for line in bench.queue.log(job)]


def test_a_step_is_done_once_and_the_log_has_both_runs(shared):
    """Through the supervisor, under the job's claim."""
    job = shared.queue.add("steps", {"name": "a"}, backoff="10ms")

    wait_for_end(shared, job)

    assert job.result() == ["receipt of a", 2, job.id]
    assert len(shared.noted("paid")) == 1
    assert texts(shared, job) == ["attempt 1", "attempt 2"]
    assert [end.error for end in job.get().errors] == ["ValueError: not yet"]


def test_steps_and_lines_outlive_the_process_that_made_them(bench):
    """Killed in the midst of it, the job goes on where it was; what it had said is there."""
    job = bench.queue.add("dies", losses=5)
    bench.start("--until-empty", "--lease", "10m", name=APP)
    bench.wait_for(lambda: texts(bench, job) == ["before the end"])
    assert bench.queue.steps(job) == {"first": None}
    bench.wait_for(lambda: bench.noted("first-done"))

    os.kill(bench.noted("first-done")[0], signal.SIGKILL)

    assert job.result(wait=PATIENCE_S) == "done"
    assert (len(bench.noted("first")), len(bench.noted("second"))) == (1, 1)


@pytest.mark.parametrize(
    ("task", "force"),
    [
        ("patient", False),
        ("patient_on_a_loop", True),
        pytest.param("patient", True, marks=pytest.mark.proof),
        pytest.param("patient_on_a_loop", False, marks=pytest.mark.proof),
    ],
)
def test_cancelling_a_running_job_reaches_it_at_once(bench, task, force):
    """Long before its lease is renewed; also where it is no longer asked for its answer."""
    job = bench.queue.add(task)
    worker = bench.start("--lease", "10m", "-v", name=APP)
    bench.wait_for(lambda: bench.noted("began"))

    job.cancel(force=force)

    bench.wait_for(lambda: bench.noted("heard"))
    bench.wait_for(lambda: job.get().state == "CANCELLED")
    worker.terminate()
    _, said = worker.communicate(timeout=PATIENCE_S)
    assert job.get().claim == 1
    assert "was cancelled: its run ended after" in said
    assert "runs again" not in said


def test_soft_limits_interrupt_functions_and_coroutines(shared):
    """One cleans up, the other has an error that says why."""
    caught, raised = shared.queue.add("hurried"), shared.queue.add("hurried_on_a_loop", attempts=1)

    wait_for_end(shared, caught, raised)

    assert caught.result() == "cleaned up"
    with pytest.raises(holdfast.JobFailed, match="SoftTimeout"):
        raised.result()


@pytest.mark.parametrize(
    "task", [pytest.param("waits_for_another", marks=pytest.mark.proof), "waits_for_another_and_dies"]
)
def test_no_job_is_kept_for_a_handler_that_waited_and_is_gone(bench, task):
    """Interrupted by its soft limit, or killed: a job that comes later is for others."""
    gone = bench.queue.add(task)
    worker = bench.start("--lease", "10m", name=APP)
    if task == "waits_for_another_and_dies":
        bench.wait_for(lambda: bench.noted("began"))
        # Its claim reaches the supervisor.
        time.sleep(0.5)
        os.kill(bench.noted("began")[0], signal.SIGKILL)
    bench.wait_for(lambda: gone.get().state == "FAILED")

    another = bench.queue.add("another")
    # As long as it takes to claim it for a handler that still waits.
    time.sleep(1)

    # Long before the lease of a claim ends.
    assert bench.queue.next(["another"], wait="60s").id == another.id
    worker.terminate()
    worker.wait(PATIENCE_S)


def test_the_lease_of_a_job_that_a_handler_claims_is_renewed(bench):
    """No other worker gets the job meanwhile."""
    another, job = bench.queue.add("another"), bench.queue.add("claims_another")
    worker = bench.start(name=APP)
    bench.wait_for(lambda: bench.noted("claimed"))

    assert bench.queue.next(["another"], wait="2s") is None
    assert job.result(wait=PATIENCE_S) == "FINISHED"
    assert (another.get().claim, another.get().losses) == (1, 0)
    worker.terminate()
    worker.wait(PATIENCE_S)


def test_coroutines_need_no_thread_and_functions_have_theirs(bench):
    """A hundred at once beside one thread, which goes on with its functions meanwhile."""
    met = [bench.queue.add("meets", {"number": 100}) for _ in range(100)]
    functions = [bench.queue.add("first", {"n": n}) for n in range(10)]

    work(bench, "--threads", "1", "--concurrency", "100")

    assert {job.result() for job in met} == {100}
    assert [job.result() for job in functions] == [n + 1 for n in range(10)]
    assert {job.get().claim for job in met} == {1}


def test_no_more_coroutines_run_at_once_than_they_may(bench):
    """Two may, so of three that wait for each other none ends."""
    met = [bench.queue.add("meets", {"number": 3}) for _ in range(3)]
    worker = bench.start("--concurrency", "2", "--drain-timeout", "100ms", name=APP)
    bench.wait_for(lambda: len(bench.noted("met")) == 2)

    worker.terminate()
    worker.communicate(timeout=PATIENCE_S)

    assert len(bench.noted("met")) == 2
    assert {job.get().state for job in met} == {"QUEUED"}


def test_a_batch_is_one_call_with_an_outcome_for_each(bench):
    """Jobs that are there together come together."""
    jobs = bench.queue.add_many([("batch", n) for n in range(100)], attempts=1)

    work(bench)

    sizes = [job.result() for job in jobs[4:]]
    assert max(sizes) > 10
    assert sum(1 for line in bench.notes.read_text().splitlines() if line.startswith("batch-")) < 30
    codes = [(end.code, end.error) for job in jobs[1:4] for end in job.get().errors]
    assert codes == [("failed", "one"), ("retry", "two"), ("error", "ValueError: three")]


def test_a_batch_that_raises_is_an_error_of_each(shared):
    """And an item that does not fit is an error of its own."""
    jobs = [shared.queue.add("broken_batch", n, attempts=1) for n in (1, "two", 3)]

    wait_for_end(shared, *jobs)

    reasons = [job.get().reason for job in jobs]
    assert [("all True" in reason, "item of task" in reason) for reason in reasons] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("task", ["opaque", "opaque_on_a_loop"])
def test_bad_data_and_bad_results_fail_at_their_first_run(shared, task):
    """Another run would not help; the function is not even called with data that does not fit."""
    bad = [shared.queue.add(task, data) for data in ({"n": 1, "m": 2}, {"n": "one"}, b"\xff", {})]
    unwritable = shared.queue.add(task, {"n": 7})

    wait_for_end(shared, *bad, unwritable)

    jobs = [job.get() for job in (*bad, unwritable)]
    assert [(job.state, job.claim) for job in jobs] == [("FAILED", 1)] * 5
    named = ("'m'", "int", "bytes", "argument n", "result")
    assert all(word in job.reason for job, word in zip(jobs, named, strict=True)), jobs
    assert [line.split()[0] for line in shared.notes.read_text().splitlines()] == ["opaque-7"]


def test_each_item_and_result_of_a_batch_fails_alone(shared):
    """At once, and the others are finished."""
    jobs = shared.queue.add_many([("opaque_batch", item) for item in (1, 2, "three", b"4", 5)])

    wait_for_end(shared, *jobs)

    ended = [(job.get().state, job.get().claim) for job in jobs]
    assert ended == [(state, 1) for state in ("FINISHED", "FAILED", "FAILED", "FAILED", "FINISHED")]
    assert ["result" in jobs[1].get().reason, "item" in jobs[2].get().reason] == [True, True]


@pytest.mark.parametrize("task", ["leaves", "leaves_a_loop"])
def test_a_handler_that_would_end_its_process_is_an_error(shared, task):
    """The job is answered, and its executor goes on."""
    job = shared.queue.add(task, attempts=1)
    after = shared.queue.add("first", {"n": 1}, delay="100ms")

    wait_for_end(shared, job, after)

    assert "SystemExit" in job.get().reason
    assert after.result() == 2


def test_a_handler_may_answer_for_itself(shared):
    """Its worker has nothing more to say."""
    job = shared.queue.add("by_hand")

    wait_for_end(shared, job)

    assert job.result() == "by hand"


def test_what_follows_a_job_gets_its_result(shared):
    """Added in the same commit, and run."""
    first = shared.queue.add("first", {"n": 1}, then="second")

    wait_for_end(shared, first)

    shared.wait_for(lambda: bool(shared.queue.jobs(task="second", archived=True)))
    (followed,) = shared.queue.jobs(task="second", archived=True)
    assert shared.queue.result(followed) == 20


def test_a_parent_sees_how_its_children_ended(shared):
    """Made by its context, run by whoever; one of them fails."""
    job = shared.queue.add("parent")

    wait_for_end(shared, job)

    assert job.result() == ["FAILED", "FINISHED"]
