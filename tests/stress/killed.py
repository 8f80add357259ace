"""The application whose workers are killed: each run is written down outside the system.

    HISTORY    a file to which every run appends a line when it begins and one when it ends:
               begin|end  job  claim  executor  supervisor  monotonic ns

One append a line, so a line stands when its process is killed a moment later, and no two ever mix. The
clock is the machine's own, common to all its processes, and only goes forward.
"""

import os
import time

import holdfast

queue = holdfast.connect(os.environ["HOLDFAST_KILLS_STORE"])

_history = os.open(os.environ["HOLDFAST_KILLS_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _note(event: str, job: holdfast.Job) -> None:
    line = f"{event} {job.id} {job.claim} {os.getpid()} {os.getppid()} {time.monotonic_ns()}\n".encode()
    assert os.write(_history, line) == len(line)


@queue.task()
def work(job: holdfast.Job) -> dict[str, int]:
    """Take as long as the data says; the result says under which claim it was made."""
    _note("begin", job)
    time.sleep(job.data["ms"] / 1000)  # type: ignore[attr-defined]
    _note("end", job)
    return {"claim": job.claim}
