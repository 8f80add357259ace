"""Workers on one file, somebody who kills and stops them, the history of every run, and what it must show.

executor     SIGKILL: its supervisor knows at once, and starts another
supervisor   SIGKILL: its executors end with it, its leases run out; another worker takes its place
sleeper      SIGSTOP of a supervisor for longer than its leases, then SIGCONT: it comes back too late
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

ROOT = Path(__file__).parents[2]
# Long enough that a busy machine does not keep a supervisor from renewing.
LEASE_S = 4.0
ASLEEP_S = LEASE_S * 1.3
# Of every four: two executors, one supervisor, one that sleeps past its leases.
WAYS = ("executor", "supervisor", "executor", "sleeper")
KILLED_APP = "tests.stress.killed:queue"


Worker = subprocess.Popen[bytes]


class Run(NamedTuple):
    """One run of a job, as its handler wrote it down; `end_ns` 0: it never said."""

    job_id: int
    claim: int
    executor: int
    supervisor: int
    begin_ns: int
    end_ns: int


class Blow(NamedTuple):
    """What was done to whom, and when."""

    way: str
    pid: int
    from_ns: int
    until_ns: int


class Gang:
    """The workers of a test, and what befalls them."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        words: Iterable[str],
        store: str = "",
        app: str = KILLED_APP,
        ways: Sequence[str] = WAYS,
        lease_s: float = LEASE_S,
    ) -> None:
        self.store, self.history = store or str(folder / "jobs.db"), folder / "history"
        self.history.touch()
        self.blows: list[Blow] = []
        self._app, self._ways, self._strikes = app, ways, 0
        self._words = (*words, "--lease", f"{lease_s}s")
        self._said = (folder / "said").open("wb")
        self._rng = random.Random()
        self._read, self._rest = self.history.open("rb"), b""
        self._ended = 0
        self._last_turn_ns = time.monotonic_ns()
        # Executors that have run something, with their supervisors, since numbers of processes come again;
        # and supervisors that sleep until a moment.
        self._seen: set[tuple[int, int]] = set()
        self._asleep: dict[Worker, float] = {}
        self.workers = [self._start() for _ in range(workers)]

    def _start(self) -> Worker:
        words = ["worker", self._app, "--create", *self._words]
        command = [sys.executable, "-m", "holdfast", *words]
        places = {"HOLDFAST_KILLS_STORE": self.store, "HOLDFAST_KILLS_HISTORY": str(self.history)}
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | places, stderr=self._said)

    def strike(self) -> None:
        """Kill or stop somebody, whoever it is."""
        way = self._ways[self._strikes % len(self._ways)]
        self._strikes += 1
        awake = [worker for worker in self.workers if worker not in self._asleep]
        worker = self._rng.choice(awake or self.workers)
        blow = {
            "executor": self._kill_executor,
            "supervisor": self._kill_supervisor,
            "sleeper": self._put_to_sleep,
        }
        self.blows.append(blow[way](worker))

    def _kill_executor(self, _worker: Worker) -> Blow:
        """One that has run something: before that, its worker may give up starting, and says so.

        Of whichever worker: a fresh one may take longer to start than the others to do all there is.
        """
        found: list[int] = []

        def is_there() -> bool:
            self.look()
            pairs = [(pid, worker.pid) for worker in self.workers for pid in _children(worker.pid)]
            found[:] = [pid for pid, parent in pairs if (pid, parent) in self._seen]
            return bool(found)

        self.wait(is_there, 60, "executor that has run something")
        victim, now = self._rng.choice(found), time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        return Blow("executor", victim, now, now)

    def _kill_supervisor(self, worker: Worker) -> Blow:
        now = time.monotonic_ns()
        worker.kill()
        worker.wait()
        self._asleep.pop(worker, None)
        self.workers[self.workers.index(worker)] = self._start()
        return Blow("supervisor", worker.pid, now, now)

    def _put_to_sleep(self, worker: Worker) -> Blow:
        now = time.monotonic_ns()
        worker.send_signal(signal.SIGSTOP)
        # Woken by `wait`, once its leases have run out by the clock.
        self._asleep[worker] = time.monotonic() + ASLEEP_S
        return Blow("sleeper", worker.pid, now, now + int(ASLEEP_S * 1e9))

    def _wake(self) -> None:
        for worker in [one for one, until in self._asleep.items() if until < time.monotonic()]:
            del self._asleep[worker]
            worker.send_signal(signal.SIGCONT)

    def _notice_stalls(self) -> None:
        """Where this process got no turn for so long, neither did those who renew leases: nobody's fault."""
        now = time.monotonic_ns()
        if now - self._last_turn_ns > LEASE_S / 3 * 1e9:
            self.blows.append(Blow("stall", 0, self._last_turn_ns, now))
        self._last_turn_ns = now

    def look(self) -> int:
        """How many runs have ended so far, by the history."""
        *whole, self._rest = (self._rest + self._read.read()).split(b"\n")
        for line in whole:
            event, _, _, executor, supervisor, *_ = line.split()
            self._seen.add((int(executor), int(supervisor)))
            self._ended += event == b"end"
        return self._ended

    def wait_for_runs(self, count: int, patience_s: float) -> None:
        """Look until so many runs have ended."""
        self.wait(lambda: self.look() >= count, patience_s, f"{count:,} runs")

    def wait(self, happened: Callable[[], bool], patience_s: float, what: str) -> None:
        """Look until something has happened; a worker that ends of itself fails the test."""
        until = time.monotonic() + patience_s
        while not happened():
            self._wake()
            self._notice_stalls()
            for worker in self.workers:
                assert worker.poll() is None, f"a worker ended with {worker.returncode}: {self.said()}"
            assert time.monotonic() < until, f"no {what} within {patience_s:g} s: {self.said()}"
            time.sleep(0.01)

    def dismiss(self) -> None:
        """Tell all to stop; each gives back what it has and goes in peace."""
        self.wait(lambda: not self._asleep, 60, "waking up of all")
        # Whoever has just been started and cannot hear yet would die of the signal.
        self.wait(lambda: all(_hears(worker.pid) for worker in self.workers), 60, "handlers of all")
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            assert worker.wait(60) == 0, self.said()

    def refused(self) -> int:
        """How many answers came too late, by what the workers have said."""
        return Path(self._said.name).read_text(errors="replace").count(": cannot finish job")

    def said(self) -> str:
        """The end of what the workers have said."""
        return Path(self._said.name).read_text(errors="replace")[-2_000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self._read.close()
        self._said.close()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def _hears(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def read(history: Path) -> list[Run]:
    """All runs, in the order in which they began."""
    begun: dict[tuple[int, int, int], Run] = {}
    for line in history.read_text().splitlines():
        event, job, claim, executor, supervisor, ns = line.split()
        key = (int(job), int(claim), int(executor))
        if event == "begin":
            # Were a claim run twice by one process, that must be seen: nothing is overwritten.
            assert key not in begun, f"claim {claim} of job {job} began twice in process {executor}"
            begun[key] = Run(int(job), int(claim), int(executor), int(supervisor), int(ns), 0)
        else:
            begun[key] = begun[key]._replace(end_ns=int(ns))
    return sorted(begun.values(), key=lambda run: run.begin_ns)


def claims_are_alone(runs: list[Run], stood: dict[int, int]) -> Iterator[str]:
    """One run of each claim, and what stood is the last claim that ever ran.

    A run whose claim was lost may go on for a while beside the next, or even begin then: an executor does
    not know that its supervisor sleeps. What it says must not stand, and that is what is looked at.
    """
    for job_id, theirs in by_job(runs).items():
        claims = [run.claim for run in theirs]
        for claim, times in Counter(claims).items():
            if times > 1:
                yield f"claim {claim} of job {job_id} was run {times} times"
        if job_id not in stood:
            yield f"job {job_id} was run and never accepted"
        elif max(claims) != stood[job_id]:
            yield f"job {job_id} was run under claim {max(claims)}, and finished under {stood[job_id]}"
        elif not max(theirs, key=lambda run: run.claim).end_ns:
            yield f"job {job_id} was finished under claim {stood[job_id]}, whose run never ended"


def unexplained(runs: list[Run], blows: list[Blow]) -> Iterator[str]:
    """Runs that were followed by another although nothing had befallen their process.

    A supervisor that is stopped inside a transaction holds up all others, whose leases may run out too; so
    does a machine that has no turn for them. That excuses what was running for a good part of a lease then.
    """
    struck = {blow.pid for blow in blows}
    sleeps = [(blow.from_ns, blow.until_ns) for blow in blows if blow.way in ("sleeper", "stall")]
    lease_ns = LEASE_S * 1e9
    for job_id, theirs in by_job(runs).items():
        for run, following in pairwise(sorted(theirs, key=lambda run: run.claim)):
            # One that began only after the next had lain with its executor for at least a lease.
            since = min(run.begin_ns, following.begin_ns - lease_ns)
            until = max(run.begin_ns, following.begin_ns)
            held_up = max((min(until, end) - max(since, start) for start, end in sleeps), default=0)
            if not {run.executor, run.supervisor} & struck and held_up < lease_ns / 3:
                yield f"job {job_id} ran again, and nothing had befallen the first run: {run}, {following}"


def by_job(runs: list[Run]) -> dict[int, list[Run]]:
    """The runs of each job, in the order in which they began."""
    found: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.job_id].append(run)
    return found


def late(runs: list[Run]) -> int:
    """How many runs were still going on, or even began, when a later claim of their job had begun."""
    in_order = (sorted(theirs, key=lambda run: run.claim) for theirs in by_job(runs).values())
    pairs = (pair for theirs in in_order for pair in pairwise(theirs))
    return sum(run.end_ns > following.begin_ns for run, following in pairs)
