"""The crew: executor processes, what each of them has, and how they come and go."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..core import commands as c
from ..core.errors import Unavailable
from ..core.job import Job
from ..store.clock import monotonic_s
from .messages import HEAD, Asked, Began, Hello, Message, Ran, Run, Stop, UpMessage, frame, read_up

# An executor that ends before it is ready is started again after this long, doubling up to a minute.
RESTART_S = 0.5
MOST_RESTART_S = 60.0
# So much work is handed over ahead, by the durations measured: short jobs must not wait for the wire.
AHEAD_S = 0.05
MOST_AHEAD = 200
# How long a supervisor that stops waits for its last words to be committed.
SETTLING_S = 5.0
# How much each new duration counts in the average.
SMOOTHING = 0.1


class Held(Struct):
    """A job that an executor has, and since when it runs; 0: not begun."""

    job: Job
    begun_s: float = 0.0


class Member:
    """One executor process."""

    def __init__(self, process: subprocess.Popen[bytes], writer: asyncio.StreamWriter, threads: int) -> None:
        self.process, self._writer, self._threads = process, writer, threads
        self.jobs: dict[int, Held] = {}
        # Gets nothing new, and is killed when its time is up: its jobs are not to blame.
        self.condemned = False
        self.alone = False
        self._average_s = 1.0

    def room(self) -> int:
        """How many jobs it may be given: its threads, and some ahead where they are short."""
        if self.condemned or self.alone:
            return 0
        ahead = min(int(AHEAD_S / max(self._average_s, 1e-4)) * self._threads, MOST_AHEAD)
        return max(self._threads + ahead - len(self.jobs), 0)

    def begun(self, job_id: int) -> None:
        """A job has started."""
        if held := self.jobs.get(job_id):
            held.begun_s = monotonic_s()

    def finished(self, job_id: int, claim: int | None) -> Job | None:
        """A job is done; the record as last heard of, or None where it is no longer this executor's.

        It may have it again under a later claim, where its supervisor slept past the lease of the first.
        """
        held = self.jobs.get(job_id)
        if held is None or held.job.claim != claim:
            return None
        del self.jobs[job_id]
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

    def send(self, message: Message) -> None:
        """Say something to it."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))


