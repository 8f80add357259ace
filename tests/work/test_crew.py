"""What random kills have found in the crew, kept."""

import asyncio
import subprocess
from typing import Any

from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.job import Job
from holdfast.work.messages import Began, Ran
from holdfast.work.supervisor.crew import Crew
from holdfast.work.supervisor.lanes import Lane
from holdfast.work.supervisor.member import Held, Member, held_of
from holdfast.work.supervisor.pace import Pace

LANE = Lane("functions", 1)


def _job(claim: int) -> Job:
    return Job(id=7, task="work", claim=claim)


def _held(*jobs: Job) -> list[Held]:
    return held_of([c.Claimed(job=job, data="{}") for job in jobs], 0, LANE)


def _ran(job_id: int, claim: int) -> Ran:
    answer = c.Answer(hold=c.Hold(job_id=job_id, owner=1, claim=claim))
    return Ran(job_id=job_id, claim=claim, took_s=0.0, answer=answer)


def test_a_job_claimed_while_the_last_executor_died_is_not_taken() -> None:
    """The supervisor gives it back; it used to end with a ValueError, and all its leases with it."""

    async def hand_over() -> list[Held]:
        nothing: Any = lambda *_: None  # noqa: E731
        crew = Crew(["app:queue"], 1, nothing, heard=nothing, asked=nothing, lost=nothing, ready=nothing)
        return crew.hand_over(_held(_job(1)), LANE)

    assert [held.job for held in asyncio.run(hand_over())] == [_job(1)]


def test_the_end_of_a_run_that_lost_its_claim_is_not_that_of_the_next() -> None:
    """A supervisor that slept past a lease may claim the same job again, and hand it to the same executor."""
    process: Any = subprocess.Popen
    member = Member(process, 1, Pace())
    for claim in (1, 2):
        member.give(_held(_job(claim)))
        member.hear([Began(job_id=7, number=claim)])

    assert member.running == 1
    assert member.hear([_ran(7, 1)]).ended == {}
    (answered,) = member.hear([_ran(7, 2)]).ended[0]
    assert answered[1] == _job(2)
    assert (member.jobs, member.running) == ({}, 0)


def test_what_an_executor_has_is_known_however_it_came_and_went() -> None:
    """So many wait and so many run, after jobs began, ended, were renewed and taken back."""
    process: Any = subprocess.Popen
    member = Member(process, 2, Pace())
    jobs = [Job(id=n, task="work", claim=1) for n in range(1, 7)]
    member.give(_held(*jobs))
    member.hear([Began(job_id=1, number=1), Began(job_id=2, number=1)])
    member.hear([_ran(1, 1), Began(job_id=6, number=1), _ran(6, 1)])
    member.renewed((0, 3), replace(jobs[2], task="other"))
    member.renewed((0, 4), replace(jobs[3], claim=9))

    assert (len(member.jobs), member.running) == (4, 1)
    assert member.unbegun() == [(0, 3), (0, 4), (0, 5)]
    assert [held.job.task for held in member.take([(0, 3), (0, 9)])] == ["other"]
    assert [held.job.id for held in member.take(list(member.jobs))] == [2, 4, 5]
    assert member.space(LANE) == Member(process, 2, member._pace).space(LANE)


def test_what_an_executor_says_of_an_earlier_hand_over_is_not_about_this_one() -> None:
    """A job that was taken back and handed over again neither begins nor comes back by old words."""
    process: Any = subprocess.Popen
    member = Member(process, 1, Pace())
    (held,) = _held(_job(1))
    member.give([held])
    member.take([held.key])
    member.give([held])

    member.hear([Began(job_id=7, number=1)])
    assert member.returned([(held.key, 1)]) == []
    assert member.running == 0
    member.hear([Began(job_id=7, number=2)])
    assert member.running == 1
