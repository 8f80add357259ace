"""What random kills have found in the pool, kept."""

import asyncio
import socket
import subprocess
from typing import Any

from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.job import Job
from holdfast.work.capacity import ExecutionMode, TaskDurations
from holdfast.work.messages import HEAD, JobEnded, JobStarted
from holdfast.work.options import WorkerOptions
from holdfast.work.shared_files import SharedStartLocks
from holdfast.work.supervisor.executor_handle import ExecutorHandle, HeldJob, deliver_jobs, make_held_jobs
from holdfast.work.supervisor.executor_pool import ExecutorPool, ExecutorProtocol

LANE = ExecutionMode("functions", 1)


def _job(claim: int) -> Job:
    return Job(id=7, task="work", claim=claim)


def _held(*jobs: Job) -> list[HeldJob]:
    return make_held_jobs([c.Claimed(job=job, data="{}") for job in jobs], 0, LANE)


def _ran(job_id: int, claim: int) -> JobEnded:
    answer = c.Answer(hold=c.Hold(job_id=job_id, owner=1, claim=claim))
    return JobEnded(job_id=job_id, claim=claim, duration_s=0.0, answer=answer)


def _started(job_id: int, number: int) -> JobStarted:
    return JobStarted(thread=1, job_id=job_id, number=number, started_s=1.0)


def test_a_job_claimed_while_the_last_executor_died_is_not_taken() -> None:
    """The supervisor gives it back; it used to end with a ValueError, and all its leases with it."""

    async def dispatch() -> list[HeldJob]:
        nothing: Any = lambda *_: None  # noqa: E731
        pool = ExecutorPool(
            WorkerOptions(names=("app:queue",)),
            nothing,
            on_events=nothing,
            on_request=nothing,
            on_lost=nothing,
            on_ready=nothing,
        )
        return pool.dispatch(_held(_job(1)))

    assert [held.job for held in asyncio.run(dispatch())] == [_job(1)]


def test_jobs_go_to_the_executor_with_the_most_capacity() -> None:
    """Evenly where that is equal; what fits into none stays, where that is asked for."""
    process: Any = subprocess.Popen
    busy, free = (ExecutorHandle(process, 1, TaskDurations(), SharedStartLocks()) for _ in range(2))
    busy.deliver(_held(Job(id=1, task="work")))

    rest = deliver_jobs(
        _held(*(Job(id=n, task="work") for n in range(2, 6))), [busy, free], only_fitting=True
    )

    assert [held.job.id for held in rest] == [3, 4, 5]
    assert (len(busy.jobs), len(free.jobs)) == (1, 1)
    assert deliver_jobs(rest, [busy, free]) == []
    assert (len(busy.jobs), len(free.jobs)) == (3, 2)


def test_the_end_of_a_run_that_lost_its_claim_is_not_that_of_the_next() -> None:
    """A supervisor that slept past a lease may claim the same job again, and hand it to the same executor."""
    process: Any = subprocess.Popen
    executor = ExecutorHandle(process, 1, TaskDurations(), SharedStartLocks())
    for claim in (1, 2):
        executor.deliver(_held(_job(claim)))
        executor.apply_messages([_started(7, claim - 1)])

    assert executor.running == 1
    assert executor.apply_messages([_ran(7, 1)]).ended == {}
    (answered,) = executor.apply_messages([_ran(7, 2)]).ended[0]
    assert answered[1] == _job(2)
    assert (executor.jobs, executor.running) == ({}, 0)


def test_a_job_that_has_ended_or_was_taken_back_has_no_timer() -> None:
    """A timer would keep it, with its data, until its time limit."""
    process: Any = subprocess.Popen
    executor = ExecutorHandle(process, 1, TaskDurations(), SharedStartLocks())

    async def run() -> list[asyncio.TimerHandle]:
        timers = []
        for number, job_id in enumerate((7, 8)):
            (held,) = _held(Job(id=job_id, task="work", claim=1))
            executor.deliver([held])
            executor.apply_messages([_started(job_id, number)])
            held.timer = asyncio.get_running_loop().call_later(3600, print)
            timers.append(held.timer)
        executor.apply_messages([_ran(7, 1)])
        executor.take_back([(0, 8)])
        return timers

    assert [timer.cancelled() for timer in asyncio.run(run())] == [True, True]


def test_what_an_executor_has_is_known_however_it_came_and_went() -> None:
    """So many wait and so many run, after jobs began, ended, were renewed and taken back."""
    process: Any = subprocess.Popen
    executor = ExecutorHandle(process, 2, TaskDurations(), SharedStartLocks())
    jobs = [Job(id=n, task="work", claim=1) for n in range(1, 7)]
    executor.deliver(_held(*jobs))
    executor.apply_messages([_started(1, 0), _started(2, 1)])
    executor.apply_messages([_ran(1, 1), _started(6, 5), _ran(6, 1)])
    executor.update_record((0, 3), replace(jobs[2], task="other"))
    executor.update_record((0, 4), replace(jobs[3], claim=9))

    assert (len(executor.jobs), executor.running) == (4, 1)
    assert [held.job.task for held in executor.take_back([(0, 3), (0, 9)])] == ["other"]
    assert [held.job.id for held in executor.take_back(list(executor.jobs))] == [2, 4, 5]
    assert executor.capacity(LANE) == ExecutorHandle(
        process, 2, executor._durations, executor._locks
    ).capacity(LANE)


def test_what_an_executor_says_of_an_earlier_hand_over_is_not_about_this_one() -> None:
    """A job that was taken back and handed over again neither begins nor comes back by old words."""
    process: Any = subprocess.Popen
    executor = ExecutorHandle(process, 1, TaskDurations(), SharedStartLocks())
    (held,) = _held(_job(1))
    executor.deliver([held])
    executor.take_back([held.key])
    executor.deliver([held])

    executor.apply_messages([_started(7, 0)])
    assert executor.drop_returned([(held.key, 0)]) == []
    assert executor.running == 0
    executor.apply_messages([_started(7, 1)])
    assert executor.running == 1


def test_the_end_of_an_executor_is_noticed_after_a_frame_that_cannot_be_decoded() -> None:
    """Otherwise its jobs would be renewed for ever."""

    async def end() -> list[str]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        noticed, closed = [], asyncio.Event()
        loop.set_exception_handler(lambda _loop, context: noticed.append(str(context["exception"])))
        transport, protocol = await loop.create_unix_connection(ExecutorProtocol, sock=ours)
        protocol.listen(lambda _messages: None, closed.set)
        transport.pause_reading()
        with theirs:
            theirs.sendall(HEAD.pack(1) + b"\x01")
            transport.abort()
            await asyncio.wait_for(closed.wait(), 60)
        return noticed

    assert asyncio.run(end()) == ["Expected `array`, got `int`"]
