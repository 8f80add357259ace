"""The hammer: a process that does everything at once, as fast as it can, on a file that others hammer too.

    until it has added its share:   add · add_many · claim some and answer each as the rng say
    then, until nothing comes:      claim and answer

Some claims are dropped, so that their leases lapse, and some answered only after that: then either the
answer is refused or nobody else had the job.
"""

from typing import Any

import holdfast
from holdfast import ClaimedJob
from holdfast.core.queries import GetTime

from .actor import Post
from .hand import Dice, Hand
from .ledger import Ledger

# What may happen next, and how often.
STEPS = {"add": 6, "add_many": 2, "claim": 5, "late": 2}
ANSWERS = {"done": 74, "retry": 6, "fail": 2, "release": 4, "children": 8, "extend": 3, "drop": 1, "late": 2}
# When nothing has come for so many leases, what was dropped has lapsed, and somebody took it.
QUIET_LEASES = 2
DOMAINS = ["", "", "", "", "at-once-1", "at-once-2", "rate-1", "rate-2"]
LIMITS: dict[str, dict[str, Any]] = {"at-once-*": {"concurrency": 3}, "rate-*": {"rate": 500.0, "burst": 5}}


class Hammer:
    """One process's share of the noise."""

    def __init__(self, hand: Hand, rng: Dice, post: Post, *, lease_s: float) -> None:
        self.hand, self.rng, self.post = hand, rng, post
        self.lease_s = lease_s
        self.added = 0
        self._late: list[ClaimedJob] = []

    def step(self) -> None:
        """One thing, whichever."""
        {"add": self.add, "add_many": self.add_many, "claim": self.claim, "late": self.late}[
            self.rng.pick(STEPS)
        ]()

    def add(self) -> None:
        """One job, perhaps in a domain, perhaps later."""
        options: dict[str, object] = {"priority": self.rng.upto(0, 1000)}
        if domain := self.rng.choice(DOMAINS):
            options["domain"] = domain
        if self.rng.one_in(5):
            options["delay"] = self.rng.uniform(0.0, 0.2)
        self.hand.add(self.rng.choice(["work", "play"]), **options)
        self._count(1)

    def add_many(self) -> None:
        """A batch."""
        count = self.rng.upto(2, 20)
        domain = self.rng.choice(DOMAINS)
        self.hand.add_many("work", count, **({"domain": domain} if domain else {}))
        self._count(count)

    def _count(self, count: int) -> None:
        self.added += count
        self.post.say(str(count))

    def claim(self) -> None:
        """Some jobs, and an answer for each."""
        renewed = self.rng.one_in(4)
        for job in self.hand.claim(limit=self.rng.upto(1, 12), lease=self.lease_s, renew=renewed):
            self.answer(job, renewed=renewed)

    def answer(self, job: ClaimedJob, *, renewed: bool = False) -> None:
        """As the rng say; a lease that renews itself does not run out, so nothing is late for it."""
        verb = self.rng.pick(ANSWERS)
        if verb == "late" and not renewed:
            self._late.append(job)
        elif verb == "retry":
            self.hand.retry(job, self.rng.uniform(0.0, 0.1))
        elif verb == "fail":
            self.hand.fail(job)
        elif verb == "release":
            self.hand.release(job)
        elif verb != "drop":
            if verb == "extend":
                self.hand.extend(job)
            for _ in range(self.rng.upto(1, 3) if verb == "children" else 0):
                self.hand.child(job, "child")
            self.hand.done(job)

    def late(self) -> None:
        """Answer what should have been answered long ago."""
        if not self._late:
            # Nothing to ask a server for, which may be away for the moment.
            return
        now_ms = self.hand.queue.connection.ask(GetTime())
        due = [job for job in self._late if job.record.lease_until < now_ms]
        for job in due:
            self._late.remove(job)
            self.hand.done(job)


def work(post: Post, *, path: str, ledger: str, tag: str, seed: int, share: int, lease_s: float) -> None:
    """Add a share of jobs, and work with all others until nothing more comes."""
    with holdfast.connect(path, lease=lease_s) as queue:
        hammer = Hammer(Hand(queue, Ledger(ledger), tag), Dice(seed), post, lease_s=lease_s)
        # A server that it has spoken to is waited for; one that was never there is told at once.
        queue.counts()
        post.say("ready")
        while hammer.added < share:
            hammer.step()
        post.say("added")
        while jobs := hammer.hand.claim(limit=4, wait=QUIET_LEASES * lease_s, renew=False):
            for job in jobs:
                hammer.answer(job)
            hammer.late()
