"""Several lanes of commits, one for each shard, and the router above them.

ticket ──▶ about one shard ──▶ its lane                          as on a store alone
       ──▶ a claim         ──▶ the lanes in turn (`visit`)
       ──▶ about several   ──▶ an errand: a thread that asks the lanes step by step (`routes`)

lane   ──▶ an error that another shard may set right ──▶ another lane, or an errand
       ──▶ letters and keys that a commit leaves     ──▶ an errand
       ──▶ the jobs have moved to another store      ──▶ the way there (`trail`)
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from ...core import commands as c
from ...core.errors import Closed, Moved, StoreError, Unsettled
from ..asking import Asking
from ..batch.pointers import Elsewhere
from ..commands.keys import FreeKey, Hit, TakeKey
from ..commands.letters import Deliver, Delivered
from ..committer import Committer
from ..done import Done
from ..engine import Engine
from ..ticket import Ticket, deliver
from .answering import Answering
from .sharded import ShardedEngine
from .tour import Tour
from .visit import Part, Visit

# Errands wait for lanes, most of the time.
ERRANDS = 8
# Steps between shards, which say nothing to a store that has others.
OWN = (TakeKey, FreeKey, Hit, Deliver, Delivered)


class Trail(Protocol):
    """What leads on where a store has moved."""

    def take(self, ticket: Ticket, moved: Moved, *, by: Engine) -> bool:
        """Put a command in anew which an engine has answered `Moved`; False: there is no way."""

    def ask_there(self, command: c.Command, moved: Moved, *, by: Engine) -> Any:
        """The reply to a command which an engine has answered `Moved`."""


class Step(Ticket):
    """A command of an errand, which itself sees to what goes wrong."""

    __slots__ = ()


class Lanes(Asking):
    """The way to several shards; each has a committer of its own. `trail` leads on where they have moved."""

    def __init__(self, engine: ShardedEngine, trail: "Trail | None" = None) -> None:
        self.engine: ShardedEngine = engine
        self._trail = trail
        self._lanes = [Committer(one, divert=self._divert, after=self._after) for one in self.engine.engines]
        self._routes = engine.routes(self._ask)
        self._errands: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; what it raised is raised here."""
        at = self._only(command)
        return (
            super().ask(command, wait_s=wait_s) if at is None else self._lanes[at].ask(command, wait_s=wait_s)
        )

    def _only(self, command: c.Command) -> int | None:
        """The one lane that a command is for; None: it is for several."""
        if isinstance(command, c.AnswerAll | c.Claim | c.Enlist | c.Dismiss):
            return None
        return self._routes.only(command)

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        command = ticket.command
        if isinstance(command, c.Claim):
            Visit(ticket, Tour(command, self._routes.turn()), self._lanes, self, self._follow).go()
            return
        if isinstance(command, c.AnswerAll):
            Answering(ticket, command, self).go()
            return
        at = self._only(command)
        if at is not None:
            self._lanes[at].submit(ticket)
        elif not self._send(lambda: self._carry_out(ticket)):
            raise Closed("this queue was closed; open another with holdfast.connect")

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for somebody who is gone; after the end, its lease will end by itself."""
        if isinstance(ticket.command, c.Claim) and isinstance(ticket.reply, list):
            with suppress(Closed):
                for claimed in ticket.reply:
                    self.submit(Ticket(c.Release(hold=c.hold_of(claimed.job))))

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever progress or a log may have moved, in any shard: a hint."""
        for lane in self._lanes:
            lane.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        for lane in self._lanes:
            lane.unlisten(listener)

    def close(self) -> None:
        """Commit what was put in, tell those who wait, and let go of the shards."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            errands = self._errands
        if errands is not None:
            errands.shutdown()
        for lane in self._lanes:
            lane.close()
        self.engine.close()

    def _ask(self, at: int, command: c.Command) -> Any:
        """One step of an errand."""
        ticket = Step(command)
        self._lanes[at].submit(ticket)
        reply = ticket.take()
        if isinstance(reply, Moved) and self._trail is not None and not isinstance(command, OWN):
            # What the errand has done before stays done: only the rest is asked for there.
            return self._trail.ask_there(command, reply, by=self.engine)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _follow(self, ticket: Ticket, reply: Any) -> bool:
        """Whether a command was answered that the jobs have moved, and is put in there."""
        if self._trail is None or not isinstance(reply, Moved):
            return False
        return self._trail.take(ticket, reply, by=self.engine)

    def _send(self, errand: Callable[[], None]) -> bool:
        """Have something done by a thread that may wait for lanes, which a lane must not; False: too late."""
        with self._lock:
            if self._closed:
                return False
            if self._errands is None:
                self._errands = ThreadPoolExecutor(ERRANDS, thread_name_prefix="holdfast-errand")
            self._errands.submit(errand)
            return True

    def _carry_out(self, ticket: Ticket) -> None:
        try:
            reply: Any = self._routes.do(ticket.command)
        except Exception as error:
            reply = error
        if not self._follow(ticket, reply) and ticket.answer(reply):
            deliver([ticket], self.give_back)

    def _divert(self, ticket: Ticket, error: Exception) -> bool:
        """Whether an error is not the last word: a key held elsewhere, an add that may go elsewhere."""
        if isinstance(error, Moved) and not isinstance(ticket, Step | Part):
            return self._follow(ticket, error)
        again = isinstance(error, StoreError) and not isinstance(error, Unsettled)
        if not isinstance(error, Elsewhere) and not (again and self._routes.is_free(ticket.command)):
            return False
        return not isinstance(ticket, Step) and self._send(lambda: self._carry_out(ticket))

    def _after(self, done: Done) -> None:
        """What a commit leaves to be done in other shards."""
        if done.letters:
            self._send(lambda: self._routes.deliver(done.letters))
        if done.freed:
            self._send(lambda: self._routes.freed(done.freed))
