"""What random kills have found in the crew, kept."""

import asyncio
import subprocess
from typing import Any

from holdfast.core import commands as c
from holdfast.core.job import Job
from holdfast.work.crew import Crew, Held, Member


def _job(claim: int) -> Job:
    return Job(id=7, task="work", claim=claim)


def test_a_job_claimed_while_the_last_executor_died_is_not_taken():
    """The supervisor gives it back; it used to end with a ValueError, and all its leases with it."""

    async def hand_over() -> bool:
        nothing: Any = lambda *_: None  # noqa: E731
        crew = Crew("app:queue", 1, nothing, nothing, nothing, nothing)
        return crew.hand_over(c.Claimed(job=_job(1), data="{}"))

    assert asyncio.run(hand_over()) is False


def test_the_end_of_a_run_that_lost_its_claim_is_not_that_of_the_next():
    """A supervisor that slept past a lease may claim the same job again, and hand it to the same executor."""
    process: Any = subprocess.Popen
    member = Member(process, writer=None, threads=1)  # type: ignore[arg-type]
    member.jobs[7] = Held(_job(2))

    assert member.finished(7, 1) is None
    assert member.finished(7, 2) == _job(2)
    assert member.jobs == {}
