"""The supervisor's handle of one executor process, and the jobs that this executor has."""

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...core import commands as c
from ...core.job import Job
from ...core.units import size_text
from ...core.worker import Blocker
from ...store.common.clock import monotonic_s
from ..capacity import Capacity, ExecutionMode, TaskDurations, executor_capacity
from ..loop_watch import BLOCKED_S
from ..messages import (
    JobEnded,
    JobStarted,
    Message,
    Ping,
    Pong,
    RunJobs,
    ShowStack,
    encode_frame,
)
from ..shared_files import SharedDump, SharedStartLocks
from .handler_stacks import HandlerStacks

# The index of a job's queue, and the job's id.
Key = tuple[int, int]
# With this many jobs not started, an executor's socket is read in intervals, to handle messages in batches.
BACKLOG, PAUSE_S = 100, 0.002
# How long a job may wait in an executor. Short enough to leave within a second, long enough for a busy
# machine: it would only come back.
MAX_WAIT_S = 0.7
# How often an executor with jobs is pinged.
PING_S = 0.5
# How long an executor may take to write its stacks.
DUMP_S = 0.05

# In how many parts at least each executor's share of claimed jobs is given to it.
SHARES = 8

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HeldJob(Struct, gc=False, eq=False):
    """A job that this worker has claimed: its last known record, its data, and since when it runs."""

    key: Key
    claimed: c.Claimed
    mode: ExecutionMode
    job: Job
    # When it was sent to its executor, and its number there; when it started there, 0: not yet.
    delivered_s: float
    number: int = 0
    started_s: float = 0.0
    # The thread that has started it; 0: that of the event loop, or it has not started.
    thread: int = 0
    # Whether the store knows that it has started.
    is_start_committed: bool = False
    # Ends its run at its time limit.
    timer: asyncio.TimerHandle | None = None

    @property
    def queue_index(self) -> int:
        """The index of its queue."""
        return self.key[0]

    @property
    def ran_ms(self) -> int | None:
        """How long it has been running; None if it has not started."""
        return int((monotonic_s() - self.started_s) * 1000) if self.started_s else None

    def cancel_timer(self) -> None:
        """Cancel its time limit: the timer would keep the data of an ended job until then."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def make_held_jobs(jobs: Sequence[c.Claimed], queue_index: int, mode: ExecutionMode) -> list[HeldJob]:
    """Wrap claimed jobs, not delivered yet."""
    now_s = monotonic_s()
    return [HeldJob((queue_index, one.job.id), one, mode, one.job, now_s) for one in jobs]


# By queue index: the answers of jobs that have ended, each with its last known record.
AnswersByQueue = dict[int, list[tuple[c.Answer, Job]]]


class ExecutorEvents(NamedTuple):
    """What the messages of an executor have changed."""

    ended: AnswersByQueue
    # Jobs that have started and have a time limit.
    limited: list[HeldJob]


class ExecutorHandle:
    """One executor process, and the jobs that it has."""

    # Where its handlers are, and the thread of its event loop, of one that is ready.
    stacks: HandlerStacks | None = None
    _loop_thread = 0

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        threads: int,
        durations: TaskDurations,
        locks: SharedStartLocks,
    ) -> None:
        self.process, self._threads, self._durations, self._locks = process, threads, durations, locks
        self._transport: asyncio.Transport | None = None
        # All its jobs; those that run; and how many of each task wait, by execution mode.
        self.jobs: dict[Key, HeldJob] = {}
        self._running: dict[Key, HeldJob] = {}
        self._waiting: defaultdict[ExecutionMode, dict[str, int]] = defaultdict(dict)
        # Gets no new jobs, and is killed after a grace period; its jobs are not suspects.
        self.is_draining = False
        # Runs suspects only.
        self.is_isolated = False
        # When it last sent a message about a job.
        self._last_change_s = 0.0
        # The numbers of jobs that were taken back and that it has not dropped yet, by execution mode.
        self._undropped: defaultdict[ExecutionMode, set[int]] = defaultdict(set)
        # When a `Ping` was sent that it has not answered, 0: none; its last answer, and when that came.
        self._pinged_s = 0.0
        self._pong, self._ponged_s = Pong(), 0.0
        # Whether a handler may still run here whose job is no longer held: it exceeded its time limit.
        self._has_abandoned = False
        # The number of the next job; and whether the supervisor has killed it.
        self._next_number = 0
        self.was_killed = False
        # Draining because of its memory: the jobs that run in it may be the cause.
        self.is_over_memory_limit = False
        # Takes jobs until its replacement is ready.
        self.is_being_replaced = False
        # The tasks of `add_wait`.
        self.waits: set[asyncio.Task[None]] = set()
        # How many jobs have ended in it, and when the last one did.
        self.jobs_done = 0
        self.idle_since_s = monotonic_s()
        # Its memory when it became ready.
        self.initial_bytes = 0

    def attach(self, transport: asyncio.Transport, dump: SharedDump, *, loop_thread: int) -> None:
        """Set the transport of an executor that is ready, and measure its memory."""
        self._transport, self._loop_thread = transport, loop_thread
        self.stacks = HandlerStacks(self.process.pid, dump, self.send)
        self.initial_bytes = resident_bytes(self.process.pid)

    @property
    def can_take_jobs(self) -> bool:
        """Whether it is given ordinary jobs."""
        return not (self.is_draining or self.is_isolated)

    def capacity(self, mode: ExecutionMode) -> Capacity:
        """How many jobs of an execution mode it can take now, including prefetched short ones."""
        if not self.can_take_jobs or self.is_stalled(mode):
            return Capacity(self._durations)
        now_s = monotonic_s()
        running = [(h.job.task, now_s - h.started_s) for h in self._running.values() if h.mode == mode]
        if mode.is_handlers and self._durations.request_sizes:
            return self._capacity_in_requests(mode, now_s)
        return executor_capacity(self._durations, mode.slots, running, self._waiting[mode])

    def _capacity_in_requests(self, mode: ExecutionMode, now_s: float) -> Capacity:
        """The same where several jobs may be one request, which has one slot."""
        groups: dict[tuple[str, str, float], int] = {}
        for held in self.jobs.values():
            if held.mode == mode:
                group = (held.job.tenant, held.job.task, held.started_s)
                groups[group] = groups.get(group, 0) + 1
        running: list[tuple[str, float]] = []
        waiting: dict[str, int] = {}
        for (tenant, task, started_s), jobs in groups.items():
            slots = math.ceil(self._durations.slots_of(tenant, task, jobs))
            if started_s:
                running += [(task, now_s - started_s)] * slots
            else:
                waiting[task] = waiting.get(task, 0) + slots
        return executor_capacity(self._durations, mode.slots, running, waiting)

    def is_stalled(self, mode: ExecutionMode) -> bool:
        """Whether it has yet to drop jobs of a mode that were taken back: more would only wait."""
        return bool(self._undropped[mode])

    def is_full(self) -> bool:
        """Whether it has a job for each thread, or takes none."""
        return not self.can_take_jobs or len(self.jobs) >= self._threads

    def apply_messages(self, messages: Sequence[JobStarted | JobEnded]) -> ExecutorEvents:
        """Record which jobs have ended and started; many at once, which saves a call for each.

        Messages about an earlier delivery or a lost claim are ignored: the supervisor may have claimed the
        job again after its first lease expired.
        """
        now_s = self._last_change_s = monotonic_s()
        # Ends first: most jobs are short, and have ended when their start is received.
        ended = self._apply_ended([one for one in messages if type(one) is JobEnded], now_s)
        started = self._apply_started([one for one in messages if type(one) is JobStarted])
        return ExecutorEvents(ended, [held for held in started if held.job.timeout_ms])

    def _apply_ended(self, messages: Sequence[JobEnded], now_s: float) -> AnswersByQueue:
        jobs, ended, durations = self.jobs, AnswersByQueue(), dict[str, list[float]]()
        for message in messages:
            queue_index, key = message.queue_index, (message.queue_index, message.job_id)
            held = jobs[key] if key in jobs else None  # noqa: SIM401 - a call less
            if held is None or held.job.claim != message.claim:
                continue
            del jobs[key]
            job = held.job
            if held.timer is not None:
                held.cancel_timer()
            if held.started_s:
                del self._running[key]
            else:
                self._waiting[held.mode][job.task] -= 1
            if job.task in durations:
                durations[job.task].append(message.duration_s)
            else:
                durations[job.task] = [message.duration_s]
            if message.answer is not None and queue_index in ended:
                ended[queue_index].append((message.answer, job))
            elif message.answer is not None:
                ended[queue_index] = [(message.answer, job)]
        for task, times in durations.items():
            self.jobs_done += len(times)
            self.idle_since_s = now_s
            self._durations.add_samples(task, times)
        return ended

    def _apply_started(self, messages: Sequence[JobStarted]) -> list[HeldJob]:
        jobs, started = self.jobs, []
        for message in messages:
            key = message.queue_index, message.job_id
            held = jobs[key] if key in jobs else None  # noqa: SIM401 - a call less
            if held is not None and held.number == message.number and not held.started_s:
                self._mark_started(held, message.started_s)
                held.thread = message.thread
                started.append(held)
        return started

    def _mark_started(self, held: HeldJob, started_s: float) -> None:
        self._waiting[held.mode][held.job.task] -= 1
        held.started_s, self._running[held.key] = started_s, held

    def waiting_too_long(self) -> list[HeldJob]:
        """The jobs that should have started by now, and could run elsewhere."""
        if len(self.jobs) == len(self._running):
            return []
        late_s = monotonic_s() - MAX_WAIT_S
        return [held for held in self.jobs.values() if not held.started_s and held.delivered_s < late_s]

    def take_unstarted(self, jobs: Sequence[HeldJob]) -> tuple[list[HeldJob], list[HeldJob]]:
        """Remove those of these jobs that have not started; returns them, and those that have just started.

        The executor need not respond, and may be dead: see `start_locks`.
        """
        taken, started = list[HeldJob](), list[HeldJob]()
        for held in jobs:
            if held.started_s:
                continue
            if self._lock(held):
                taken.append(held)
            else:
                # Its `JobStarted` has not been received yet.
                self._mark_started(held, monotonic_s())
                started.append(held)
        self.take_back([held.key for held in taken])
        return taken, started

    def _lock(self, held: HeldJob) -> bool:
        is_ours = self._locks.try_lock(held.number)
        if is_ours:
            self._undropped[held.mode].add(held.number)
        return is_ours

    def drop_returned(self, jobs: Iterable[tuple[Key, int]]) -> list[HeldJob]:
        """Note the jobs of a `JobsReturned` message; removes and returns those not taken back before."""
        mine = []
        for key, number in jobs:
            held = self.jobs.get(key)
            if held is not None and held.number == number and not held.started_s:
                mine.append(key)
            for numbers in self._undropped.values():
                numbers.discard(number)
            self._locks.forget(number)
        return self.take_back(mine)

    def ping(self) -> None:
        """Ask from time to time whether it responds, while it has jobs."""
        if self.jobs and not self._pinged_s and monotonic_s() - self._ponged_s > PING_S:
            self._pinged_s = monotonic_s()
            self.send(Ping())

    def on_pong(self, pong: Pong) -> None:
        """Note its answer to `Ping`."""
        self._pong, self._pinged_s, self._ponged_s = pong, 0.0, monotonic_s()

    def find_blocker(self) -> Blocker | None:
        """The handler that blocks its event loop or holds its process: for a second, or jobs wait for it."""
        if self._pinged_s and monotonic_s() - max(self._pinged_s, self._last_change_s) > BLOCKED_S:
            running = sorted(self._running.values(), key=lambda held: held.started_s)
            job = running[-1].job if running else Job(id=0, task="")
            return Blocker(
                part="process", tenant=job.tenant, task=job.task, job_id=job.id, others=len(running) - 1
            )
        pong, is_waited_for = self._pong, any(self._undropped.values())
        return pong.blocker if pong.blocked_s > (0 if is_waited_for else BLOCKED_S) else None

    async def blocked_stack(self, blocker: Blocker) -> str:
        """Where the handler is that blocks it; "" if that cannot be found out."""
        if blocker.part == "event loop" or self.stacks is None:
            return self._pong.stack
        held = next((held for held in self._running.values() if held.job.id == blocker.job_id), None)
        thread = (held.thread if held else 0) or self._loop_thread
        return await self.stacks.dump(thread, wait_s=DUMP_S)

    async def find_stack(self, held: HeldJob, *, wait_s: float) -> str:
        """Where the handler of a job is; "" if that cannot be found out in so short a time."""
        if self.stacks is None:
            return ""
        asked = ShowStack(job_id=held.job.id, number=held.number, queue_index=held.queue_index)
        return await self.stacks.find(asked, thread=held.thread or self._loop_thread, wait_s=wait_s)

    def close(self) -> None:
        """Close what it shares, after its process has ended."""
        self._locks.close()
        if self.stacks is not None:
            self.stacks.close()

    def kill(self) -> None:
        """Kill the process on purpose: its jobs are not suspects."""
        self.was_killed = True
        self.process.kill()

    def abandon(self, held: HeldJob) -> None:
        """Remove a job that exceeded its time limit; its handler may go on."""
        self.take_back([held.key])
        self._has_abandoned = True

    def occupants(self, mode: ExecutionMode) -> list[HeldJob]:
        """The jobs of a mode that run, if they have all slots."""
        running = [held for held in self._running.values() if held.mode == mode]
        return running if len(running) >= mode.slots else []

    def is_running_alone(self) -> bool:
        """Whether one job runs in it, and no other ever has."""
        return not (self.jobs_done or self._has_abandoned) and len(self._running) == 1

    @property
    def crowd(self) -> int:
        """How many handlers may have ended its process: those that run now, and one that was abandoned."""
        return self.running + self._has_abandoned

    def death_text(self, limit: int) -> str:
        """How its process has ended, for its jobs; "" if it was killed for what concerns none of them."""
        if self.is_over_memory_limit:
            how = f"was killed above its memory limit of {size_text(limit)}"
        elif self.was_killed:
            return ""
        else:
            how = f"ended {exit_text(self.process.returncode)}"
        beside = f" while {self.crowd} jobs ran in it" if self.crowd > 1 else ""
        line = self.stacks.crash_line() if self.stacks is not None else ""
        return f"the process of the executor {how}{beside}{f' at {line}' if line else ''}"

    @property
    def running(self) -> int:
        """How many of its jobs are running."""
        return len(self._running)

    def deliver(self, jobs: Sequence[HeldJob]) -> None:
        """Send jobs to the executor."""
        keys = [held.key for held in jobs]
        if not self.jobs.keys().isdisjoint(keys):
            # It may still have one of these jobs under a lost claim: have it not start, or forget that run.
            self.take_unstarted([self.jobs[key] for key in keys if key in self.jobs])
            self.take_back(keys)
        now_s = monotonic_s()
        self.jobs.update(zip(keys, jobs, strict=True))
        by_queue: defaultdict[int, list[HeldJob]] = defaultdict(list)
        for held in jobs:
            by_queue[held.key[0]].append(held)
        for queue_index, share in by_queue.items():
            first, self._next_number = self._next_number, self._next_number + len(share)
            for number, held in enumerate(share, first):
                held.delivered_s, held.number = now_s, number
                held.started_s, held.is_start_committed = 0.0, False
                waiting, task = self._waiting[held.mode], held.job.task
                waiting[task] = waiting[task] + 1 if task in waiting else 1
                if held.job is not held.claimed.job:
                    held.claimed = replace(held.claimed, job=held.job)
            claims = [held.claimed for held in share]
            self.send(RunJobs(jobs=claims, queue_index=queue_index, first_number=first))

    def add_wait(self, task: asyncio.Task[None]) -> None:
        """Note a task in which one of its handlers waits for a job or a result."""
        self.waits.add(task)
        task.add_done_callback(self.waits.discard)

    def take_back(self, keys: Iterable[Key]) -> list[HeldJob]:
        """Remove and return those of these jobs that it has."""
        taken = []
        for key in keys:
            if (held := self.jobs.pop(key, None)) is not None:
                held.cancel_timer()
                if held.started_s:
                    del self._running[key]
                else:
                    self._waiting[held.mode][held.job.task] -= 1
                taken.append(held)
        return taken

    def update_record(self, key: Key, job: Job) -> None:
        """Replace the record of a job, if it is newer and of the same claim."""
        held = self.jobs.get(key)
        if held is None or held.job.claim != job.claim or held.job.version > job.version:
            return
        if not held.started_s and held.job.task != job.task:
            waiting = self._waiting[held.mode]
            waiting[held.job.task] -= 1
            waiting[job.task] = waiting.get(job.task, 0) + 1
        held.job = job

    def throttle_reads(self) -> None:
        """Pause reading for a moment while it has a backlog, so that messages are handled in batches."""
        if self._transport is not None and len(self.jobs) - len(self._running) > BACKLOG:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_S, self._transport.resume_reading)

    def send(self, message: Message) -> None:
        """Send a message to the executor."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))


