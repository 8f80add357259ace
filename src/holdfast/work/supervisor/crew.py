"""The crew: executor processes, what each of them has, and how they come and go."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.counting import counted
from ...core.errors import AppError
from ...core.job import Job
from ...store.common.clock import monotonic_s
from ..messages import Asked, Began, Hello, Message, Ran, Returned, Revoke, Stop, UpMessage
from .lanes import Lane
from .member import Heard, Held, Key, Member, shared
from .pace import Pace, Space, all_of
from .wire import Wire

# An executor that ends before it is ready is started again after this long, doubling up to a minute.
RESTART_S = 0.5
MOST_RESTART_S = 60.0
# How long executors have to give back what they have not started; one whose interpreter is held may not.
RETURNING_S = 1.0
# How long an executor that has nothing left to do may take to end by itself.
LEAVING_S = 5.0


class Crew:
    """All executors of a supervisor."""

    def __init__(
        self,
        names: Sequence[str],
        threads: int,
        log: Callable[[str], None],
        heard: Callable[[Member, Heard], None],
        asked: Callable[[Member, Asked], None],
        lost: Callable[[Member], None],
        ready: Callable[[], None],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._names, self._threads, self._log = names, threads, log
        self._heard, self._asked, self._lost, self._ready = heard, asked, lost, ready
        self._variables = os.environ | (variables or {})
        self._members: list[Member] = []
        self._pace = Pace()
        self._running: set[asyncio.Task[Any]] = set()
        self._change = asyncio.Event()
        self._stopping = False
        # How many are on their way, and those of them that import what they will run.
        self.starting = 0
        self._hatching: set[subprocess.Popen[bytes]] = set()
        # No executor is started any more.
        self.closing = False
        # Why the last executor that was started could not be; "": it could.
        self.error = ""
        # Those who are to be told what each fresh executor says of itself, and what executors give back
        # unbegun.
        self.said: Callable[[Hello], None] = lambda _hello: None
        self.returned: Callable[[list[Held], Member | None], None] = lambda _jobs, _member: None

    async def start(self, count: int) -> Hello:
        """Start the executors; what the first one says of itself, or why it cannot be."""
        started = await asyncio.gather(*(self._start_one() for _ in range(count)))
        for member, hello in started:
            if member is None:
                raise AppError(" ".join(self._names), hello.error, trace=hello.trace)
        return started[0][1]

    async def _start_one(self, *, isolated: bool = False) -> tuple[Member | None, Hello]:
        """Start an executor; it, unless it could not be, and what it says of itself."""
        try:
            process, ours = self._spawned()
        except OSError as error:
            return None, self._failed(Hello(pid=0, error=f"no process: {error.strerror}"))
        _, wire = await asyncio.get_running_loop().create_unix_connection(Wire, sock=ours)
        assert wire.transport is not None
        self._hatching.add(process)
        hello = await wire.hello
        self._hatching.discard(process)
        if hello is None or hello.error:
            wire.transport.close()
            await asyncio.to_thread(process.wait)
            text = f"its process ended with {process.returncode} before it was ready"
            return None, self._failed(hello or Hello(pid=process.pid, error=text))
        member = Member(process, self._threads, self._pace)
        member.ready(wire.transport)
        self.error = ""
        self.said(hello)
        member.isolated = isolated
        self._members.append(member)
        wire.listen(lambda messages: self._hear(member, messages), lambda: self._bury(member))
        self._ready()
        return member, hello

    def _spawned(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """A new process, and our end of the line to it."""
        ours, theirs = socket.socketpair()
        module = "holdfast.work.executor.executor"
        words = ["-m", module, str(theirs.fileno()), str(self._threads), *self._names]
        with theirs:
            try:
                # From this thread and no other: the kernel ends a child with the thread that started it.
                process = subprocess.Popen(
                    [sys.executable, *words], pass_fds=[theirs.fileno()], env=self._variables
                )
            except OSError:
                ours.close()
                raise
        return process, ours

    def _failed(self, hello: Hello) -> Hello:
        self.error = hello.error
        self.said(hello)
        return hello

    def _hear(self, member: Member, messages: Sequence[UpMessage]) -> None:
        of_jobs = [one for one in messages if type(one) is Ran or type(one) is Began]
        if len(of_jobs) < len(messages):
            # Before the answers: what a handler said of its job came before its end.
            for message in messages:
                if isinstance(message, Returned):
                    member.revoked = False
                    self.returned(member.returned(message.jobs), member)
                elif isinstance(message, Asked):
                    self._asked(member, message)
        if of_jobs:
            self._heard(member, member.hear(of_jobs))
        self._change.set()
        member.rest()

    def _bury(self, member: Member) -> None:
        self.track(asyncio.create_task(self._buried(member)))

    async def _buried(self, member: Member) -> None:
        member.process.kill()
        code = await asyncio.to_thread(member.process.wait)
        self._members.remove(member)
        self._change.set()
        if not self._stopping:
            if not member.condemned:
                jobs = counted(len(member.jobs), "job")
                self._log(f"executor {member.process.pid} ended with {code}, {jobs} in hand")
            self._lost(member)
            if not (member.condemned or member.isolated or member.retiring):
                await self._again()

    async def _again(self) -> None:
        self.starting += 1
        try:
            await self._insist()
        finally:
            self.starting -= 1

    async def _insist(self) -> None:
        wait_s, told = RESTART_S, ""
        while not self.closing:
            started, hello = await self._start_one()
            if started is not None:
                return
            if hello.error != told:
                self._log(f"no executor could be started: {hello.error}")
                told = hello.error
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, MOST_RESTART_S)

    def grow(self) -> None:
        """Start one more."""
        self.track(asyncio.create_task(self._again()))

    def replace(self, member: Member, *, grace_s: float) -> None:
        """Give an executor nothing new, start a fresh one, and end it when it is done or out of grace."""
        if not (member.condemned or member.isolated or member.retiring):
            self.grow()
        member.condemned = True
        self.revoke(member)
        self.track(asyncio.create_task(self._end(member, grace_s)))
        self.look()

    async def _end(self, member: Member, grace_s: float) -> None:
        await self.until(lambda: not member.jobs, grace_s)
        member.kill()

    def recycle(self, member: Member) -> None:
        """Start a fresh executor, and once it is there let this one finish what it has and go."""
        if not (member.retiring or member.condemned or member.isolated):
            member.retiring = True
            self.track(asyncio.create_task(self._recycle(member)))

    async def _recycle(self, member: Member) -> None:
        await self._again()
        if not self.closing:
            await self.dismiss(member)

    async def dismiss(self, member: Member) -> None:
        """Give an executor nothing new, and let it end when it is done."""
        member.condemned = True
        await self.until(lambda: not member.jobs or member not in self._members)
        member.send(Stop())
        await self.until(lambda: member not in self._members, LEAVING_S)
        member.kill()

    async def reload(self) -> bool:
        """Have fresh executors take the place of all; False, and nothing changed, where they cannot start."""
        old = [member for member in self._members if not (member.condemned or member.isolated)]
        if (await self._start_one())[0] is None:
            return False
        for member in old[:1]:
            self.track(asyncio.create_task(self.dismiss(member)))
        for member in old[1:]:
            self.recycle(member)
        return True

    async def until(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until something is so, looking after each message and each end of an executor."""
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    await self.changed()
        except TimeoutError:
            pass

    async def changed(self) -> None:
        """Wait for the next message, or the end of an executor."""
        self._change.clear()
        await self._change.wait()

    def look(self) -> None:
        """Have those who wait in `until` look again."""
        self._change.set()

    def space(self, lane: Lane) -> Space:
        """How much of a lane may be claimed now."""
        return all_of(self._pace, (member.space(lane) for member in self._members))

    def is_full(self) -> bool:
        """Whether there is work, and nobody free to take more."""
        return bool(self.held()) and all(member.is_full() for member in self._members)

    @property
    def members(self) -> list[Member]:
        """The executors that are ready."""
        return list(self._members)

    def held(self) -> list[Held]:
        """All jobs that are here."""
        return [held for member in self._members for held in member.jobs.values()]

    def running(self, least_s: float) -> list[Held]:
        """The jobs that have been running for so long."""
        since_s = monotonic_s() - least_s
        return [held for held in self.held() if held.begun_s and held.begun_s <= since_s]

    def hand_over(self, jobs: Sequence[Held], lane: Lane) -> list[Held]:
        """Give jobs of a lane to the executors with the most room.

        What none can take, because the executors have gone meanwhile, is returned.
        """
        takers = [member for member in self._members if member.takes]
        if not takers:
            return list(jobs)
        for member, share in shared(jobs, takers, lane).items():
            member.give(share)
        return []

    def hand_on(self, jobs: Sequence[Held], *, but: Member | None) -> list[Held]:
        """Give jobs that came back from one executor to others that have room; the rest is returned."""
        rest, shares = [], dict[Member, list[Held]]()
        others = [member for member in self._members if member is not but]
        spaces = {(m, lane): m.space(lane) for lane in {held.lane for held in jobs} for m in others}
        for held in jobs:
            task = held.job.task
            fits, n = max(
                ((spaces[m, held.lane].fits(task), n) for n, m in enumerate(others)), default=(0, 0)
            )
            if fits:
                spaces[others[n], held.lane].take(task)
                shares.setdefault(others[n], []).append(held)
            else:
                rest.append(held)
        for member, share in shares.items():
            member.give(share)
        return rest

    async def start_isolated(self) -> Member | None:
        """Start an executor for suspects; None: it could not be, which is told in the log."""
        member, hello = await self._start_one(isolated=True)
        if member is None:
            self._log(f"no executor for suspects could be started: {hello.error}")
        return member

    def has_member(self, member: Member) -> bool:
        """Whether an executor is still there."""
        return member in self._members

    def let_go(self, member: Member) -> None:
        """Have an executor end when it is done."""
        member.condemned = True
        member.send(Stop())

    def renewed(self, job: Job, at: int) -> None:
        """What is known of a job has changed."""
        for member in self._members:
            member.renewed((at, job.id), job)

    def has(self, key: Key, claim: int) -> bool:
        """Whether a job is still here under a claim."""
        return any((held := m.jobs.get(key)) and held.job.claim == claim for m in self._members)

    def send(self, key: Key, message: Message) -> None:
        """Send a message to the executor that has a job."""
        for member in self._members:
            if key in member.jobs:
                member.send(message)

    def revoke(self, member: Member) -> None:
        """Have an executor give back what it has not begun; see `returned`."""
        if len(member.jobs) > member.running and not member.revoked:
            member.revoked = True
            member.send(Revoke())

    async def return_unbegun(self) -> None:
        """Have all executors give back what they have not begun, and wait a moment for that.

        What one that cannot answer has is taken later, when it may no longer begin it (`waiting`).
        """
        for member in self._members:
            self.revoke(member)
        await self.until(lambda: not any(member.revoked for member in self._members), RETURNING_S)

    def track(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def kill(self) -> None:
        """End all executors at once: their jobs are not to blame."""
        for member in self._members:
            member.condemned = True
            member.kill()
        for process in self._hatching:
            process.kill()

    async def stop(self) -> None:
        """Let the executors go, and wait for them to."""
        self._stopping = self.closing = True
        for process in self._hatching:
            process.kill()
        for member in self._members:
            member.send(Stop())
        for member in list(self._members):
            try:
                await asyncio.to_thread(member.process.wait, 1)
            except subprocess.TimeoutExpired:
                member.process.kill()
                await asyncio.to_thread(member.process.wait)
        for task in self._running:
            task.cancel()
