"""A member of the crew: one executor process, and the jobs that it has."""

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...core import commands as c
from ...core.job import Job
from ...store.common.clock import monotonic_s
from ..messages import Began, Message, Ran, Run, frame
from .lanes import Lane
from .pace import Pace, Space, space_of

# A job by the queue that it came from and its number there.
Key = tuple[int, int]
# So many jobs that have yet to begin are a backlog: an executor that has one is read from now and then.
BACKLOG, PAUSE_S = 100, 0.002

# How long an executor has to begin a job that it was given; and how long after that its word that it has
# begun may still be on its way.
BEGIN_S, ON_ITS_WAY_S = 5.0, 1.0

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Held(Struct, gc=False, eq=False):
    """A job that this worker has: the record as last heard of, its data, and since when it runs."""

    key: Key
    claimed: c.Claimed
    lane: Lane
    job: Job
    # When it was given to the executor that has it, by which hand-over; when it began there, 0: not yet.
    given_s: float
    number: int = 0
    begun_s: float = 0.0
    # Whether the store was told that it has begun.
    marked: bool = False

    @property
    def at(self) -> int:
        """The queue that it came from."""
        return self.key[0]

    @property
    def ran_ms(self) -> int | None:
        """How long it has been running; None: it has not begun."""
        return int((monotonic_s() - self.begun_s) * 1000) if self.begun_s else None


def held_of(jobs: Sequence[c.Claimed], at: int, lane: Lane) -> list[Held]:
    """Claimed jobs as they are kept in the books."""
    now_s = monotonic_s()
    return [Held((at, one.job.id), one, lane, one.job, now_s) for one in jobs]


# Of each queue the answers of jobs that are done, with their records as last heard of.
Ended = dict[int, list[tuple[c.Answer, Job]]]


class Heard(NamedTuple):
    """What messages of an executor have changed."""

    ended: Ended
    # Jobs that have begun, and have a time limit.
    limited: list[Held]


