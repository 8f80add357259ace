"""The supervisor: claims jobs, keeps their leases, commits their answers, and imports nothing of the user's.

    claim ──▶ hand over to an executor with room ──▶ Began ──▶ Ran ──▶ answer, many in one commit
                        │                              │
                        │ the executor dies            │
                        └── not begun: given back      └── begun: a loss if it ran alone; else a suspect,
                                                           which runs alone from then on

Leases are extended from here, all in one commit, at a third of their length: a handler that holds the
interpreter lock, hangs or dies never costs a lease.
"""

import asyncio
import random
import signal
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from ..core import commands as c
from ..core.errors import BadInput, HoldfastError
from ..core.job import Code, Job
from ..engine.committer import Committer
from ..engine.engine import Engine
from ..queue.base import unfinished
from ..queue.connect import store_maker
from .crew import Crew, Member
from .messages import Asked, Began, Cancelled, Ran, told

# How long a claim waits before the supervisor looks up: whether it should stop, or has more room.
CLAIM_WAIT_S = 5.0
# How long the neighbours of a job past its limit may go on before their executor is killed.
GRACE_S = 10.0
MOST_EARLY_MS = 500


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    name: str
    store: str | None = None
    tasks: tuple[str, ...] = ()
    processes: int = 1
    threads: int = 1
    lease_ms: int = 60_000
    drain_s: float = 30.0
    until_empty: bool = False


