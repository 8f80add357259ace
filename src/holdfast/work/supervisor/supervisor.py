"""The supervisor: claims jobs, keeps their leases, commits their answers, and imports nothing of the user's.

    claim ──▶ hand over to an executor with room ──▶ Began ──▶ Ran ──▶ answer, many in one commit
                        │                              │
                        │ the executor dies            │
                        └── not begun: given back      └── begun: a loss if it ran alone; else a suspect
                                                           (`suspects`)

Leases are extended from here, all in one commit, at a third of their length: a handler that holds the
interpreter lock, hangs or dies never costs a lease.
"""

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from ...core import commands as c
from ...core.counting import counted
from ...core.errors import AppError, BadInput, HoldfastError
from ...core.job import Code, Job
from ...engine import joblog
from ...store.common.clock import system_clock
from ..health import Health
from ..logs import WORKER
from ..messages import Asked, Hello, told
from ..options import Options
from ..scheduler import Setting, make_scheduler
from . import watches
from .claiming import CLAIM_WAIT_S, HEALTH_WAIT_S, Claiming, Wanted
from .crew import Crew
from .hands import LaneHands, is_empty
from .lanes import Lane
from .leases import Leases
from .member import Heard, Held, Member
from .memory import Scales
from .outbox import Outbox
from .registry import Registry, new_worker
from .scaling import Scaling
from .sources import Source, Sources
from .suspects import BACK_MS, Suspects
from .waiting import Waiting

# How long the neighbours of a job past its limit may go on before their executor is killed.
GRACE_S = 10.0
MOST_EARLY_MS = 500
# How long executors that were killed may take to be gone.
KILLED_S = 5.0
# So many executors for suspects may be there at once, or as many as there are processes: two halves of a
# crowd.
LEAST_ISOLATED = 2