def exit_text(code: int) -> str:
    """How a process has ended."""
    if code >= 0:
        return f"with exit code {code}"
    name = f" ({signal.Signals(-code).name})" if -code in list(signal.Signals) else ""
    return f"by signal {-code}{name}"


def deliver_jobs(
    jobs: Sequence[HeldJob], executors: Sequence[ExecutorHandle], *, only_fitting: bool = False
) -> list[HeldJob]:
    """Deliver each job to the executor with the most capacity left for it; returns the jobs that none takes.

    With `only_fitting` no executor gets more than its capacity.
    """
    if not jobs or not executors:
        return list(jobs)
    if len(executors) == 1 and not only_fitting:
        executors[0].deliver(jobs)
        return []
    modes = {held.mode for held in jobs}
    capacities = {mode: {one: one.capacity(mode) for one in executors} for mode in modes}
    shares: dict[ExecutorHandle, list[HeldJob]] = {one: [] for one in executors}
    rest: list[HeldJob] = []
    # How many short jobs of a task go to one executor together: each choice costs time.
    most = 1 if only_fitting else len(jobs) // (SHARES * len(executors))
    durations = executors[0]._durations
    groups = _group_by_request(jobs, durations) if durations.request_sizes else _runs(jobs, most, durations)
    for group in groups:
        task, left = group[0].job.task, capacities[group[0].mode]
        executor = max(executors, key=lambda one: (left[one].fits(task), -len(shares[one])))
        if only_fitting and not left[executor].fits(task):
            rest += group
            continue
        left[executor].reserve(task, 1 if durations.request_sizes else len(group))
        shares[executor] += group
    for executor, share in shares.items():
        if share:
            executor.deliver(share)
    return rest


def _runs(jobs: Sequence[HeldJob], most: int, durations: TaskDurations) -> Iterator[list[HeldJob]]:
    """Jobs in order: of one execution mode and short task up to `most` together, others one by one."""
    for (task, _), run in groupby(jobs, key=lambda held: (held.job.task, held.mode)):
        same, size = list(run), 1 if durations.is_slow(task) else max(most, 1)
        for first in range(0, len(same), size):
            yield same[first : first + size]


def _group_by_request(jobs: Sequence[HeldJob], durations: TaskDurations) -> list[list[HeldJob]]:
    """Jobs one by one, in order; of those that are sent in requests, as many as one takes together."""
    groups: list[list[HeldJob]] = []
    unfilled: dict[tuple[str, str], list[HeldJob]] = {}
    for held in jobs:
        pair = held.job.tenant, held.job.task
        size = durations.request_sizes.get(pair, 0) if held.mode.is_handlers else 0
        if size and 0 < len(unfilled.get(pair, ())) < size:
            unfilled[pair].append(held)
        else:
            groups.append([held])
            unfilled[pair] = groups[-1]
    return groups


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it cannot be read."""
    try:
        if sys.platform == "linux":
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        words = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout) * 1024
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 0
