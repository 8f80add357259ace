"""What the committer does for those who wait, and for those who no longer do."""

import threading
import time

from holdfast.core import commands as c
from holdfast.core.errors import StoreError
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import SystemClock, monotonic_s
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


def test_a_store_that_cannot_tell_the_time_ends_no_wait():
    """The next commit meets what is wrong; a claim that waits is answered once the store works again."""
    store = MemoryStore(SystemClock())
    now_ms, broken = store.now_ms, threading.Event()

    def tell():
        if broken.is_set():
            raise StoreError("the server says no")
        return now_ms()

    store.now_ms = tell  # type: ignore[method-assign]
    committer = Committer(Engine(store, rng=lambda: 0.5))
    replies = []
    claim = c.Claim(lease_ms=60_000)
    waiting = threading.Thread(target=lambda: replies.append(committer.ask(claim, wait_s=30)))
    try:
        committer.ask(c.Add(jobs=(c.NewJob(task="later", delay_ms=60_000),)))
        waiting.start()
        broken.set()
        # Longer than the waiter ever sleeps: it has looked at the clock meanwhile.
        time.sleep(1.5)
        broken.clear()
        committer.ask(c.Add(jobs=(c.NewJob(task="now"),)))
        waiting.join(20)
    finally:
        committer.close()

    assert [one.job.task for one in replies[0]] == ["now"]
