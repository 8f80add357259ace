"""A member of the crew: one executor process, and the jobs that it has."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..core import commands as c
from ..core.job import Job
from ..store.clock import monotonic_s
from .lanes import Lane
from .messages import Message, Run, frame
from .pace import Pace, Space, space_of
from .resident import resident_bytes

# A job by the queue that it came from and its number there.
Key = tuple[int, int]


class Held(Struct, gc=False):
    """A job that an executor has, and since when it runs; 0: not begun."""

    job: Job
    at: int
    lane: Lane
    begun_s: float = 0.0


class Member:
    """One executor process."""

    def __init__(self, process: subprocess.Popen[bytes], threads: int, pace: Pace) -> None:
        self.process, self._threads, self._pace = process, threads, pace
        self._wire: asyncio.WriteTransport | None = None
        # All that it has; which of it runs; and how many of each task wait, lane by lane.
        self.jobs: dict[Key, Held] = {}
        self._running: dict[Key, Held] = {}
        self._queued: dict[Lane, Counter[str]] = {}
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
        self.first_bytes = 0

    def ready(self, wire: asyncio.WriteTransport) -> None:
        """It has imported what it will run."""
        self._wire = wire
        self.first_bytes = resident_bytes(self.process.pid)

    @property
    def takes(self) -> bool:
        """Whether it is given jobs like any other."""
        return not (self.condemned or self.alone)

    def space(self, lane: Lane) -> Space:
        """How much of a lane it can take now: as run at once, and some ahead where they are short."""
        if not self.takes:
            return Space(self._pace)
        now_s = monotonic_s()
        running = [(h.job.task, now_s - h.begun_s) for h in self._running.values() if h.lane == lane]
        return space_of(self._pace, lane.at_once, running, self._queued.get(lane, {}))

    def is_full(self) -> bool:
        """Whether all that it can do at once is being done."""
        return not self.takes or len(self.jobs) >= self._threads

    def begun(self, key: Key) -> Held | None:
        """A job has started; which it is, unless it is no longer this executor's."""
        held = self.jobs.get(key)
        if held is not None and not held.begun_s:
            self._leave(key, held)
            held.begun_s = monotonic_s()
            self._running[key] = held
        return held

    def finished(self, key: Key, claim: int | None) -> Job | None:
        """A job is done; the record as last heard of, or None where it is no longer this executor's.

        It may have it again under a later claim, where its supervisor slept past the lease of the first.
        """
        held = self.jobs.get(key)
        if held is None or held.job.claim != claim:
            return None
        self.take([key])
        self.ran += 1
        self.idle_s = monotonic_s()
        if held.begun_s:
            self._pace.note(held.job.task, self.idle_s - held.begun_s)
        return held.job

    def suspects(self) -> list[Held]:
        """Which of its jobs may have killed it: those that ran.

        Its last words may be lost with it. Where none is known to have begun, it was one of the first.
        """
        return list(self._running.values()) or list(self.jobs.values())[: self._threads]

    def runs_alone(self) -> bool:
        """Whether one job runs in it, and no other ever did beside it or before."""
        fresh = self.alone or not self.ran
        return fresh and len(self._running) == 1

    @property
    def running(self) -> int:
        """How many of its jobs have begun."""
        return len(self._running)

    def unbegun(self) -> list[Key]:
        """Which of its jobs have not."""
        return [key for key, held in self.jobs.items() if not held.begun_s]

    def give(self, jobs: Sequence[c.Claimed], at: int, lane: Lane) -> None:
        """Hand jobs over."""
        # One that it still runs under a claim that was lost is another job by now.
        self.take((at, claimed.job.id) for claimed in jobs)
        for claimed in jobs:
            self.jobs[at, claimed.job.id] = Held(claimed.job, at, lane)
        queued = self._queued.setdefault(lane, Counter())
        queued.update([claimed.job.task for claimed in jobs])
        self.send(Run(jobs=tuple(jobs), at=at))

    def take(self, keys: Iterable[Key]) -> list[Held]:
        """Take jobs away from it; those that it had."""
        taken = []
        for key in keys:
            if (held := self.jobs.pop(key, None)) is not None:
                self._leave(key, held)
                taken.append(held)
        return taken

    def _leave(self, key: Key, held: Held) -> None:
        """A job goes out of the books: of what runs, or of what waits."""
        if held.begun_s:
            del self._running[key]
            return
        queued = self._queued[held.lane]
        queued[held.job.task] -= 1
        if not queued[held.job.task]:
            del queued[held.job.task]

    def renewed(self, key: Key, job: Job) -> None:
        """What is known of a job has changed."""
        held = self.jobs.get(key)
        if held is None or held.job.claim != job.claim:
            return
        if not held.begun_s and held.job.task != job.task:
            self._leave(key, held)
            self._queued[held.lane][job.task] += 1
        held.job = job

    def send(self, message: Message) -> None:
        """Say something to it."""
        if self._wire is not None and not self._wire.is_closing():
            self._wire.write(frame(message))


def shared(jobs: Sequence[c.Claimed], members: Sequence[Member], lane: Lane) -> dict[Member, list[c.Claimed]]:
    """Each job to whoever has the most room for it then."""
    if len(members) == 1:
        return {members[0]: list(jobs)} if jobs else {}
    spaces = {member: member.space(lane) for member in members}
    shares: dict[Member, list[c.Claimed]] = {}
    for claimed in jobs:
        task = claimed.job.task
        member = max(members, key=lambda one: (spaces[one].fits(task), -len(shares.get(one, ()))))
        spaces[member].take(task)
        shares.setdefault(member, []).append(claimed)
    return shares
