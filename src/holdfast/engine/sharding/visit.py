"""A claim that visits lanes: one after the other, and if it may wait, all at once.

    lane 1 ▸ nothing ▸ lane 2 ▸ nothing ▸ … ▸ waits in every lane ▸ the first that has something answers
       ▲                                           └─▶ one is down ▸ the others soon give up ──┐
       └───────────────────────────────────────────────────────────────────────────────────────┘

What another lane has claimed for it in the same moment is given back, which counts as no attempt.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...core import commands as c
from ...core.errors import HoldfastError, StoreError
from ...store.common.clock import monotonic_s
from ..asking import Asking
from ..ticket import Ticket, deliver, lock
from .tour import Tour

# How long the others wait where a shard is down, before all are asked again: it may be back.
AGAIN_S = 5.0


class Part(Ticket):
    """A ticket on behalf of another; what it is answered is heard by whoever made it.

    One that only waits goes with the one that it waits for (`whole`). One that visits is heard in any case:
    what was found before it must be given back.
    """

    __slots__ = ("_gone", "_hear", "_whole")

    def __init__(
        self, command: c.Command, hear: Callable[[Any], bool], *, whole: Ticket | None = None
    ) -> None:
        self._whole, self._hear, self._gone = whole, hear, False
        super().__init__(command, deadline_s=whole.deadline_s if whole else 0.0)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._gone or (self._whole is not None and self._whole.abandoned)

    @abandoned.setter
    def abandoned(self, gone: bool) -> None:
        self._gone = gone

    def answer(self, reply: Any) -> bool:
        """Hand the reply on; False when nobody wants it."""
        with lock:
            if self.abandoned:
                return False
            self.answered = True
        return self._hear(reply)


class Visit:
    """One claim on its way."""

    def __init__(
        self,
        ticket: Ticket,
        tour: Tour,
        lanes: Sequence[Asking],
        router: Asking,
        follow: Callable[[Ticket, Any], bool],
    ) -> None:
        self._ticket, self._tour, self._lanes, self._router = ticket, tour, lanes, router
        # Takes the ticket to where the jobs have moved, if the reply says so.
        self._follow = follow
        self._parts: list[Part] = []
        # How many of them have yet to be answered; 0: it does not wait, or no longer.
        self._open = 0
        self._lock = threading.Lock()

    def go(self) -> None:
        """To the next lane."""
        step = self._tour.step()
        if step is not None:
            self._put(step[0], Part(step[1], self._visited))
            return
        reply = self._tour.reply
        if reply == [] and self._ticket.deadline_s > monotonic_s():
            self._wait()
        else:
            self._answer(reply)

    def _put(self, lane: int, part: Part) -> None:
        try:
            self._lanes[lane].submit(part)
        except HoldfastError as error:
            part.answer(error)

    def _visited(self, reply: Any) -> bool:
        self._tour.hear(reply)
        if self._ticket.abandoned:
            self._give_back(self._tour.found)
        else:
            self.go()
        return True

    def _wait(self) -> None:
        """In every lane. Those that are down say so at once, and the others go on waiting for a while."""
        command = self._ticket.command
        self._tour = Tour(command, range(len(self._lanes)))  # type: ignore[arg-type]
        self._parts = [Part(command, self._waited, whole=self._ticket) for _ in self._lanes]
        self._open = len(self._parts)
        for lane, part in enumerate(self._parts):
            self._put(lane, part)

    def _waited(self, reply: Any) -> bool:
        with self._lock:
            if not self._open:
                return False
            self._open -= 1
            self._tour.hear(reply)
            if not self._tour.found and self._open:
                if isinstance(reply, StoreError):
                    self._hurry()
                return True
            self._open = 0
        for part in self._parts:
            part.abandon()
        if self._tour.reply == [] and self._ticket.deadline_s > monotonic_s():
            self._tour = Tour(self._ticket.command, range(len(self._lanes)))  # type: ignore[arg-type]
            self.go()
        else:
            self._answer(self._tour.reply)
        return True

    def _hurry(self) -> None:
        until_s = monotonic_s() + AGAIN_S
        for part in self._parts:
            part.deadline_s = min(part.deadline_s, until_s)

    def _answer(self, reply: Any) -> None:
        if self._follow(self._ticket, reply):
            return
        if self._ticket.answer(reply):
            deliver([self._ticket], self._router.give_back)
        elif isinstance(reply, list):
            self._give_back(reply)

    def _give_back(self, claimed: list[c.Claimed]) -> None:
        ticket = Ticket(self._ticket.command)
        ticket.reply = claimed
        self._router.give_back(ticket)