class Crew:
    """All executors of a supervisor."""

    def __init__(
        self,
        name: str,
        threads: int,
        log: Callable[[str], None],
        heard: Callable[[Member, Began | Ran | Asked], None],
        lost: Callable[[Member], None],
        ready: Callable[[], None],
    ) -> None:
        self._name, self._threads, self._log = name, threads, log
        self._heard, self._lost, self._ready = heard, lost, ready
        self._members: list[Member] = []
        self._listening: set[asyncio.Task[Any]] = set()
        self._running: set[asyncio.Task[Any]] = set()
        self._change = asyncio.Event()
        self._stopping = False
        self._suspects: list[c.Claimed] = []
        # So many of them are tried at once, each alone in an executor of its own.
        self._trying, self._most_trying = 0, 1

    async def start(self, count: int) -> Hello:
        """Start the executors; what the first one says of itself, or why it cannot be."""
        self._most_trying = count
        started = await asyncio.gather(*(self._start_one() for _ in range(count)))
        for member, hello in started:
            if member is None:
                raise Unavailable(f"{self._name} cannot be worked: {hello.error}")
        return started[0][1]

    async def _start_one(self, *, alone: bool = False) -> tuple[Member | None, Hello]:
        """Start an executor; it, unless it could not be, and what it says of itself."""
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "holdfast.work.executor",
            str(theirs.fileno()),
            str(self._threads),
            self._name,
        ]
        # From this thread and no other: the kernel ends a child with the thread that started it.
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: ASYNC220
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**20)
        member = Member(process, writer, self._threads)
        hello = await _receive(reader)
        if not isinstance(hello, Hello):
            await asyncio.to_thread(process.wait)
            text = f"its process ended with {process.returncode} before it was ready"
            return None, Hello(pid=process.pid, error=text)
        if hello.error:
            await asyncio.to_thread(process.wait)
            return None, hello
        member.alone = alone
        self._members.append(member)
        self._listening.add(asyncio.create_task(self._listen(member, reader)))
        self._ready()
        return member, hello

    async def _listen(self, member: Member, reader: asyncio.StreamReader) -> None:
        while (message := await _receive(reader)) is not None:
            if not isinstance(message, Hello):
                self._heard(member, message)
                self._change.set()
        member.process.kill()
        code = await asyncio.to_thread(member.process.wait)
        self._members.remove(member)
        self._change.set()
        if not self._stopping:
            if not member.condemned:
                self._log(f"executor {member.process.pid} ended with {code}, {len(member.jobs)} jobs in hand")
            self._lost(member)
            if not member.condemned and not member.alone:
                await self._again()

    async def _again(self) -> None:
        wait_s = RESTART_S
        while not self._stopping and (await self._start_one())[0] is None:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, MOST_RESTART_S)

    def replace(self, member: Member, *, grace_s: float) -> None:
        """Give an executor nothing new, start a fresh one, and end it when it is done or out of grace."""
        if not member.condemned:
            member.condemned = True
            if not member.alone:
                self.track(asyncio.create_task(self._again()))
            self.track(asyncio.create_task(self._end(member, grace_s)))
            self.look()

    async def _end(self, member: Member, grace_s: float) -> None:
        await self.until(lambda: not member.jobs, grace_s)
        member.process.kill()

    async def until(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until something is so, looking after each message and each end of an executor."""
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    def look(self) -> None:
        """Have those who wait in `until` look again."""
        self._change.set()

    def room(self) -> int:
        """How many jobs may be claimed now."""
        return sum(member.room() for member in self._members)

    def held(self) -> list[Job]:
        """All jobs that are here."""
        waiting = [claimed.job for claimed in self._suspects]
        return [held.job for member in self._members for held in member.jobs.values()] + waiting

    def hand_over(self, claimed: c.Claimed) -> bool:
        """Give a job to the executor with the most room; a suspect goes to one of its own.

        False: nobody is left to take it, since the last executor died while it was being claimed.
        """
        if claimed.job.losses or claimed.job.suspect:
            self._suspects.append(claimed)
            if self._trying < self._most_trying:
                self._trying += 1
                self.track(asyncio.create_task(self._try_suspects()))
            return True
        takers = [member for member in self._members if not member.condemned and not member.alone]
        if not takers:
            return False
        member = max(takers, key=Member.room)
        member.jobs[claimed.job.id] = Held(claimed.job)
        member.send(Run(jobs=(claimed,)))
        return True

    async def _try_suspects(self) -> None:
        """One after the other, each alone in an executor: only so can be told who it was."""
        try:
            while self._suspects and not self._stopping:
                await self._try_some()
        finally:
            self._trying -= 1

    async def _try_some(self) -> None:
        """In one executor for as long as it lives: a dead supervisor leaves many, most of them innocent."""
        member, hello = await self._start_one(alone=True)
        if member is None:
            self._log(f"no executor for a suspect: {hello.error}")
            await asyncio.sleep(RESTART_S)
            return
        while self._suspects and member in self._members and not member.condemned:
            claimed = self._suspects.pop(0)
            member.jobs[claimed.job.id] = Held(claimed.job)
            member.send(Run(jobs=(claimed,)))
            await self.until(lambda: not member.jobs or member not in self._members)
        member.condemned = True
        member.send(Stop())

    def renewed(self, job: Job) -> None:
        """What is known of a job has changed."""
        for member in self._members:
            if (held := member.jobs.get(job.id)) and held.job.claim == job.claim:
                held.job = job

    def tell(self, job_id: int, message: Message) -> None:
        """Say something to whoever has a job."""
        for member in self._members:
            if job_id in member.jobs:
                member.send(message)

    def take_unbegun(self) -> list[Job]:
        """Take back what no executor has started; one that starts meanwhile is refused."""
        jobs = [claimed.job for claimed in self._suspects]
        self._suspects.clear()
        for member in self._members:
            unbegun = [held.job for held in member.jobs.values() if not held.begun_s]
            for job in unbegun:
                del member.jobs[job.id]
            jobs += unbegun
        return jobs

    def track(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def settled(self) -> None:
        """Wait until everything that was begun here has been said to the store."""
        if self._running:
            await asyncio.wait(self._running, timeout=SETTLING_S)

    def kill(self) -> None:
        """End all executors at once."""
        for member in self._members:
            member.process.kill()

    async def stop(self) -> None:
        """Let the executors go, and wait for them to."""
        self._stopping = True
        for member in self._members:
            member.send(Stop())
        for member in list(self._members):
            try:
                await asyncio.to_thread(member.process.wait, 1)
            except subprocess.TimeoutExpired:
                member.process.kill()
                await asyncio.to_thread(member.process.wait)
        for task in (*self._running, *self._listening):
            task.cancel()


async def _receive(reader: asyncio.StreamReader) -> UpMessage | None:
    try:
        head = await reader.readexactly(HEAD.size)
        message: UpMessage = read_up(await reader.readexactly(HEAD.unpack(head)[0]))
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
