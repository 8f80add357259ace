"""Hooks in the executors of a worker: once in each process, with what they provide to its jobs."""

import signal

import pytest

NAME = "tests.work.hooked:queue"


def test_executors_run_the_hooks_once_each(bench):
    """Before their first job and at the end; the queue can be used in them."""
    for n in range(5):
        bench.queue.add("seen", {"word": f"s{n}"})
        bench.queue.add("seen_async", {"word": f"a{n}"})
    leaving = [bench.queue.add(task) for task in ("leaving", "leaving_async")]
    worker = bench.start("--processes", "2", "--threads", "4", name=NAME)
    bench.wait_for(lambda: not {*bench.queue.counts()} or _ended(bench) == 14)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.stderr.read()

    for word in ("open", "stop", "close"):
        assert len(bench.noted(word)) == 2, word
        assert {*bench.noted(word)} == {*bench.noted("open")}
    for n in range(5):
        assert len(bench.noted(f"around-seen-s{n}")) == 1
        assert len(bench.noted(f"around-seen_async-a{n}")) == 1
    assert len(bench.noted("around-seen-start")) == 2
    for job in leaving:
        assert bench.queue.get(job).state == "FAILED"
        assert len(bench.noted(f"around-{bench.queue.get(job).task}-None")) == 1
    assert bench.queue.counts()["late"] == {"QUEUED": 2}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("error", "OSError: no network"),
        pytest.param("exit", "a hook raised SystemExit('no network')", marks=pytest.mark.proof),
    ],
)
def test_a_worker_whose_hook_fails_does_not_start(bench, monkeypatch, how, text):
    """It says which error, ends the hooks before, and runs no job."""
    monkeypatch.setenv("HOLDFAST_TEST_BROKEN", how)
    job = bench.queue.add("seen", {"word": "a"})
    worker = bench.start("--until-empty", name=NAME)
    _, said = worker.communicate(timeout=60)

    assert worker.returncode == 1
    assert text in said
    assert len(bench.noted("close")) == len(bench.noted("open")) > 0
    assert bench.queue.get(job).state == "QUEUED"


def _ended(bench) -> int:
    counts = bench.queue.counts().values()
    return sum(states.get("FINISHED", 0) + states.get("FAILED", 0) for states in counts)
