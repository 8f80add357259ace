"""What random kills have found in the crew, kept."""

import asyncio
import subprocess
from typing import Any

from holdfast.core import commands as c
from holdfast.core.job import Job
from holdfast.work.crew import Crew
from holdfast.work.lanes import Lane
from holdfast.work.member import Held, Member
from holdfast.work.pace import Pace

LANE = Lane("functions", 1)


def _job(claim: int) -> Job:
    return Job(id=7, task="work", claim=claim)


def test_a_job_claimed_while_the_last_executor_died_is_not_taken() -> None:
    """The supervisor gives it back; it used to end with a ValueError, and all its leases with it."""

    async def hand_over() -> list[Job]:
        nothing: Any = lambda *_: None  # noqa: E731
        crew = Crew(["app:queue"], 1, nothing, nothing, nothing, nothing)
        return crew.hand_over([c.Claimed(job=_job(1), data="{}")], 0, LANE)

    assert asyncio.run(hand_over()) == [_job(1)]


def test_the_end_of_a_run_that_lost_its_claim_is_not_that_of_the_next() -> None:
    """A supervisor that slept past a lease may claim the same job again, and hand it to the same executor."""
    process: Any = subprocess.Popen
    member = Member(process, 1, Pace())
    member.jobs[0, 7] = Held(_job(2), 0, LANE)

    assert member.finished((0, 7), 1) is None
    assert member.finished((0, 7), 2) == _job(2)
    assert member.jobs == {}
