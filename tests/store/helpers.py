"""What tests of the stores share: other processes, and a look at what is there."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast.store.contract import JobFilter
from holdfast.store.sqlite.guard import SETTLED_MS

SRC = Path(__file__).parents[2] / "src"
SECONDS = 60


def all_ids(store):
    """The ids of all live jobs."""
    return store.read(lambda txn: [job.id for job in txn.jobs(JobFilter(), after=0, limit=100_000)])


def wait_until_settled(path):
    """Wait until every change of the folder of a SQLite store will show in its ctime; then it is trusted."""
    while time.time_ns() - path.parent.stat().st_ctime_ns < 2 * SETTLED_MS * 1_000_000:
        time.sleep(0.01)


def execute(path, *statements):
    """What another program does to a file that nobody has open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def run_python(code, *args):
    """Run a program in another process and return what it printed; it must end well."""
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={"PYTHONPATH": str(SRC)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def python(code, *args):
    """A program in another process, which is spoken to by lines; killed at the end if it still runs."""
    command = [sys.executable, "-u", "-c", code, *map(str, args)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(SRC)}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process):
    """The next line that it prints."""
    return process.stdout.readline().strip()


def tell(process, text=""):
    """Send it a line."""
    process.stdin.write(text + "\n")
    process.stdin.flush()
