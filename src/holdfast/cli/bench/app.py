"""The application that `holdfast bench` has worked by real workers, and its process that waits for jobs.

python -m holdfast.cli.bench.app TRIALS    says "ready", waits for a job and finishes it, so many times;
                                           then the moments at which the jobs had come, as JSON
"""

import json
import os
import sys

from ...queue.connect import connect
from ...store.common.clock import monotonic_s

STORE = "HOLDFAST_BENCH_STORE"

queue = connect(os.environ.get(STORE, "memory://"))


@queue.task()
def noop(path: str, width: int, filler: str) -> None:
    """Nothing: what is measured is everything around it."""


@queue.task()
def hello() -> int:
    """Tell that somebody is there."""
    return os.getpid()


def wait_for_jobs(trials: int) -> None:
    """Be the other process."""
    came = []
    for _ in range(trials):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        job = queue.next(["noop"], wait=60)
        came.append(monotonic_s())
        assert job is not None
        job.done()
    sys.stdout.write(json.dumps(came) + "\n")
    queue.close()


if __name__ == "__main__":
    wait_for_jobs(int(sys.argv[1]))
