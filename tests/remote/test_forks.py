"""Forks of a process that has a queue on a server."""

import subprocess
import sys

from tests.remote.processes import ServerProcess

PROGRAM = """
import os, sys, threading
import holdfast

queue = holdfast.connect(sys.argv[1])
before = queue.add("work").id
if sys.argv[2] == "waiting":
    threading.Thread(target=lambda: queue.next(["none"], wait=5)).start()
reading, writing = os.pipe()
if not os.fork():
    os.write(writing, b"%d" % queue.add("work").id)
    os._exit(0)
os.wait()
ids = {before, int(os.read(reading, 100)), queue.add("work").id}
assert len(ids) == 3
queue.close()
"""


def test_a_queue_works_after_a_fork(tmp_path):
    """In the child as in the parent, also where the parent waits for jobs."""
    with ServerProcess(str(tmp_path / "jobs.db"), tmp_path) as server:
        for how in ("idle", "waiting"):
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, server.url, how], check=True, timeout=60
            )
