"""A claim whose caller goes away in the very moment in which it is answered."""

import asyncio
import random

from holdfast.core import commands as c
from holdfast.core.job import Place
from holdfast.engine import committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.store.memory import MemoryStore


def test_what_was_claimed_for_a_task_cancelled_as_it_is_told_goes_back(monkeypatch):
    """The reply is there, and nobody will ever look at it: the job must not wait for its lease to end."""
    line = committer.Committer(Engine(MemoryStore(), dice=random.random))
    (job_id,) = line.ask(c.Add(jobs=(c.NewJob(task="t"),)))

    async def go():
        class Cancelling(Ticket):
            def for_loop(self, loop):
                future = super().for_loop(loop)
                # Before the task itself is woken.
                future.add_done_callback(lambda _: claiming.cancel())
                return future

        monkeypatch.setattr(committer, "Ticket", Cancelling)
        claiming = asyncio.create_task(line.ask_async(c.Claim(lease_ms=600_000)))
        await asyncio.wait([claiming])
        return claiming.cancelled()

    assert asyncio.run(go())
    monkeypatch.undo()
    # Whatever is asked now is asked after it was given back.
    line.ask(c.Upkeep())
    job = line.engine.read(lambda txn: txn.load([job_id])[job_id])
    line.close()
    assert (job.place, job.claim) == (Place.READY, 1)
