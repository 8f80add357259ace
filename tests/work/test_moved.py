"""A worker whose store moves to a server, or to shards, under its hands."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.work.conftest import ROOT, Bench


@pytest.mark.parametrize("kind", ["server", pytest.param("shards", marks=pytest.mark.proof)])
def test_a_worker_goes_along_and_finishes_what_it_runs(
    bench: Bench, postgres_url: str, tmp_path: Path, kind: str
) -> None:
    """The run is neither lost nor done twice, new jobs are found, the worker is seen at the new address."""
    target = postgres_url if kind == "server" else f"sqlite:///{tmp_path / 'spread'}?shards=4"
    worker = bench.start()
    running = bench.queue.add("gated")
    bench.wait_for(lambda: bool(bench.noted("gated")))

    words = [sys.executable, "-m", "holdfast", "move", bench.store, target]
    subprocess.run(words, cwd=ROOT, check=True, timeout=60, stdout=subprocess.DEVNULL)

    with holdfast.connect(target, follow=False) as queue:
        assert queue.get(running).state == "RUNNING"
        bench.open_gate()
        assert queue.result(running, wait=60) == "done"
        assert queue.result(queue.add("double", {"n": 4}), wait=60) == 8
        assert queue.get(running).losses == 0
    assert len(bench.noted("gated")) == 1
    listed = subprocess.run(
        [sys.executable, "-m", "holdfast", "workers", "--store", target, "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(listed.stdout.splitlines()) == 1
    worker.terminate()
    assert worker.wait(60) == 0