class Supervisor:
    """One worker: its executors, its claims and its leases."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options, self._log = options, log
        # At once, so that a name that nobody knows is told before anything is started.
        self._schedule()
        # What was compiled within one second of a change would be taken for current.
        variables = options.log.variables() | ({"PYTHONDONTWRITEBYTECODE": "1"} if options.reload else {})
        self._crew = Crew(
            options.names,
            options.threads,
            log,
            heard=self._heard,
            asked=self._asked,
            lost=self._lost,
            ready=self._has_room,
            variables=variables,
        )
        self._outbox = Outbox(log)
        self._suspects = Suspects(
            self._crew,
            executors=max(options.processes, LEAST_ISOLATED),
            lease_ms=options.lease_ms,
            line_of=lambda at: self.sources.all[at].line,
        )
        self._sources: Sources | None = None
        self._registry: Registry | None = None
        self._stopping = asyncio.Event()
        # Set when the claims of now are over: told to stop, or to begin anew with other tasks.
        self._halt = asyncio.Event()
        self._signals = 0
        self._rooms: list[asyncio.Event] = []
        self._reloading = watches.Reloading(self._crew, log)
        self._worker = new_worker(
            processes=options.processes,
            threads=options.threads,
            health=options.health_file,
            now_ms=system_clock(),
        )

    def _schedule(self) -> Any:
        setting = Setting(dice=random.random, weights=self._options.weights)
        return make_scheduler(self._options.scheduler, setting)

    @property
    def done(self) -> int:
        """How many jobs have ended here: finished, failed or cancelled."""
        return self._outbox.done

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._outbox.failed

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
            if not await self._open(hello):
                return
            background = [asyncio.create_task(work) for work in self._background()]
            try:
                while not self._stopping.is_set():
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
        except AppError:
            if self._stopping.is_set():
                return None
            raise

    async def _open(self, hello: Hello) -> bool:
        """Open the stores that the executors name, and make this worker known there; False: told to stop."""
        options = self._options
        self._sources = Sources(options, hello.queues)
        self._crew.said, self._crew.returned = self._said, self._returned
        self._reloading.files.add(hello.files)
        self._registry = Registry(self._sources, self._worker, self._log)
        if not await self._registry.enter(wait_s=options.wait_s, stopping=self._stopping):
            return False
        most = f"..{options.most_processes}" if options.most_processes else ""
        at_once = f"{options.processes}{most} × {options.threads} at once"
        tasks = counted(len(self._sources.tasks), "task")
        WORKER.info("ready: %s on %s, %s", tasks, ", ".join(self._sources.stores), at_once)
        return True

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        options, crew = self._options, self._crew
        assert self._registry is not None
        leases = Leases(crew, self._suspects, self.sources.all, options.lease_ms, self._log)
        waiting = Waiting(crew, self._suspects, self._returned)
        works = [leases.renew(), leases.watch(), waiting.watch(), self._registry.keep(self._counts)]
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
        for room in self._rooms:
            room.set()

    def _said(self, hello: Hello) -> None:
        """A fresh executor may know other tasks than the last."""
        self._reloading.files.add(hello.files)
        if hello.error or self._crew.closing:
            return
        for name in self.sources.moved(hello.queues):
            self._log(f"{name} has another store or tenant now: start the worker anew to have it worked")
        before = [source.lanes for source in self.sources.all]
        try:
            self.sources.choose(hello.queues)
        except (AppError, BadInput) as error:
            self._log(str(error))
        assert self._registry is not None
        self._crew.track(asyncio.create_task(self._quietly(self._registry.publish())))
        if before != [source.lanes for source in self.sources.all]:
            self._halt.set()
            self._crew.track(asyncio.create_task(self._quietly(self._registry.say())))

    async def _quietly(self, words: Coroutine[Any, Any, None]) -> None:
        try:
            await words
        except HoldfastError as error:
            self._log(f"the registry of workers: {error}")

    def _stop(self) -> None:
        self._stopping.set()
        self._halt.set()

    def _signalled(self) -> None:
        self._signals += 1
        self._stop()
        if self._signals > 1 or self._sources is None:
            WORKER.info("stopping now")
            self._crew.kill()
            self._crew.look()

    async def _ask(self, at: int, command: c.Command, wait_s: float = 0.0) -> Any:
        return await self.sources.all[at].line.ask_async(command, wait_s=wait_s)

    async def _waiting(self) -> int:
        return sum(await asyncio.gather(*(source.count_ready() for source in self.sources.all)))

    def _counts(self) -> dict[str, int]:
        members = self._crew.members
        running = sum(member.running for member in members)
        there = sum(not member.condemned for member in members)
        return {"processes": there, "running": running, "done": self.done}

    def _health(self) -> Health:
        sources, counts = self.sources.all, self._counts()
        return Health(
            pid=self._worker.pid,
            name=self._worker.name,
            written_at=system_clock(),
            claimed_at=min(s.claimed_at or self._worker.started_at for s in sources if s.tasks),
            full=self._crew.is_full(),
            draining=self._stopping.is_set(),
            executors=len(self._crew.members),
            running=counts["running"],
            done=counts["done"],
            store_error=next((s.error for s in sources if s.error), ""),
            start_error=self._crew.error,
        )

    # Claiming

    async def _claim_all(self) -> None:
        """Claim from every queue, in each of its lanes, until told to stop or to begin anew."""
        self._halt = asyncio.Event()
        if self._stopping.is_set():
            return
        lanes = [(source, lane) for source in self.sources.all for lane in set(source.lanes.values())]
        self._rooms = [asyncio.Event() for _ in lanes]
        if not lanes:
            # What was reloaded knows no task any more; the next change may bring some.
            await self._halt.wait()
            return
        claims = [
            asyncio.create_task(self._claiming(source, lane).run(self._halt, room))
            for (source, lane), room in zip(lanes, self._rooms, strict=True)
        ]
        await asyncio.wait(claims, return_when=asyncio.FIRST_EXCEPTION)
        failed = any(claim.done() and claim.exception() for claim in claims)
        if failed or not self._halt.is_set():
            # One that failed ends all, and so does one that found nothing left to do.
            self._stop()
        for claim in claims:
            await claim

    def _claiming(self, source: Source, lane: Lane) -> Claiming:
        options = self._options
        wanted = Wanted(
            tasks=tuple(task for task, its in source.lanes.items() if its == lane),
            tenants=source.tenants,
            lease_ms=options.lease_ms,
            wait_s=HEALTH_WAIT_S if options.health_file else CLAIM_WAIT_S,
            until_empty=options.until_empty,
        )
        hands = LaneHands(self._crew, self._suspects, source, lane, self._outbox, self._log, self._is_over)
        return Claiming(source.line, hands, self._schedule(), wanted)

    async def _is_over(self) -> bool:
        if await is_empty(self._held, self.sources.all):
            self._stop()
        return self._stopping.is_set()

    # What executors say

    def _heard(self, member: Member, heard: Heard) -> None:
        for held in heard.limited:
            self._limit(member, held)
        for at, ended in heard.ended.items():
            self._outbox.answer(self.sources.all[at].line, ended)
        self._has_room()
        if self._options.max_jobs and member.ran >= self._options.max_jobs:
            self._crew.recycle(member)

    def _asked(self, member: Member, asked: Asked) -> None:
        self._crew.track(asyncio.create_task(self._reply(member, asked)))

    def _limit(self, member: Member, held: Held) -> None:
        job = held.job
        # A little before its lease ends for good, so that it is an error and not a loss.
        left_ms = job.timeout_ms - min(job.timeout_ms // 10, MOST_EARLY_MS)
        asyncio.get_running_loop().call_later(left_ms / 1000, self._timed_out, member, held, held.begun_s)

    def _timed_out(self, member: Member, held: Held, begun_s: float) -> None:
        """Past its limit: its claim ends at once, and its executor gets nothing new."""
        job = held.job
        if held.begun_s != begun_s or member.jobs.get(held.key) is not held:
            return
        member.take([held.key])
        text = f"still running after its limit of {job.timeout_ms / 1000:g} s"
        answer = c.Answer(hold=c.hold_of(job), code=Code.ERROR, error=text, ran_ms=held.ran_ms)
        joblog.ended(job, answer, duration_ms=job.timeout_ms)
        self._outbox.put(self.sources.all[held.at].line, answer)
        self._crew.replace(member, grace_s=GRACE_S)
        self._has_room()

    async def _reply(self, member: Member, asked: Asked) -> None:
        try:
            reply: Any = await self._ask(asked.at, asked.command, asked.wait_s)
        except Exception as error:
            reply = error
        if isinstance(reply, Job):
            self._crew.renewed(reply, asked.at)
        if asked.number:
            member.send(told(asked.number, reply, at=asked.at))

    def _lost(self, member: Member) -> None:
        """An executor is gone: what it had not begun goes back, what it had begun is suspect.

        One that was killed on purpose was not ended by what ran in it, unless that was for its memory: that
        may have been taken by jobs that have ended, unless one was alone in it from the start.
        """
        crowd = member.running
        if member.overweight and not member.runs_alone():
            crowd = max(crowd, 2)
        elif member.killed and not member.overweight:
            crowd = 0
        for held in member.take(list(member.jobs)):
            release = c.Release(hold=c.hold_of(held.job), lost=bool(held.begun_s), crowd=crowd)
            self._outbox.put(self.sources.all[held.at].line, release)
        self._has_room()

    def _returned(self, jobs: list[Held], member: Member | None) -> None:
        """Jobs that have not begun come back: other executors may have room for them, or other workers."""
        for held in jobs:
            held.begun_s = 0.0
        plain = [held for held in jobs if not held.job.crowd_limit]
        suspects = [held for held in jobs if held.job.crowd_limit]
        self._release(plain if self._crew.closing else self._crew.hand_on(plain, but=member))
        self._release(suspects, delay_ms=0 if self._crew.closing else BACK_MS)
        self._has_room()

    # Stopping

    async def _drain(self) -> None:
        """Give back what was not begun; wait for the rest, then end and give back that too."""
        crew = self._crew
        crew.closing = True
        if held := self._held():
            WORKER.info("draining: %s", counted(len(held), "job"))
            self._release(self._suspects.take_all())
            await crew.return_unbegun()
            await crew.until(lambda: not self._held() or self._signals > 1, self._options.drain_s)
        if crew.held():
            # First the end, then the word: nobody else has a job that still runs here.
            crew.kill()
            await crew.until(lambda: not crew.held(), KILLED_S)
            self._release(crew.held())
        self._release(self._suspects.take_all())
        await self._outbox.settled()
        if self._registry is not None:
            # After whatever a claim that was cut short has brought and given back.
            await self._quietly(self._registry.leave())

    def _held(self) -> list[Held]:
        """All jobs that are here."""
        return self._crew.held() + self._suspects.held()

    def _release(self, jobs: list[Held], *, delay_ms: int = 0) -> None:
        for held in jobs:
            begun = bool(held.begun_s)
            release = c.Release(hold=c.hold_of(held.job), delay_ms=delay_ms, lost=begun, crowd=0)
            self._outbox.put(self.sources.all[held.at].line, release)
