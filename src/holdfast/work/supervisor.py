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
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ..core import commands as c
from ..core.errors import BadInput, HoldfastError, StoreFull, Unavailable
from ..core.job import Code, Job
from ..engine import look
from ..store.clock import system_clock
from . import watches
from .crew import Crew
from .health import Health
from .member import Held, Key, Member
from .memory import Scales
from .messages import Asked, Began, Cancelled, Hello, Ran, told
from .options import Options
from .registry import Registry, new_worker
from .scaling import Scaling
from .sources import Source, Sources

# How long a claim waits before the supervisor looks up: whether it should stop, or has more room.
CLAIM_WAIT_S = 5.0
# How long the neighbours of a job past its limit may go on before their executor is killed.
GRACE_S = 10.0
MOST_EARLY_MS = 500
# How long a store that cannot be used now is left alone before the next claim.
STORE_PAUSE_S = 1.0
# How long executors that were killed may take to be gone.
KILLED_S = 5.0


class Supervisor:
    """One worker: its executors, its claims and its leases."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options, self._log = options, log
        # What was compiled within one second of a change would be taken for current.
        variables = {"PYTHONDONTWRITEBYTECODE": "1"} if options.reload else {}
        self._crew = Crew(
            options.names, options.threads, log, self._heard, self._lost, self._has_room, variables
        )
        self._sources: Sources | None = None
        self._registry: Registry | None = None
        self._stopping = asyncio.Event()
        self._signals = 0
        self._room = asyncio.Event()
        self._reloading = watches.Reloading(self._crew, log)
        self._worker = new_worker(
            processes=options.processes,
            threads=options.threads,
            health=options.health_file,
            now_ms=system_clock(),
        )
        self.done = 0

    @property
    def sources(self) -> Sources:
        """The queues that are worked."""
        assert self._sources is not None
        return self._sources

    async def run(self) -> None:
        """Work until told to stop, or until nothing is left to do."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        try:
            if (hello := await self._started()) is None:
                return
            await self._open(hello)
            background = [asyncio.create_task(work) for work in self._background()]
            try:
                await self._claim_all()
            finally:
                await self._drain()
                for task in background:
                    task.cancel()
        finally:
            await self._crew.stop()
            if self._sources is not None:
                await asyncio.to_thread(self._sources.close)

    async def _started(self) -> Hello | None:
        """What the first executors say of themselves; None where it was told to stop before they could."""
        try:
            return await self._crew.start(self._options.processes)
        except Unavailable:
            if self._stopping.is_set():
                return None
            raise

    async def _open(self, hello: Hello) -> None:
        """Open the stores that the executors name, and make this worker known there."""
        options = self._options
        self._sources = Sources(options.names, hello.queues, options.store)
        self._sources.choose(hello.queues, options.tasks)
        self._crew.said = self._said
        self._reloading.files.add(hello.files)
        self._registry = Registry(self._sources, self._worker, self._log)
        await self._registry.enter()
        most = f"..{options.most_processes}" if options.most_processes else ""
        at_once = f"{options.processes}{most} × {options.threads} at once"
        self._log(f"ready: {len(self._sources.tasks)} tasks, {at_once}")

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        options, crew = self._options, self._crew
        assert self._registry is not None
        works = [self._renew(), self._registry.keep(self._counts)]
        if options.most_processes > options.processes:
            bounds = {"least": options.processes, "most": options.most_processes}
            scaling = Scaling(crew, **bounds, idle_s=options.shrink_s)
            works.append(watches.scale(crew, scaling, self._waiting))
        if options.memory_limit or options.max_growth:
            sizes = {"limit": options.memory_limit, "growth": options.max_growth}
            works.append(watches.weigh(Scales(crew, self._log, **sizes, grace_s=GRACE_S)))
        if options.health_file:
            works.append(watches.report(options.health_file, self._health, self._log))
        if options.reload:
            works.append(self._reloading.watch())
        if options.burst_s:
            works.append(self._stop_after(options.burst_s))
        return works

    async def _stop_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._stop()

    def _has_room(self) -> None:
        self._room.set()

    def _said(self, hello: Hello) -> None:
        """A fresh executor may know other tasks than the last."""
        self._reloading.files.add(hello.files)
        if hello.error or self._crew.closing:
            return
        for name in self.sources.moved(hello.queues):
            self._log(f"{name} has another store or tenant now: start the worker anew to have it worked")
        before = [source.tasks for source in self.sources.all]
        try:
            self.sources.choose(hello.queues, self._options.tasks)
        except BadInput as error:
            self._log(str(error))
        if before != [source.tasks for source in self.sources.all]:
            self._speak()

    def _speak(self) -> None:
        assert self._registry is not None
        self._crew.say(asyncio.create_task(self._quietly(self._registry.say())))

    async def _quietly(self, words: Coroutine[Any, Any, None]) -> None:
        try:
            await words
        except HoldfastError as error:
            self._log(f"the registry of workers: {error}")

    def _stop(self) -> None:
        self._stopping.set()
        self._room.set()

    def _signalled(self) -> None:
        self._signals += 1
        self._stop()
        if self._signals > 1 or self._sources is None:
            self._log("stopping now")
            self._crew.kill()
            self._crew.look()

    async def _ask(self, at: int, command: c.Command, wait_s: float = 0.0) -> Any:
        return await self.sources.all[at].line.ask_async(command, wait_s=wait_s)

    async def _waiting(self) -> int:
        reads = (asyncio.to_thread(s.line.engine.read, s.waiting) for s in self.sources.all)
        return sum(await asyncio.gather(*reads))

    def _counts(self) -> dict[str, int]:
        members = self._crew.members
        running = sum(1 for member in members for held in member.jobs.values() if held.begun_s)
        there = sum(not member.condemned for member in members)
        return {"processes": there, "running": running, "done": self.done}

    def _health(self) -> Health:
        sources, counts = self.sources.all, self._counts()
        return Health(
            pid=self._worker.pid,
            name=self._worker.name,
            written_at=system_clock(),
            claimed_at=min(s.claimed_at or self._worker.started_at for s in sources if s.tasks),
            full=not self._crew.room() and bool(self._crew.held()),
            draining=self._stopping.is_set(),
            executors=len(self._crew.members),
            running=counts["running"],
            done=counts["done"],
            store_error=next((s.error for s in sources if s.error), ""),
            start_error=self._crew.error,
        )

    # Claiming

    async def _claim_all(self) -> None:
        claims = [asyncio.create_task(self._claim(source)) for source in self.sources.all if source.tasks]
        await asyncio.wait(claims, return_when=asyncio.FIRST_EXCEPTION)
        # One that failed ends all; what the others still bring is given back with the rest.
        self._stop()
        for claim in claims:
            await claim

    async def _claim(self, source: Source) -> None:
        while not self._stopping.is_set():
            room = self._crew.room()
            if not room:
                self._room.clear()
                await self._room.wait()
                continue
            command = c.Claim(
                tasks=source.tasks,
                tenant=source.tenant,
                limit=min(room, 1000),
                lease_ms=self._options.lease_ms,
            )
            wait_s = 0.1 if self._options.until_empty else CLAIM_WAIT_S
            claiming = asyncio.create_task(self._ask(source.at, command, wait_s))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not claiming.done():
                # Whatever it would have brought goes back by itself.
                claiming.cancel()
                return
            jobs = await self._answered(source, claiming)
            for claimed in jobs:
                if not self._crew.hand_over(claimed, source.at):
                    # Another queue was faster, or the last executor died meanwhile.
                    self._spawn(self._give_back(source.at, c.Release(hold=_hold(claimed.job))))
            if not jobs and self._options.until_empty and await self._is_empty():
                return

    async def _answered(self, source: Source, claiming: "asyncio.Task[Any]") -> list[c.Claimed]:
        """What a claim brought; a store that was there, and cannot be used now, is waited for."""
        try:
            jobs: list[c.Claimed] = claiming.result()
        except (Unavailable, StoreFull) as error:
            if not source.claimed_at:
                raise
            if str(error) != source.error:
                self._log(f"cannot claim: {error}")
            source.error = str(error)
            await asyncio.wait([asyncio.create_task(self._stopping.wait())], timeout=STORE_PAUSE_S)
            return []
        source.claimed_at, source.error = system_clock(), ""
        return jobs

    async def _is_empty(self) -> bool:
        if self._crew.held():
            return False
        for source in self.sources.all:
            left = await asyncio.to_thread(
                source.line.engine.read,
                lambda txn, source=source: look.unfinished(txn, source.tenant, source.tasks),
            )
            if left:
                return False
        return True

    # Leases

    async def _renew(self) -> None:
        """Extend all leases in one commit; a job that lost its claim, or is to stop, is told so."""
        while True:
            await asyncio.sleep(self._options.lease_ms / 3000)
            held = [(one.at, one.job) for one in self._crew.held()]
            lease_ms = self._options.lease_ms
            asks = (self._ask(at, c.Extend(hold=_hold(job), lease_ms=lease_ms)) for at, job in held)
            replies = await asyncio.gather(*asks, return_exceptions=True)
            for (at, job), reply in zip(held, replies, strict=True):
                if isinstance(reply, Job):
                    self._crew.renewed(reply, at)
                    if reply.cancel_requested and not job.cancel_requested:
                        self._crew.tell((at, job.id), Cancelled(job=reply, at=at))
                elif isinstance(reply, BaseException):
                    self._log(f"job {job.id}: {reply}")

    # What executors say

    def _heard(self, member: Member, message: Began | Ran | Asked) -> None:
        if isinstance(message, Began):
            member.begun((message.at, message.job_id))
            self._limit(member, (message.at, message.job_id))
        elif isinstance(message, Ran):
            hold = message.answer.hold
            job = member.finished((message.at, hold.job_id), hold.claim)
            self._room.set()
            if job is not None:
                self._ran(member, message, job)
        else:
            self._crew.track(asyncio.create_task(self._reply(member, message)))

    def _ran(self, member: Member, message: Ran, job: Job) -> None:
        self.done += 1
        self._spawn(self._answer(message.at, msgspec.structs.replace(message.answer, held=job)))
        if self._options.max_jobs and member.ran >= self._options.max_jobs:
            self._crew.recycle(member)

    def _limit(self, member: Member, key: Key) -> None:
        held = member.jobs.get(key)
        if held is None or not held.job.timeout_ms:
            return
        job, line = held.job, self.sources.all[held.at].line
        # A little before its lease ends for good, so that it is an error and not a loss.
        early_ms = min(job.timeout_ms // 10, MOST_EARLY_MS)
        left_ms = job.started_at + job.timeout_ms - early_ms - line.engine.store.now_ms()
        asyncio.get_running_loop().call_later(max(left_ms, 0) / 1000, self._timed_out, member, job, held.at)

    def _timed_out(self, member: Member, job: Job, at: int) -> None:
        """Past its limit: its claim ends at once, and its executor gets nothing new."""
        if member.finished((at, job.id), job.claim) is None:
            return
        text = f"still running after its limit of {job.timeout_ms / 1000:g} s"
        self._log(f"job {job.id} {job.task}: {text}")
        self._spawn(self._answer(at, c.Answer(hold=_hold(job), code=Code.ERROR, error=text)))
        self._crew.replace(member, grace_s=GRACE_S)
        self._room.set()

    async def _answer(self, at: int, answer: c.Answer) -> None:
        try:
            await self._ask(at, answer)
        except HoldfastError as error:
            self._log(f"job {answer.hold.job_id}: {error}")

    async def _reply(self, member: Member, asked: Asked) -> None:
        try:
            reply: Any = await self._ask(asked.at, asked.command, asked.wait_s)
        except Exception as error:
            reply = error
        if isinstance(reply, Job):
            self._crew.renewed(reply, asked.at)
        member.send(told(asked.number, reply, at=asked.at))

    def _lost(self, member: Member) -> None:
        """An executor is gone: what it had not begun goes back, what it had begun is suspect.

        One that was condemned was not ended by what ran in it, unless that was for its memory.
        """
        suspects = member.suspects() if member.overweight or not member.condemned else []
        alone = len(suspects) == 1 and (member.runs_alone() or not member.overweight)
        for held in member.jobs.values():
            release = c.Release(hold=_hold(held.job), lost=held in suspects, alone=alone)
            self._spawn(self._give_back(held.at, release))
        member.jobs.clear()
        self._room.set()

    async def _give_back(self, at: int, command: c.Release) -> None:
        try:
            await self._ask(at, command)
        except HoldfastError as error:
            self._log(f"job {command.hold.job_id}: {error}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._crew.say(asyncio.create_task(work))

    # Stopping

    async def _drain(self) -> None:
        """Give back what was not begun; wait for the rest, then end and give back that too."""
        crew = self._crew
        crew.closing = True
        if crew.held():
            self._log(f"draining: {len(crew.held())} jobs")
            self._release(await crew.take_unbegun())
            await crew.until(lambda: not crew.held() or self._signals > 1, self._options.drain_s)
        if crew.held():
            # First the end, then the word: nobody else has a job that still runs here.
            crew.kill()
            await crew.until(lambda: not crew.held(), KILLED_S)
            self._release(crew.held())
        await crew.settled()
        if self._registry is not None:
            # After whatever a claim that was cut short has brought and given back.
            await self._quietly(self._registry.leave())

    def _release(self, jobs: list[Held]) -> None:
        for held in jobs:
            self._spawn(self._give_back(held.at, c.Release(hold=_hold(held.job))))


def _hold(job: Job) -> c.Hold:
    return c.Hold(job_id=job.id, owner=job.owner, claim=job.claim)
