"""A remote worker of the kill tests: claims and finishes jobs until there are none, and writes down which.

python -m tests.remote.hand URL FILE
"""

import sys
from pathlib import Path

from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.queue.connect import connect
from holdfast.queue.queue import Queue

CLAIMED = 25
LEASE_S = 5.0


def work(queue: Queue, done: Path) -> None:
    """Work until a job named `stop` comes."""
    with done.open("a", buffering=1) as file:
        while True:
            try:
                jobs = queue.claim(["work", "stop"], limit=CLAIMED, lease=LEASE_S, wait=5)
                stops = [job for job in jobs if job.task == "stop"]
                for job in [job for job in jobs if job.task == "work"] + stops[:1]:
                    _finish(job, file)
                for job in stops[1:]:
                    # For the others.
                    job.release()
                if stops:
                    return
            except HoldfastError as error:
                sys.stderr.write(f"{error}\n")


def _finish(job: object, file: object) -> None:
    try:
        job.done()  # type: ignore[attr-defined]
        if job.task == "work":  # type: ignore[attr-defined]
            file.write(f"{job.id}\n")  # type: ignore[attr-defined]
    except LeaseLost:
        # Somebody else has it: nothing is lost.
        pass


if __name__ == "__main__":
    with connect(sys.argv[1]) as opened:
        work(opened, Path(sys.argv[2]))
