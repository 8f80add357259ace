"""A worker whose store moves to a server under its hands."""

import subprocess
import sys

import holdfast
from tests.work.conftest import ROOT, Bench


def test_a_worker_goes_along_and_finishes_what_it_runs(bench: Bench, postgres_url: str) -> None:
    """The run is neither lost nor done twice, new jobs are found, the worker is seen at the new address."""
    worker = bench.start()
    running = bench.queue.add("hog", {"seconds": 6})
    bench.wait_for(lambda: bool(bench.noted("hog")))

    words = [sys.executable, "-m", "holdfast", "move", bench.store, postgres_url]
    subprocess.run(words, cwd=ROOT, check=True, timeout=60, stdout=subprocess.DEVNULL)

    with holdfast.connect(postgres_url, follow=False) as queue:
        assert queue.get(running).state == "RUNNING"
        assert queue.result(running, wait=60) == "done"
        assert queue.result(queue.add("double", {"n": 4}), wait=60) == 8
        assert queue.get(running).losses == 0
    assert len(bench.noted("hog")) == 1
    listed = subprocess.run(
        [sys.executable, "-m", "holdfast", "workers", "--store", postgres_url, "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(listed.stdout.splitlines()) == 1
    worker.terminate()
    assert worker.wait(60) == 0
