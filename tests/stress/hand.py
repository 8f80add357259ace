"""A hand at work on a queue: every verb through it leaves its trace in the ledger.

add, add_many ──▶ adds … added          claim ──▶ start
answer        ──▶ says … said | lost     (done, retry, fail, release, extend, children)
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import holdfast
from holdfast import ClaimedJob, Job, Queue

from .ledger import Ledger


class Hand:
    """The verbs of one process, written down. `tag` tells its jobs from all others'."""

    def __init__(self, queue: Queue, ledger: Ledger, tag: str) -> None:
        self.queue, self.ledger, self.tag = queue, ledger, tag
        self._batches = 0

    def data(self, count: int) -> list[dict[str, Any]]:
        """Data for the next batch: who made it, which batch it is of, how many that has."""
        self._batches += 1
        return [{"tag": f"{self.tag}/{self._batches}", "n": n, "of": count} for n in range(count)]

    def add(self, task: str, **options: Any) -> int:
        """Add one job."""
        (data,) = self.data(1)
        self.ledger.write("adds", tag=data["tag"], count=1)
        job_id: int = self.queue.add(task, data, **options).id
        self.ledger.write("added", tag=data["tag"], ids=[job_id])
        return job_id

    def add_many(self, task: str, count: int, **options: Any) -> list[int]:
        """Add many, all or none."""
        rows = self.data(count)
        self.ledger.write("adds", tag=rows[0]["tag"], count=count)
        ids = [handle.id for handle in self.queue.add_many([(task, data) for data in rows], **options)]
        self.ledger.write("added", tag=rows[0]["tag"], ids=ids)
        return ids

    def claim(self, *, limit: int = 1, **options: Any) -> list[ClaimedJob]:
        """Claim some jobs."""
        jobs = self.queue.claim(limit=limit, **options)
        for job in jobs:
            self.started(job)
        return jobs

    def started(self, job: ClaimedJob) -> None:
        """A job was claimed."""
        record = job.record
        self.ledger.write(
            "start",
            id=job.id,
            claim=job.claim,
            version=record.version,
            at=record.started_at,
            until=record.lease_until,
            domain=record.domain.decode() if record.domain else "",
        )

    def child(self, job: ClaimedJob, task: str) -> int:
        """Add a child under a claim; 0 when the claim was lost."""
        (data,) = self.data(1)
        self.ledger.write("adds", tag=data["tag"], count=1)
        try:
            child = job.add(task, data).id
        except holdfast.LeaseLost:
            return 0
        self.ledger.write("added", tag=data["tag"], ids=[child])
        return int(child)

    def done(self, job: ClaimedJob) -> None:
        """Finish it with a result that says under which claim."""
        result = {"by": self.tag, "claim": job.claim}
        self._answer(job, "done", lambda: job.done(result), result=result)

    def retry(self, job: ClaimedJob, delay: float) -> None:
        """Ask for another run."""
        self._answer(job, "retry", lambda: job.retry(delay))

    def fail(self, job: ClaimedJob) -> None:
        """Let it end in vain."""
        self._answer(job, "fail", lambda: job.fail("by the rng"))

    def release(self, job: ClaimedJob) -> None:
        """Give it back."""
        self._answer(job, "release", job.release)

    def extend(self, job: ClaimedJob) -> None:
        """Keep it longer, or learn that it is lost."""
        try:
            job.extend()
        except holdfast.LeaseLost:
            return
        self.ledger.write("extended", id=job.id, claim=job.claim, until=job.record.lease_until)

    def _answer(self, job: ClaimedJob, verb: str, say: Callable[[], Job], *, result: Any = None) -> None:
        if job.lost:
            return
        about = {"id": job.id, "claim": job.claim, "verb": verb}
        self.ledger.write("says", **about)
        try:
            after = say()
        except holdfast.LeaseLost:
            self.ledger.write("lost", **about)
            return
        except holdfast.Unsettled:
            # As after a kill: perhaps it was done. If not, this does it, or its lease has run out.
            with suppress(holdfast.LeaseLost, holdfast.Unsettled):
                say()
            return
        ended = str(after.ended) if after.ended else ""
        at = after.outcome.at if verb != "release" and after.outcome else 0
        self.ledger.write("said", **about, version=after.version, ended=ended, result=result, at=at)


class Dice:
    """Chances, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.upto = self._random.randint
        self.uniform = self._random.uniform
        self.choice = self._random.choice

    def one_in(self, count: int) -> bool:
        """True once in so many times."""
        return self._random.randrange(count) == 0

    def pick(self, weighted: dict[str, int]) -> str:
        """One of these, by its weight."""
        return self._random.choices(list(weighted), list(weighted.values()))[0]