class Supervisor:
    """One worker: its executors, its claims and its leases."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options, self._log = options, log
        self._crew = Crew(options.name, options.threads, log, self._heard, self._lost, self._has_room)
        self._line: Committer | None = None
        self._stopping = asyncio.Event()
        self._signals = 0
        self._room = asyncio.Event()
        self._tasks: tuple[str, ...] = ()
        self._tenant = ""
        self.done = 0

    async def run(self) -> None:
        """Work until told to stop, or until nothing is left to do."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        try:
            hello = await self._crew.start(self._options.processes)
            self._tasks = self._chosen(hello.tasks)
            self._tenant = hello.tenant
            store = store_maker(self._options.store or hello.url)()
            self._line = Committer(Engine(store, dice=random.random))
            at_once = f"{self._options.processes} × {self._options.threads} at once"
            self._log(f"ready: {len(self._tasks)} tasks, {at_once}")
            renewing = asyncio.create_task(self._renew())
            await self._claim()
            await self._drain()
            renewing.cancel()
        finally:
            await self._crew.stop()
            if self._line is not None:
                await asyncio.to_thread(self._line.close)

    def _has_room(self) -> None:
        self._room.set()

    def _chosen(self, known: tuple[str, ...]) -> tuple[str, ...]:
        wanted = self._options.tasks or ("*",)
        chosen = tuple(task for task in known if any(fnmatchcase(task, glob) for glob in wanted))
        if not chosen:
            raise BadInput(
                "tasks", ", ".join(wanted), needed=f"some of {', '.join(known) or 'no tasks at all'}"
            )
        return chosen

    def _signalled(self) -> None:
        self._signals += 1
        self._stopping.set()
        self._room.set()
        if self._signals > 1:
            self._log("stopping now")
            self._crew.kill()
            self._crew.look()

    async def _ask(self, command: c.Command, wait_s: float = 0.0) -> Any:
        assert self._line is not None
        return await self._line.ask_async(command, wait_s=wait_s)

    # Claiming

    async def _claim(self) -> None:
        while not self._stopping.is_set():
            room = self._crew.room()
            if not room:
                self._room.clear()
                await self._room.wait()
                continue
            command = c.Claim(
                tasks=self._tasks, tenant=self._tenant, limit=min(room, 1000), lease_ms=self._options.lease_ms
            )
            claiming = asyncio.create_task(
                self._ask(command, 0.1 if self._options.until_empty else CLAIM_WAIT_S)
            )
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not claiming.done():
                # Whatever it would have brought goes back by itself.
                claiming.cancel()
                return
            jobs = claiming.result()
            for claimed in jobs:
                if not self._crew.hand_over(claimed):
                    self._spawn(self._give_back(c.Release(hold=_hold(claimed.job))))
            if not jobs and self._options.until_empty and await self._is_empty():
                return

    async def _is_empty(self) -> bool:
        assert self._line is not None
        look = unfinished(self._tenant, self._tasks)
        return not self._crew.held() and not await asyncio.to_thread(self._line.engine.read, look.read)

    # Leases

    async def _renew(self) -> None:
        """Extend all leases in one commit; a job that lost its claim, or is to stop, is told so."""
        while True:
            await asyncio.sleep(self._options.lease_ms / 3000)
            held = self._crew.held()
            commands = [c.Extend(hold=_hold(job), lease_ms=self._options.lease_ms) for job in held]
            replies = await asyncio.gather(*(self._ask(x) for x in commands), return_exceptions=True)
            for job, reply in zip(held, replies, strict=True):
                if isinstance(reply, Job):
                    self._crew.renewed(reply)
                    if reply.cancel_requested and not job.cancel_requested:
                        self._crew.tell(job.id, Cancelled(job=reply))
                elif isinstance(reply, BaseException):
                    self._log(f"job {job.id}: {reply}")

    # What executors say

    def _heard(self, member: Member, message: Began | Ran | Asked) -> None:
        if isinstance(message, Began):
            member.begun(message.job_id)
            self._limit(member, message.job_id)
        elif isinstance(message, Ran):
            hold = message.answer.hold
            job = member.finished(hold.job_id, hold.claim)
            self._room.set()
            if job is not None:
                self.done += 1
                self._spawn(self._answer(msgspec.structs.replace(message.answer, held=job)))
        else:
            self._spawn(self._reply(member, message))

    def _limit(self, member: Member, job_id: int) -> None:
        held = member.jobs.get(job_id)
        if held is None or not held.job.timeout_ms:
            return
        job, line = held.job, self._line
        assert line is not None
        # A little before its lease ends for good, so that it is an error and not a loss.
        early_ms = min(job.timeout_ms // 10, MOST_EARLY_MS)
        left_ms = job.started_at + job.timeout_ms - early_ms - line.engine.store.now_ms()
        asyncio.get_running_loop().call_later(max(left_ms, 0) / 1000, self._timed_out, member, job)

    def _timed_out(self, member: Member, job: Job) -> None:
        """Past its limit: its claim ends at once, and its executor gets nothing new."""
        held = member.jobs.get(job.id)
        if held is None or held.job.claim != job.claim:
            return
        member.finished(job.id, job.claim)
        text = f"still running after its limit of {job.timeout_ms / 1000:g} s"
        self._log(f"job {job.id} {job.task}: {text}")
        self._spawn(self._answer(c.Answer(hold=_hold(job), code=Code.ERROR, error=text)))
        self._crew.replace(member, grace_s=GRACE_S)
        self._room.set()

    async def _answer(self, answer: c.Answer) -> None:
        try:
            await self._ask(answer)
        except HoldfastError as error:
            self._log(f"job {answer.hold.job_id}: {error}")

    async def _reply(self, member: Member, asked: Asked) -> None:
        try:
            reply: Any = await self._ask(asked.command, asked.wait_s)
        except Exception as error:
            reply = error
        if isinstance(reply, Job):
            self._crew.renewed(reply)
        member.send(told(asked.number, reply))

    def _lost(self, member: Member) -> None:
        """An executor is gone: what it had not begun goes back, what it had begun is suspect."""
        suspects = member.suspects()
        for held in member.jobs.values():
            lost = held in suspects and not member.condemned
            release = c.Release(hold=_hold(held.job), lost=lost, alone=len(suspects) == 1)
            self._spawn(self._give_back(release))
        member.jobs.clear()
        self._room.set()

    async def _give_back(self, command: c.Release) -> None:
        try:
            await self._ask(command)
        except HoldfastError as error:
            self._log(f"job {command.hold.job_id}: {error}")

    def _spawn(self, work: Any) -> None:
        self._crew.track(asyncio.create_task(work))

    # Stopping

    async def _drain(self) -> None:
        """Give back what was not begun; wait for the rest, then give that back too."""
        if self._stopping.is_set():
            self._log(f"draining: {len(self._crew.held())} jobs")
            for job in self._crew.take_unbegun():
                self._spawn(self._give_back(c.Release(hold=_hold(job))))
        await self._crew.until(lambda: not self._crew.held() or self._signals > 1, self._options.drain_s)
        for job in self._crew.held():
            self._spawn(self._give_back(c.Release(hold=_hold(job))))
        await self._crew.settled()


def _hold(job: Job) -> c.Hold:
    return c.Hold(job_id=job.id, owner=job.owner, claim=job.claim)
