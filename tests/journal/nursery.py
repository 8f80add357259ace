"""Processes that use a journal until they are killed.

    python -m tests.journal.nursery ROLE DIR KILLS [URL [FILE]]

Each is forked by this one, and gets SIGKILL at a random moment, a third of them perhaps while they open the
journal. What was acknowledged is in the file `acked`, a line for each job, written after the reply. With a
FILE there are as many more kills as it takes until that file exists.

With the role `copies` two of them live at a time, each on a folder of its own, while folders are copied and
replaced by backups; what each was told is in `acked-` and its number.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import holdfast
from holdfast.journal import journal
from holdfast.queue import connect

from .opened import SOON_MS, opened

# The moment of the kill is random in this time.
LIFE_S = 0.15


class Pen:
    """Appends lines to a file. A kill may cut off the last one; the next pen removes what is left of it."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *lines: object) -> None:
        """Write some lines."""
        os.write(self._fd, "".join(json.dumps(line) + "\n" for line in lines).encode())


def add_jobs(folder: Path, tag: str, name: str = "j", told: str = "acked") -> None:
    """Two threads add jobs to a queue with a journal, singly and by many; its ingester moves them."""
    queue = holdfast.connect(_store_url(folder), journal=folder / name)
    acked = Pen(folder / told)

    def go_on(thread: int) -> None:
        rng, number = random.Random(), 0
        while True:
            count = rng.choice([1, 1, 1, 30])
            bodies = [{"tag": f"{tag}.{thread}", "n": number + one} for one in range(count)]
            if count == 1:
                handles = [queue.add("work", bodies[0])]
            else:
                handles = queue.add_many([("work", body) for body in bodies])
            acked.write(
                *((body["tag"], body["n"], job.id) for body, job in zip(bodies, handles, strict=True))
            )
            number += count
            # So that the ingester has its share of the life.
            time.sleep(0.003)

    _run(go_on)


def write_lines(folder: Path, tag: str) -> None:
    """One thread writes and syncs lines, the other reads them, and writes them to the file `stored`."""
    acked, stored = Pen(folder / "acked"), Pen(folder / "stored")
    with opened(folder / "j") as journal:

        def go_on(thread: int) -> None:
            rng, number = random.Random(), 0
            while thread == 0:
                bodies = [(tag, number + one) for one in range(rng.choice([1, 3, 30]))]
                ids = journal.write("work", [json.dumps(body) for body in bodies])
                journal.wsync()
                acked.write(*((*body, job_id) for body, job_id in zip(bodies, ids, strict=True)))
                number += len(bodies)
            while True:
                token = journal.read_reserve(rng.choice([1, 7, 1_000]), SOON_MS)
                lines = journal.read(token)
                stored.write(*((*json.loads(line.data), line.id) for line in lines))
                (journal.rsync if rng.random() < 0.8 else journal.read_cancel)(token)

        _run(go_on)


def _run(go_on: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=go_on, args=(thread,), daemon=True) for thread in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One has ended by an error, which is on stderr.
    os._exit(1)


def copies(folder: Path, kills: int) -> None:
    """Kill processes on folders that are copied and replaced by backups, also in use."""
    rng, lives, done = random.Random(), dict[str, int](), {"copied": 0, "restored": 0}
    names, backups, number = ["j-0", "j-1"], list[str](), count(2)

    def kill(name: str) -> None:
        pid = lives.pop(name)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"the process on {name} ended by itself"

    def copy(name: str) -> None:
        kind = rng.choice(["j", "backup"])
        copied = f"{kind}-{next(number)}"
        # A file that vanishes meanwhile is no fault.
        subprocess.run(["cp", "-a", folder / name, folder / copied], check=False, stderr=subprocess.DEVNULL)
        (names if kind == "j" else backups).append(copied)
        done["copied"] += 1

    def restore(name: str) -> None:
        # What the folder has and the store has not is ingested at the end, under another name.
        if (folder / name).exists():
            (folder / name).rename(folder / f"j-{next(number)}-old")
        subprocess.run(["cp", "-a", folder / rng.choice(backups), folder / name], check=True)
        done["restored"] += 1

    try:
        for life in range(kills):
            name = rng.choice([one for one in names[-4:] if one not in lives])
            if backups and rng.random() < 0.4:
                restore(name)
            lives[name] = _fork(add_jobs, folder, str(life), name, f"acked-{life}")
            if life % 3:
                _wait_for_ack(folder / f"acked-{life}")
            if (folder / name).exists() and rng.random() < 0.6:
                copy(name)
            time.sleep(rng.uniform(0, LIFE_S))
            if len(lives) > 1:
                kill(rng.choice(list(lives)))
    finally:
        for name in list(lives):
            kill(name)
    sys.stdout.write(", ".join(f"{times} folders {verb}" for verb, times in done.items()))


def _fork(work: Callable[..., None], *args: object) -> int:
    """The id of a process that does something until it is killed."""
    pid = os.fork()
    if not pid:
        try:
            work(*args)
        finally:
            os._exit(1)
    return pid


def _wait_for_ack(path: Path) -> None:
    """Wait until a process has opened the journal and uses it."""
    before, until_s = _size(path), time.monotonic() + 30
    while _size(path) == before and time.monotonic() < until_s:
        time.sleep(0.002)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _store_url(folder: Path) -> str:
    return sys.argv[4] if len(sys.argv) > 4 else str(folder / "jobs.db")


def main() -> None:
    """Fork and kill."""
    role, folder, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # A few groups for each segment.
    journal.SEGMENT_BYTES = 2_000
    # A shard that is down is known as such within a life.
    connect.SHARD_PATIENCE_S = 0.02
    # The store is there, and all that is imported late.
    with holdfast.connect(_store_url(folder), journal=folder / "before") as queue:
        queue.get(queue.add("before"))
    if role == "copies":
        copies(folder, kills)
        return
    rng = random.Random()
    for life in count():
        if life >= kills and (len(sys.argv) < 6 or Path(sys.argv[5]).exists()):
            return
        pid = _fork(globals()[role], folder, str(life))
        if life % 3:
            _wait_for_ack(folder / "acked")
        time.sleep(rng.uniform(0, LIFE_S))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"life {life} ended by itself"


if __name__ == "__main__":
    main()
