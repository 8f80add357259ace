"""A server that is killed again and again while remote workers work: they go on, and nothing is lost."""

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.queue.connect import connect
from holdfast.store.common.clock import monotonic_s
from tests.house.source import ROOT
from tests.queue_suite.tools import until
from tests.remote.processes import ServerProcess

WORKERS = 8
JOBS = 100_000
ADDED = 100
# Between a server that is ready and its end.
LEAST_S, MOST_S = 0.5, 2.0
LEAST_KILLS = 3
# How long all of it may take: the processes start, and then for each thousand jobs.
START_S, PATIENCE_S = 200.0, 30.0


def finished(folder: Path) -> Counter[int]:
    """How often each job was said to be done."""
    return Counter(int(line) for file in folder.glob("*.done") for line in file.read_text().splitlines())


def _hand(url: str, folder: Path, at: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.remote.hand", url, str(folder / f"{at}.done")]
    with (folder / f"{at}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stderr=log)


def run(folder: Path, jobs: int, tell: Callable[[str], None]) -> None:
    """Add jobs and kill the server while workers work; then look whether all is well."""
    kills, over = 0, threading.Event()
    with ServerProcess(str(folder / "jobs.db"), folder) as server, connect(server.url) as queue:

        def kill() -> None:
            nonlocal kills
            while not over.wait(random.uniform(LEAST_S, MOST_S)):
                server.kill()
                kills += 1
                server.start()

        hands = [_hand(server.url, folder, at) for at in range(WORKERS)]
        killer = threading.Thread(target=kill)
        killer.start()
        start_s = monotonic_s()
        added = [
            job.id for first in range(0, jobs, ADDED) for job in queue.add_many([("work", first)] * ADDED)
        ]
        while queue.counts().get("work", {}).get("FINISHED", 0) < jobs or kills < LEAST_KILLS:
            assert monotonic_s() - start_s < START_S + jobs / 1_000 * PATIENCE_S, queue.counts()
            over.wait(0.2)
        over.set()
        killer.join()
        for _ in hands:
            queue.add("stop")
        for hand in hands:
            assert hand.wait(60) == 0
        took_s = monotonic_s() - start_s
        assert queue.counts()["work"] == {"FINISHED": jobs}
    done = finished(folder)
    tell(f"{jobs:,} jobs by {WORKERS} workers, {kills} kills, {took_s:.0f} s")
    assert len(set(added)) == jobs
    # Each was finished under one claim only: a second report would have been refused.
    assert set(done) == set(added)
    assert max(done.values()) == 1


@pytest.mark.proof
def test_many_jobs_survive_a_server_that_is_killed_again_and_again(tmp_path, tell):
    """Added, claimed and finished through all of it, each once."""
    run(tmp_path, JOBS, tell)


HOLDER = """
import sys
import holdfast

job = holdfast.connect(sys.argv[1]).next(["work"], lease=1, wait=60)
print(job.id, flush=True)
sys.stdin.read()
"""


def test_the_job_of_a_killed_worker_runs_elsewhere_after_its_lease(tmp_path):
    """Not before: the worker renewed it as long as it lived."""
    with ServerProcess(str(tmp_path / "jobs.db"), tmp_path) as server, connect(server.url) as queue:
        added = queue.add("work")
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", HOLDER, server.url], **pipes) as holder:
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) == added.id
            first = queue.get(added).lease_until
            until(lambda: queue.get(added).lease_until > first + 1_000)
            holder.kill()
        last = queue.get(added).lease_until
        job = queue.next(["work"], wait=60)

        assert job is not None
        assert (job.id, job.claim, job.record.losses) == (added.id, 2, 1)
        assert job.record.started_at >= last
