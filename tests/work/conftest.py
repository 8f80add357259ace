"""Workers to start, watch and kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
PATIENCE_S = 200


class Bench:
    """A store, and workers on it."""

    def __init__(self, folder: Path, store: str = "jobs.db") -> None:
        self.store = store if "://" in store else str(folder / (store or "jobs.db"))
        self.notes = folder / "notes"
        self.notes.touch()
        self.queue = holdfast.connect(self.store)
        self.workers: list[subprocess.Popen[str]] = []

    def start(
        self, *words: str, name: str = "tests.work.app:queue", stderr: int | IO[bytes] = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a worker; it says on stderr what it does."""
        command = [sys.executable, "-m", "holdfast", "worker", *([name] if name else []), "--create", *words]
        places = {"HOLDFAST_TEST_STORE": self.store, "HOLDFAST_TEST_NOTES": str(self.notes)}
        worker = subprocess.Popen(command, cwd=ROOT, env=os.environ | places, stderr=stderr, text=True)
        self.workers.append(worker)
        return worker

    def work(self, *words: str, name: str = "tests.work.app:queue") -> str:
        """Have a worker do all there is to do; what it said."""
        worker = self.start("--until-empty", *words, name=name)
        _, said = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0, said
        return said

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Look until something has happened."""
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < until, "it never happened"
            time.sleep(0.03)

    def open_gate(self) -> None:
        """Let jobs of the task `gated` end."""
        Path(f"{self.notes}.go").touch()

    def noted(self, word: str) -> list[int]:
        """The processes that noted a word, in order."""
        lines = (line.split() for line in self.notes.read_text().splitlines())
        return [int(pid) for said, pid in lines if said == word]

    def close(self) -> None:
        """End whatever still runs."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.communicate()
        self.queue.close()


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and not yet waited for."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has just ended
            continue
    return found


def lines_of(worker: subprocess.Popen[str]) -> Iterator[str]:
    """What a worker says, line by line, until it ends."""
    assert worker.stderr is not None
    return iter(worker.stderr.readline, "")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A store of its own, and nothing left running."""
    made = Bench(tmp_path)
    yield made
    made.close()
