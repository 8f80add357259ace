"""A claim whose caller goes away in the very moment in which it is answered."""

import asyncio
import random
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.store.memory.store import MemoryStore


@pytest.fixture
def committer():
    """A lane to a fresh store."""
    made = Committer(Engine(MemoryStore(), rng=random.random))
    yield made
    made.close()


def test_a_job_that_came_just_before_its_caller_went_is_given_back(committer, monkeypatch):
    """The reply was there, the caller on its way to take it: nobody else would know of the job."""
    tasks: list[Any] = []
    for_loop = Ticket.for_loop

    def cancelled_when_answered(ticket, loop):
        future = for_loop(ticket, loop)
        if isinstance(ticket.command, c.Claim) and not tasks:
            tasks.append(asyncio.current_task())
            future.add_done_callback(lambda _: tasks[0].cancel())
        return future

    monkeypatch.setattr(Ticket, "for_loop", cancelled_when_answered)
    claim = c.Claim(lease_ms=60_000)

    async def main():
        (job_id,) = await committer.ask_async(c.Add(jobs=(c.NewJob(task="work"),)))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(committer.ask_async(claim))
        (again,) = await committer.ask_async(claim, wait_s=20)
        return job_id, again.job.id

    job_id, again = asyncio.run(main())

    assert again == job_id


def test_who_went_away_is_passed_by(committer):
    """What comes is not first claimed for those who do not wait any more."""
    waiting = c.Claim(lease_ms=60_000)

    async def main():
        gone = [asyncio.create_task(committer.ask_async(waiting, wait_s=60)) for _ in range(5)]
        await committer.ask_async(c.Upkeep())
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        await committer.ask_async(c.Add(jobs=(c.NewJob(task="work"),)))
        (found,) = await committer.ask_async(waiting, wait_s=20)
        return found.job.claim

    assert asyncio.run(main()) == 1
