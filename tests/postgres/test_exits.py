"""A program that adds jobs and ends without closing its queue wakes workers all the same."""

import subprocess
import sys
import threading
import time

import pytest

import holdfast

ADD = "import holdfast, sys; holdfast.connect(sys.argv[1]).add('work')"
# A worker that is not woken never looks by itself here; the wait is over in twice that time.
WOKEN_S = 30.0


@pytest.mark.usefixtures("no_looks")
def test_the_last_job_of_a_program_wakes_a_worker(postgres_url):
    """Also where it ends right after the add."""
    taken_s = []
    with holdfast.connect(postgres_url) as queue:

        def take():
            job = queue.next(["work"], wait=60)
            assert job is not None
            job.done()
            taken_s.append(time.monotonic())

        for _ in range(3):
            waiting = threading.Thread(target=take)
            waiting.start()
            subprocess.run([sys.executable, "-c", ADD, postgres_url], check=True)
            ended_s = time.monotonic()
            waiting.join()

            assert taken_s.pop() - ended_s < WOKEN_S
