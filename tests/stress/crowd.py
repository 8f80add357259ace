"""One of several who work off the same jobs as fast as they can, and write down what they start and end."""

import holdfast
from holdfast.core import commands as c
from holdfast.engine.ticket import Ticket

from .actor import Post
from .ledger import Ledger

BY = 50


def work(post: Post, *, path: str, ledger: str) -> None:
    """Claim some, write that down, finish each by a command of its own, until nothing is left.

    With its first ones in hand it waits for the others: who gets no turn for long has a share too.
    """
    book = Ledger(ledger)
    with holdfast.connect(path) as queue:
        line = queue.connection
        claim = c.Claim(tenant="", limit=BY, lease_ms=120_000)
        post.say("ready")
        assert post.hear() == "go"
        claimed = line.ask(claim)
        post.say("holding")
        assert post.hear() == "go on"
        while claimed:
            jobs = [one.job for one in claimed]
            book.write("starts", ids=[job.id for job in jobs], claims=[job.claim for job in jobs])
            tickets = [Ticket(c.Answer(hold=c.hold_of(job), held=job)) for job in jobs]
            for ticket in tickets:
                line.submit(ticket)
            for ticket in tickets:
                reply = ticket.wait_for_reply()
                assert not isinstance(reply, BaseException), reply
            book.write("ends", ids=[job.id for job in jobs])
            claimed = line.ask(claim, wait_s=2.0)
