"""Processes that are killed while they add jobs with keys and follow-ups: nothing doubled, nothing lost."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.job import Place
from holdfast.core.unique import key_of
from tests.queue_suite.tools import complaints, live, until

ROOT = Path(__file__).parents[2]
KILLS = 4


@pytest.mark.proof
def test_adds_that_are_cut_short_leave_one_job_for_each_key(tmp_path):
    """Two processes at a time, one of them killed again and again."""
    url = f"sqlite:///{tmp_path}/jobs?shards=4"
    rng = random.Random(4)
    with holdfast.connect(url) as queue, _Adder(url):
        for _ in range(KILLS):
            with _Adder(url):
                time.sleep(rng.uniform(0.05, 0.3))
        until(lambda: queue.counts().get("work", {}).get("FINISHED", 0) > KILLS)

    with holdfast.connect(url) as queue:
        queue.connection.ask(c.Upkeep())
        jobs = live(queue)
        keys = Counter(key_of(job) for job in jobs if job.place != Place.DONE)

        assert [key for key, count in keys.items() if key is not None and count > 1] == []
        assert complaints(queue) == []


class _Adder:
    """A process that goes on until the block ends, and then is killed."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.sharded.adder", url]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
