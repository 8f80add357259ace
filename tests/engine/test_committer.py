"""What the committer does for those who wait, and for those who no longer do."""

from holdfast.core import commands as c
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import monotonic_s
from holdfast.store.memory.store import MemoryStore


def test_a_claim_whose_caller_went_away_takes_nothing():
    """What he gives back as he goes would come to him again, and stay with him if his process ends."""
    committer = Committer(Engine(MemoryStore(), rng=lambda: 0.5))
    ticket = Ticket(c.Claim(tasks=("work",), tenant="", lease_ms=1000), deadline_s=monotonic_s() + 60)
    committer.submit(ticket)
    committer.ask(c.Upkeep())  # the claim has been looked at by now, and waits

    assert ticket.abandon()
    (job_id,) = committer.ask(c.Add(jobs=(c.NewJob(task="work"),)))
    committer.ask(c.Upkeep())

    assert committer.engine.read(lambda txn: txn.load([job_id]))[job_id].claim == 0
    committer.close()