class Member:
    """One executor process."""

    def __init__(self, process: subprocess.Popen[bytes], threads: int, pace: Pace) -> None:
        self.process, self._threads, self._pace = process, threads, pace
        self._wire: asyncio.Transport | None = None
        # All that it has; which of it runs; and how many of each task wait, lane by lane.
        self.jobs: dict[Key, Held] = {}
        self._running: dict[Key, Held] = {}
        self._waiting: defaultdict[Lane, dict[str, int]] = defaultdict(dict)
        # Gets nothing new, and is killed when its time is up: its jobs are not to blame.
        self.condemned = False
        # For suspects only.
        self.isolated = False
        # When a job last began or ended in it; and whether it was told to give back what has not begun.
        self.moved_s = monotonic_s()
        self.revoked = False
        # How often it was given jobs; and whether it was ended on purpose.
        self._hand_overs = 0
        self.killed = False
        # Condemned for its memory: what runs in it may be to blame.
        self.overweight = False
        # Goes on until a fresh one has taken its place.
        self.retiring = False
        # How many jobs it has done, and since when it has none.
        self.ran = 0
        self.idle_s = monotonic_s()
        # Its memory when it was ready.
        self.first_bytes = 0

    def ready(self, wire: asyncio.Transport) -> None:
        """It has imported what it will run."""
        self._wire = wire
        self.first_bytes = resident_bytes(self.process.pid)

    @property
    def takes(self) -> bool:
        """Whether it is given jobs like any other."""
        return not (self.condemned or self.isolated)

    def space(self, lane: Lane) -> Space:
        """How much of a lane it can take now: as run at once, and some ahead where they are short."""
        if not self.takes:
            return Space(self._pace)
        now_s = monotonic_s()
        running = [(h.job.task, now_s - h.begun_s) for h in self._running.values() if h.lane == lane]
        return space_of(self._pace, lane.at_once, running, self._waiting[lane])

    def is_full(self) -> bool:
        """Whether all that it can do at once is being done."""
        return not self.takes or len(self.jobs) >= self._threads

    def hear(self, messages: Sequence[Began | Ran]) -> Heard:
        """Note which jobs are done, and which have begun: many at once, so there is no call for each.

        Messages about an earlier hand-over, or a claim that was lost, change nothing. The job may be here
        again under a later claim, where its supervisor slept past the lease of the first.
        """
        now_s = self.moved_s = monotonic_s()
        # First these: most jobs are short, and are done when it is heard that they have begun.
        ended = self._end([one for one in messages if type(one) is Ran], now_s)
        begun = self._begin([one for one in messages if type(one) is Began], now_s)
        return Heard(ended, [held for held in begun if held.job.timeout_ms])

    def _end(self, messages: Sequence[Ran], now_s: float) -> Ended:
        jobs, ended, took = self.jobs, Ended(), dict[str, list[float]]()
        for message in messages:
            at, key = message.at, (message.at, message.job_id)
            held = jobs[key] if key in jobs else None  # noqa: SIM401 - a call less
            if held is None or held.job.claim != message.claim:
                continue
            del jobs[key]
            job = held.job
            if held.begun_s:
                del self._running[key]
            else:
                self._waiting[held.lane][job.task] -= 1
            if job.task in took:
                took[job.task].append(message.took_s)
            else:
                took[job.task] = [message.took_s]
            if message.answer is not None and at in ended:
                ended[at].append((message.answer, job))
            elif message.answer is not None:
                ended[at] = [(message.answer, job)]
        for task, times in took.items():
            self.ran += len(times)
            self.idle_s = now_s
            self._pace.note(task, times)
        return ended

    def _begin(self, messages: Sequence[Began], now_s: float) -> list[Held]:
        jobs, begun = self.jobs, []
        for message in messages:
            key = message.at, message.job_id
            held = jobs[key] if key in jobs else None  # noqa: SIM401 - a call less
            if held is not None and held.number == message.number and not held.begun_s:
                self._waiting[held.lane][held.job.task] -= 1
                held.begun_s, self._running[key] = now_s, held
                begun.append(held)
        return begun

    def returned(self, jobs: Iterable[tuple[Key, int]]) -> list[Held]:
        """Take back jobs that it says it has not started, and will not; those that are its own."""
        mine = [key for key, number in jobs if key in self.jobs and self.jobs[key].number == number]
        return self.take(mine)

    def kill(self) -> None:
        """End it on purpose: what runs in it is not to blame."""
        self.killed = True
        self.process.kill()

    def runs_alone(self) -> bool:
        """Whether one job runs in it, and no other ever did beside it or before."""
        return not self.ran and len(self._running) == 1

    @property
    def running(self) -> int:
        """How many of its jobs have begun."""
        return len(self._running)

    def unbegun(self) -> list[Key]:
        """Which of its jobs have not."""
        return [key for key, held in self.jobs.items() if not held.begun_s]

    def overdue(self) -> list[Key]:
        """Which of its jobs have not begun, and never will: their time to begin is over."""
        late_s = monotonic_s() - BEGIN_S - ON_ITS_WAY_S
        return [key for key, held in self.jobs.items() if not held.begun_s and held.given_s < late_s]

    def give(self, jobs: Sequence[Held]) -> None:
        """Hand jobs over."""
        keys = [held.key for held in jobs]
        if not self.jobs.keys().isdisjoint(keys):
            # One that it still runs under a claim that was lost is another job by now.
            self.take(keys)
        now_s = monotonic_s()
        if len(self.jobs) == len(self._running):
            self.moved_s = now_s
        self._hand_overs += 1
        by_queue: dict[int, list[c.Claimed]] = {at: [] for at, _ in keys}
        for held in jobs:
            held.given_s, held.begun_s, held.number, held.marked = now_s, 0.0, self._hand_overs, False
            waiting, task = self._waiting[held.lane], held.job.task
            waiting[task] = waiting[task] + 1 if task in waiting else 1
            if held.job is not held.claimed.job:
                held.claimed = replace(held.claimed, job=held.job)
            by_queue[held.key[0]].append(held.claimed)
        self.jobs.update(zip(keys, jobs, strict=True))
        for at, claims in by_queue.items():
            by_s = now_s + BEGIN_S
            self.send(Run(jobs=claims, at=at, number=self._hand_overs, begin_by_s=by_s))

    def take(self, keys: Iterable[Key]) -> list[Held]:
        """Take jobs away from it; those that it had."""
        taken = []
        for key in keys:
            if (held := self.jobs.pop(key, None)) is not None:
                if held.begun_s:
                    del self._running[key]
                else:
                    self._waiting[held.lane][held.job.task] -= 1
                taken.append(held)
        return taken

    def renewed(self, key: Key, job: Job) -> None:
        """What is known of a job has changed."""
        held = self.jobs.get(key)
        if held is None or held.job.claim != job.claim or held.job.version > job.version:
            return
        if not held.begun_s and held.job.task != job.task:
            waiting = self._waiting[held.lane]
            waiting[held.job.task] -= 1
            waiting[job.task] = waiting.get(job.task, 0) + 1
        held.job = job

    def rest(self) -> None:
        """While it has a backlog, read from it in steps: what comes meanwhile is handled together."""
        if self._wire is not None and len(self.jobs) - len(self._running) > BACKLOG:
            self._wire.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_S, self._wire.resume_reading)

    def send(self, message: Message) -> None:
        """Say something to it."""
        if self._wire is not None and not self._wire.is_closing():
            self._wire.write(frame(message))


def shared(jobs: Sequence[Held], members: Sequence[Member], lane: Lane) -> dict[Member, list[Held]]:
    """Each job to the executor with the most room for it then."""
    if len(members) == 1:
        return {members[0]: list(jobs)} if jobs else {}
    spaces = {member: member.space(lane) for member in members}
    shares: dict[Member, list[Held]] = {}
    for held in jobs:
        task = held.job.task
        member = max(members, key=lambda one: (spaces[one].fits(task), -len(shares.get(one, ()))))
        spaces[member].take(task)
        shares.setdefault(member, []).append(held)
    return shares


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use; 0 where that cannot be told."""
    try:
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        words = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout) * 1024
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 0
