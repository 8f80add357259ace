"""A claim over several shards: it asks one after the other, and if it may wait, all at once.

    shard 1 ▸ nothing ▸ shard 2 ▸ nothing ▸ … ▸ waits in every shard ▸ the first that finds a job answers
       ▲                                           └─▶ one is down ▸ the others end their wait soon ──┐
       └──────────────────────────────────────────────────────────────────────────────────────────────┘

Jobs that another shard has claimed for it at the same time are released, which does not count as an attempt.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.bounds import CLAIM_BYTES, CLAIM_JOBS
from ...core.errors import HoldfastError, StoreError
from ...store.common.clock import monotonic_s
from ...store.contract import picks_left
from ..ticket import Submitter, Ticket, deliver, lock

# How long the other shards wait while one is down, before all are asked again.
RETRY_S = 5.0


class ClaimProgress:
    """The shards that a claim has yet to ask, and the jobs found so far. A shard that is down is skipped."""

    def __init__(self, claim: c.Claim, order: Sequence[int]) -> None:
        self._claim, self._order = claim, list(order)
        self._shards = len(order)
        self.found: list[c.Claimed] = []
        self._fault: Exception | None = None
        self._faults = 0

    def step(self) -> tuple[int, c.Claim] | None:
        """The next shard and the claim for it; None when enough was found, or no shard is left."""
        wanted = min(self._claim.limit, CLAIM_JOBS) - len(self.found)
        size = sum(one.job.size for one in self.found)
        if not self._order or wanted <= 0 or size >= CLAIM_BYTES:
            return None
        left = picks_left(self._claim.picks, (one.job for one in self.found))
        return self._order.pop(0), replace(self._claim, limit=wanted, picks=left, taken_bytes=size)

    def add_reply(self, reply: Any) -> None:
        """Add the reply of a shard: jobs, or an error."""
        if isinstance(reply, list):
            self.found += reply
        else:
            self._fault, self._faults = reply, self._faults + 1
            if not isinstance(reply, StoreError):
                # Not an error of the shard: the others would raise the same.
                self._order.clear()
                self._faults = self._shards

    @property
    def reply(self) -> list[c.Claimed] | Exception:
        """The jobs found, in order; the error if no shard could be asked."""
        if self._fault is not None and self._faults >= self._shards and not self.found:
            return self._fault
        return sorted(self.found, key=lambda one: (-one.job.priority, one.job.run_at, one.job.id))


class ClaimPart(Ticket):
    """A ticket for one shard, on behalf of the claim; its reply goes to `on_reply`.

    One that only waits is abandoned with the claim's ticket (`whole`). One that claims is not: jobs that were
    found before must be released.
    """

    __slots__ = ("_gone", "_on_reply", "_whole")

    def __init__(
        self, command: c.Command, hear: Callable[[Any], bool], *, whole: Ticket | None = None
    ) -> None:
        self._whole, self._on_reply, self._gone = whole, hear, False
        super().__init__(command, deadline_s=whole.deadline_s if whole else 0.0)

    @property
    def abandoned(self) -> bool:
        """Whether its reply is no longer wanted."""
        return self._gone or (self._whole is not None and self._whole.abandoned)

    @abandoned.setter
    def abandoned(self, gone: bool) -> None:
        self._gone = gone

    def answer(self, reply: Any) -> bool:
        """Pass the reply on; False if it is not wanted."""
        with lock:
            if self.abandoned:
                return False
            self.answered = True
        return self._on_reply(reply)


class ShardedClaim:
    """One claim over several shards."""

    def __init__(
        self,
        ticket: Ticket,
        command: c.Claim,
        order: Sequence[int],
        committers: Sequence[Submitter],
        router: Submitter,
        follow: Callable[[Ticket, Any], bool],
    ) -> None:
        self._ticket, self._command, self._committers, self._router = ticket, command, committers, router
        self._progress = ClaimProgress(command, order)
        # Submits the ticket to the new store if the reply says that the jobs have moved.
        self._follow = follow
        self._parts: list[ClaimPart] = []
        # How many parts have no reply yet; 0 if the claim does not wait.
        self._open = 0
        self._lock = threading.Lock()

    def go(self) -> None:
        """Ask the next shard, or wait, or answer."""
        step = self._progress.step()
        if step is not None:
            self._put(step[0], ClaimPart(step[1], self._on_claimed))
            return
        reply = self._progress.reply
        if reply == [] and self._ticket.deadline_s > monotonic_s():
            self._wait()
        else:
            self._answer(reply)

    def _put(self, committer: int, part: ClaimPart) -> None:
        try:
            self._committers[committer].submit(part)
        except HoldfastError as error:
            part.answer(error)

    def _on_claimed(self, reply: Any) -> bool:
        self._progress.add_reply(reply)
        if self._ticket.abandoned:
            self._router.release(one.job for one in self._progress.found)
        else:
            self.go()
        return True

    def _wait(self) -> None:
        """Wait in every shard. Those that are down answer at once; the others wait for a while."""
        command = self._command
        self._progress = ClaimProgress(command, range(len(self._committers)))
        self._parts = [ClaimPart(command, self._on_waited, whole=self._ticket) for _ in self._committers]
        self._open = len(self._parts)
        for committer, part in enumerate(self._parts):
            self._put(committer, part)

    def _on_waited(self, reply: Any) -> bool:
        with self._lock:
            if not self._open:
                return False
            self._open -= 1
            self._progress.add_reply(reply)
            if not self._progress.found and self._open:
                if isinstance(reply, StoreError):
                    self._shorten_waits()
                return True
            self._open = 0
        for part in self._parts:
            part.abandon()
        if self._progress.reply == [] and self._ticket.deadline_s > monotonic_s():
            self._progress = ClaimProgress(self._command, range(len(self._committers)))
            self.go()
        else:
            self._answer(self._progress.reply)
        return True

    def _shorten_waits(self) -> None:
        until_s = monotonic_s() + RETRY_S
        for part in self._parts:
            part.deadline_s = min(part.deadline_s, until_s)

    def _answer(self, reply: Any) -> None:
        if self._follow(self._ticket, reply):
            return
        if self._ticket.answer(reply):
            deliver([self._ticket], self._router.give_back)
        elif isinstance(reply, list):
            self._router.release(one.job for one in reply)
