"""Random crowds: innocent jobs, short and long, beside jobs that hang and jobs that end their process.

A crowd is run by one worker that is killed, or whose executors are, at random moments. However it goes, the
innocent finish, the poisonous are quarantined, the hanging fail by their limit, and no job runs often.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import holdfast

ROOT = Path(__file__).parents[2]
APP = "tests.work.crowd:queue"
PATIENCE_S = 250.0
LEASE_S = 2.0


class Crowd(NamedTuple):
    """What one crowd is made of, and what befalls it."""

    innocent: int
    hanging: int
    poison: int
    executor_kills: int
    supervisor_kills: int
    words: tuple[str, ...]


def random_crowd(rng: random.Random) -> Crowd:
    """Of a few dozen jobs."""
    processes, threads = rng.choice([(1, 1), (1, 4), (2, 2), (2, 8)])
    return Crowd(
        innocent=rng.randint(5, 40),
        hanging=rng.choice([0, 0, 1, 2]),
        poison=rng.choice([0, 0, 1, 2]),
        executor_kills=rng.choice([0, 1, 1, 2]),
        supervisor_kills=rng.choice([0, 0, 0, 1]),
        words=("--processes", str(processes), "--threads", str(threads), "--lease", f"{LEASE_S}s"),
    )


class Run:
    """One crowd on one store, to its end."""

    def __init__(self, folder: Path, store: str, crowd: Crowd, rng: random.Random) -> None:
        self.store, self.crowd, self._rng = store, crowd, rng
        self.notes = folder / "notes"
        self.notes.write_text("")
        self._said = (folder / "said").open("w")
        self.queue = holdfast.connect(store)
        self.jobs: dict[str, Any] = {}
        self.kills: Counter[str] = Counter()

    def fill(self) -> None:
        """Add the jobs, in a random order."""
        names = [f"innocent-{n}" for n in range(self.crowd.innocent)]
        names += [f"hanging-{n}" for n in range(self.crowd.hanging)]
        names += [f"poison-{n}" for n in range(self.crowd.poison)]
        self._rng.shuffle(names)
        for name in names:
            self.jobs[name] = self._added(name)

    def _added(self, name: str) -> Any:
        rng = self._rng
        options: dict[str, Any] = {"priority": rng.choice([400, 500, 600])}
        if name.startswith("poison"):
            data = {"name": name, "seconds": rng.choice([0.0, 0.1, 0.3])}
            return self.queue.add("poison", data, losses=2, **options)
        task = rng.choice(["call_api", "compute"])
        if name.startswith("hanging"):
            options |= {"timeout": "1s", "attempts": 2, "backoff": "10ms"}
            return self.queue.add(task, {"name": name, "seconds": 600.0}, **options)
        data = {"name": name, "seconds": rng.choice([0.0, 0.0, 0.01, 0.1, 0.5])}
        return self.queue.add(task, data, timeout=rng.choice(["8s", "30s"]), losses=10, **options)

    def work(self) -> None:
        """Run the worker until nothing is left, through all kills."""
        kills = ["executor"] * self.crowd.executor_kills + ["supervisor"] * self.crowd.supervisor_kills
        self._rng.shuffle(kills)
        until_s = time.monotonic() + PATIENCE_S
        worker = self._start()
        try:
            while worker.poll() is None or worker.returncode == -signal.SIGKILL:
                assert time.monotonic() < until_s, f"it never ended: {self.queue.counts()}"
                if worker.poll() is not None:
                    worker = self._start()
                if kills and self._rng.random() < 0.1:
                    self._kill(kills, worker)
                time.sleep(0.02)
            assert worker.returncode == 0, Path(self._said.name).read_text()[-2_000:]
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            self._said.close()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", APP, "--until-empty", *self.crowd.words]
        places = {"HOLDFAST_TEST_STORE": self.store, "HOLDFAST_TEST_NOTES": str(self.notes)}
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | places, stderr=self._said)

    def _kill(self, kills: list[str], worker: subprocess.Popen[bytes]) -> None:
        """Kill the supervisor, or an executor that has run something and is still there."""
        pids = {int(line.split()[1]) for line in self.notes.read_text().splitlines()}
        alive = [pid for pid in pids if _parent_of(pid) == worker.pid]
        if not alive:
            return
        way = kills.pop()
        os.kill(worker.pid if way == "supervisor" else self._rng.choice(alive), signal.SIGKILL)
        self.kills[way] += 1

    def runs(self) -> Counter[str]:
        """How often each job began."""
        return Counter(line.split()[0] for line in self.notes.read_text().splitlines())

    def complaints(self) -> list[str]:
        """What did not hold."""
        runs, found = self.runs(), []
        crashes = self.crowd.poison and 8 * self.crowd.poison
        for name, job in self.jobs.items():
            record = job.get()
            kind = name.split("-")[0]
            wanted = "FINISHED" if kind == "innocent" else "FAILED"
            if record.state != wanted or (kind == "poison" and "quarantined" not in record.reason):
                found.append(f"{name} is {record.state}: {record.reason}")
            # Its own runs, one for each kill and crash, and one for each neighbour that was past its limit.
            most = 2 + sum(self.kills.values()) + crashes + 2 * self.crowd.hanging
            if runs[name] > most:
                found.append(f"{name} began {runs[name]} times, with {self.kills} and {self.crowd}")
        return found

    def close(self) -> None:
        """Let go of the store."""
        self.queue.close()


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
