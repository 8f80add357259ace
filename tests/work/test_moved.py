"""A worker whose store moves to a server, or to shards, under its hands."""

from pathlib import Path

import pytest

import holdfast
from tests.cli.shell import Shell
from tests.work.conftest import Bench


@pytest.mark.parametrize("kind", ["server", pytest.param("shards", marks=pytest.mark.proof)])
def test_a_worker_goes_along_and_finishes_what_it_runs(
    bench: Bench, postgres_url: str, tmp_path: Path, kind: str
) -> None:
    """The run is neither lost nor done twice, new jobs are found, the worker is seen at the new address."""
    target = postgres_url if kind == "server" else f"sqlite:///{tmp_path / 'spread'}?shards=4"
    worker = bench.start()
    running = bench.queue.add("gated")
    bench.wait_for(lambda: bool(bench.noted("gated")))

    Shell(tmp_path).ok("move", bench.store, target)

    with holdfast.connect(target, follow=False) as queue:
        assert queue.get(running).state == "RUNNING"
        bench.open_gate()
        assert queue.result(running, wait=60) == "done"
        assert queue.result(queue.add("double", {"n": 4}), wait=60) == 8
        assert queue.get(running).losses == 0
    assert len(bench.noted("gated")) == 1
    assert len(Shell(tmp_path).ok("workers", "--store", target, "--json").lines) == 1
    worker.terminate()
    assert worker.wait(60) == 0
