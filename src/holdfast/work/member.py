"""A member of the crew: one executor process, and the jobs that it has."""

import asyncio
import subprocess

from msgspec import Struct

from ..core import commands as c
from ..core.job import Job
from ..store.clock import monotonic_s
from .messages import Message, Run, frame
from .resident import resident_bytes

# So much work is handed over ahead, by the durations measured: short jobs must not wait for the wire.
AHEAD_S = 0.05
MOST_AHEAD = 200
# How much each new duration counts in the average.
SMOOTHING = 0.1

# A job by the queue that it came from and its number there.
Key = tuple[int, int]


class Held(Struct):
    """A job that an executor has, and since when it runs; 0: not begun."""

    job: Job
    at: int = 0
    begun_s: float = 0.0


class Member:
    """One executor process."""

    def __init__(self, process: subprocess.Popen[bytes], writer: asyncio.StreamWriter, threads: int) -> None:
        self.process, self._writer, self._threads = process, writer, threads
        self.jobs: dict[Key, Held] = {}
        # Gets nothing new, and is killed when its time is up: its jobs are not to blame.
        self.condemned = False
        self.alone = False
        # Condemned for its memory: what runs in it may be to blame.
        self.overweight = False
        # Goes on until a fresh one has taken its place.
        self.retiring = False
        # How many jobs it has done, and since when it has none.
        self.ran = 0
        self.idle_s = monotonic_s()
        # Its memory when it was ready.
        self.first_bytes = resident_bytes(process.pid)
        self._average_s = 1.0

    def room(self) -> int:
        """How many jobs it may be given: its threads, and some ahead where they are short."""
        if self.condemned or self.alone:
            return 0
        ahead = min(int(AHEAD_S / max(self._average_s, 1e-4)) * self._threads, MOST_AHEAD)
        return max(self._threads + ahead - len(self.jobs), 0)

    def is_full(self) -> bool:
        """Whether all that it can do at once is being done."""
        return self.condemned or self.alone or len(self.jobs) >= self._threads

    def begun(self, key: Key) -> None:
        """A job has started."""
        if held := self.jobs.get(key):
            held.begun_s = monotonic_s()

    def finished(self, key: Key, claim: int | None) -> Job | None:
        """A job is done; the record as last heard of, or None where it is no longer this executor's.

        It may have it again under a later claim, where its supervisor slept past the lease of the first.
        """
        held = self.jobs.get(key)
        if held is None or held.job.claim != claim:
            return None
        del self.jobs[key]
        self.ran += 1
        self.idle_s = monotonic_s()
        if held.begun_s:
            taken_s = monotonic_s() - held.begun_s
            self._average_s += SMOOTHING * (taken_s - self._average_s)
        return held.job

    def suspects(self) -> list[Held]:
        """Which of its jobs may have killed it: those that ran.

        Its last words may be lost with it. Where none is known to have begun, it was one of the first.
        """
        begun = [held for held in self.jobs.values() if held.begun_s]
        return begun or list(self.jobs.values())[: self._threads]

    def runs_alone(self) -> bool:
        """Whether one job runs in it, and no other ever did beside it or before."""
        fresh = self.alone or not self.ran
        return fresh and sum(1 for held in self.jobs.values() if held.begun_s) == 1

    def give(self, claimed: c.Claimed, at: int) -> None:
        """Hand a job over."""
        self.jobs[at, claimed.job.id] = Held(claimed.job, at)
        self.send(Run(jobs=(claimed,), at=at))

    def send(self, message: Message) -> None:
        """Say something to it."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))
